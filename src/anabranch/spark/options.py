"""Every option of the data source and of the sink: text from Spark in, one frozen value out.

Spark hands options over as text under names whose case is lost, so names are compared in lower
case. An unknown name is refused, with the nearest known one in the message: a mistyped
``failOnDataLoss`` must not be taken for its default. Nothing here touches Spark or a socket.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from anabranch.errors import ConfigError

__all__ = ["OptionError", "ReadOptions", "ServerOptions", "WriteOptions", "check_names"]


class OptionError(ConfigError):
    """An option that is unknown, malformed or contradicts another; the text says what to do."""


# ------------------------------------------------------------------------------------- the values


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server is and how long to try. Holds secrets, and does not print them."""

    url: str = field(default="redis://127.0.0.1:6379", repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 30_000
    retries: int = 5
    retry_interval_ms: int = 200

    def __post_init__(self) -> None:
        """An address without a scheme is one of TCP.

        Raises `OptionError` for files of TLS and an address that goes without.
        """
        if "://" not in self.url:
            object.__setattr__(self, "url", f"redis://{self.url}")
        files = {"tls.ca": self.tls_ca, "tls.cert": self.tls_cert, "tls.key": self.tls_key}
        given = [name for name, value in files.items() if value is not None]
        if given and not self.url.lower().startswith("rediss://"):
            raise OptionError(
                f"option {given[0]} is for TLS, and the url does not ask for it: let it begin with "
                f"rediss:// and not with {self.url.partition('//')[0]}//"
            )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and how; `parse` makes one."""

    server: ServerOptions
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[str, ...]] | None = None
    regions: tuple[str, ...] | None = None
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    max_entries: int | None = None
    min_entries: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    catch_up_timeout_ms: int = 60_000
    allow_subscription_change: bool = False
    poll_timeout_ms: int = 200
    discovery_interval_ms: int = 10_000
    commit_group: str | None = None
    mode: str = "PERMISSIVE"
    corrupt_column: str | None = None
    field_mapping: Mapping[str, str] = field(default_factory=dict)
    push_down_filters: bool = False
    max_batch_bytes: int = 8 << 20
    export_codec: str = "none"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a batch or stream read; raises `OptionError`."""
        server, own = _split(options, _READ, cls)
        chosen = [name for name in ("subscribe", "pattern", "assign") if own.get(name)]
        if len(chosen) != 1:
            said = "none was" if not chosen else "several were"
            raise OptionError(
                "name the streams by exactly one of the options subscribe (comma-separated keys), "
                f"subscribePattern (a glob) and assign (JSON); {said} given"
            )
        for moment, offsets in (
            ("starting_timestamp", "starting_offsets"),
            ("ending_timestamp", "ending_offsets"),
        ):
            if moment in own and offsets in own:
                raise OptionError(f"{_name_of(moment)} and {_name_of(offsets)} exclude each other")
        return cls(server=server, **own)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write and with which promise; `parse` makes one."""

    server: ServerOptions
    stream: str | None = None
    idempotence: str | None = None
    idempotence_column: str | None = None
    idempotence_window: str = "require"
    producer_id: str | None = None
    batch_id: int | None = None
    sink_id: str = "0"
    allow_producer_change: bool = False
    result_file: str | None = None
    deterministic_order: str = "trust"
    max_len: int | None = None
    min_id: str | None = None
    trim: str = "~"
    max_rows_in_flight: int = 2_048
    null_value: str | None = None
    preserve_ids: bool = False
    field_mapping: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a batch or stream write; raises `OptionError`."""
        server, own = _split(options, _WRITE, cls)
        if "max_len" in own and "min_id" in own:
            raise OptionError("maxLen and minId exclude each other: a stream is trimmed one way")
        return cls(server=server, **own)


# ----------------------------------------------------------------------------------- text to value


def _text(value: str) -> str:
    return value


def _whole(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise OptionError(f"a whole number is needed, not {value!r}") from None
        if number < least:
            raise OptionError(f"{number} is less than {least}, the least allowed")
        return number

    return parse


def _boolean(value: str) -> bool:
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise OptionError(f"true or false is needed, not {value!r}")


def _one_of(*words: str, upper: bool = False) -> Callable[[str], str]:
    def parse(value: str) -> str:
        word = value.strip().upper() if upper else value.strip().lower()
        if word not in words:
            raise OptionError(f"one of {', '.join(words)} is needed, not {value!r}")
        return word

    return parse


_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.ASCII)
_DURATION_MS: Final = {
    "ms": 1, None: 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?", re.ASCII)
_SIZE_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _duration_ms(value: str) -> int:
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None:
        raise OptionError(f"a duration such as 500ms, 30s or 15m is needed, not {value!r}")
    return int(match[1]) * _DURATION_MS[match[2]]


def _size(value: str) -> int:
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None or not int(match[1]):
        raise OptionError(f"a size such as 512k or 8m is needed, not {value!r}")
    return int(match[1]) * _SIZE_BYTES[match[2]]


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
    if not names:
        raise OptionError("at least one name is needed")
    return names


def _regions(value: str) -> tuple[str, ...]:
    # The region of a server without regions has an empty name, so an empty text is a list of one.
    return tuple(dict.fromkeys(each.strip() for each in value.split(",")))


def _object(value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise OptionError(f"a JSON object is needed, and this is none: {error}") from None
    if not isinstance(found, dict):
        raise OptionError(f"a JSON object is needed, not {value!r}")
    return found


def _assignment(value: str) -> dict[str, tuple[str, ...]]:
    found = _object(value)
    for stream, regions in found.items():
        if not isinstance(regions, list) or not all(isinstance(each, str) for each in regions):
            raise OptionError(f"the regions of {stream!r} must be a list of names")
    return {stream: tuple(regions) for stream, regions in found.items()}


def _mapping(value: str) -> dict[str, str]:
    found = _object(value)
    if not all(isinstance(each, str) for each in found.values()):
        raise OptionError('column names and field names are texts: {"column": "field"}')
    return found


# ----------------------------------------------------------------------------------------- names


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    field: str
    parse: Callable[[str], Any]
    aliases: tuple[str, ...] = ()


_SERVER: Final = (
    _Option("url", "url", _text),
    _Option("username", "username", _text),
    _Option("password", "password", _text),
    _Option("db", "db", _whole(0)),
    _Option("tls.ca", "tls_ca", _text),
    _Option("tls.cert", "tls_cert", _text),
    _Option("tls.key", "tls_key", _text),
    _Option("connectTimeoutMs", "connect_timeout_ms", _whole(1)),
    _Option("readTimeoutMs", "read_timeout_ms", _whole(1)),
    _Option("retries", "retries", _whole(0), ("fetchOffset.numRetries",)),
    _Option("retryIntervalMs", "retry_interval_ms", _whole(1), ("fetchOffset.retryIntervalMs",)),
)

_READ: Final = (
    _Option("subscribe", "subscribe", _names),
    _Option("subscribePattern", "pattern", _text),
    _Option("assign", "assign", _assignment),
    _Option("regions", "regions", _regions),
    _Option("startingOffsets", "starting_offsets", _text),
    _Option("endingOffsets", "ending_offsets", _text),
    _Option("startingTimestamp", "starting_timestamp", _whole(0)),
    _Option("endingTimestamp", "ending_timestamp", _whole(0)),
    _Option("maxEntriesPerTrigger", "max_entries", _whole(1), ("maxOffsetsPerTrigger",)),
    _Option("minEntriesPerTrigger", "min_entries", _whole(1), ("minOffsetsPerTrigger",)),
    _Option("maxTriggerDelay", "max_trigger_delay_ms", _duration_ms),
    _Option("minPartitions", "min_partitions", _whole(1)),
    _Option("maxRecordsPerPartition", "max_records_per_partition", _whole(1)),
    _Option("failOnDataLoss", "fail_on_data_loss", _boolean),
    _Option("catchUpTimeout", "catch_up_timeout_ms", _duration_ms),
    _Option("allowSubscriptionChange", "allow_subscription_change", _boolean),
    _Option("pollTimeoutMs", "poll_timeout_ms", _whole(0)),
    _Option("discoveryIntervalMs", "discovery_interval_ms", _whole(0)),
    _Option("commitGroup", "commit_group", _text),
    _Option("mode", "mode", _one_of("PERMISSIVE", "FAILFAST", "DROPMALFORMED", upper=True)),
    _Option("columnNameOfCorruptRecord", "corrupt_column", _text),
    _Option("fieldMapping", "field_mapping", _mapping),
    _Option("pushDownFilters", "push_down_filters", _boolean),
    _Option("maxBatchBytes", "max_batch_bytes", _size),
    _Option("exportCodec", "export_codec", _one_of("none", "zstd")),
)

_WRITE: Final = (
    _Option("stream", "stream", _text, ("topic",)),
    _Option(
        "idempotence",
        "idempotence",
        _one_of("ledger", "position", "content", "column", "none"),
    ),
    _Option("idempotenceColumn", "idempotence_column", _text),
    _Option("idempotenceWindow", "idempotence_window", _one_of("require", "ignore")),
    _Option("producerId", "producer_id", _text),
    _Option("batchId", "batch_id", _whole(0)),
    _Option("sinkId", "sink_id", _text),
    _Option("allowProducerChange", "allow_producer_change", _boolean),
    _Option("resultFile", "result_file", _text),
    _Option("deterministicOrder", "deterministic_order", _one_of("trust", "sort")),
    _Option("maxLen", "max_len", _whole(0)),
    _Option("minId", "min_id", _text),
    _Option("trim", "trim", _one_of("~", "=")),
    _Option("maxRowsInFlight", "max_rows_in_flight", _whole(1)),
    _Option("nullValue", "null_value", _text),
    _Option("preserveIds", "preserve_ids", _boolean),
    _Option("fieldMapping", "field_mapping", _mapping),
)

# Spark puts these among the options of a source or sink itself.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})


def _name_of(wanted: str) -> str:
    return next(each.name for each in (*_SERVER, *_READ, *_WRITE) if each.field == wanted)


def _split(
    options: Mapping[str, str], side: tuple[_Option, ...], target: type
) -> tuple[ServerOptions, dict[str, Any]]:
    """The server's options as a value, those of `target` by field."""
    known = {
        name.lower(): option
        for option in (*_SERVER, *side)
        for name in (option.name, *option.aliases)
    }
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name, text in options.items():
        if name.lower() in _SPARKS_OWN:
            continue
        option = known.get(name.lower())
        if option is None:
            raise OptionError(_unknown(name, side))
        if option.field in values:
            raise OptionError(f"options {said[option.field]} and {name} say the same thing twice")
        said[option.field] = name
        try:
            values[option.field] = option.parse(text)
        except OptionError as error:
            raise OptionError(f"option {option.name}: {error}") from None
    of_server = {each.name for each in fields(ServerOptions)}
    own = {each.name for each in fields(target)}
    return (
        ServerOptions(**{name: value for name, value in values.items() if name in of_server}),
        {name: value for name, value in values.items() if name in own},
    )


def check_names(names: Iterable[str]) -> None:
    """Raise `OptionError` for the name of no option, whether of a read or of a write."""
    sides = (*_READ, *_WRITE)
    known = {
        name.lower() for option in (*_SERVER, *sides) for name in (option.name, *option.aliases)
    }
    for name in names:
        if name.lower() not in known:
            raise OptionError(_unknown(name, sides))


def _unknown(name: str, side: tuple[_Option, ...]) -> str:
    if name.lower() == "path":
        wanted = "subscribe" if side is _READ else "stream"
        return f"a stream has no path: name it with option {wanted}, and call the method bare"
    here = {
        each.lower(): option.name
        for option in (*_SERVER, *side)
        for each in (option.name, *option.aliases)
    }
    near = difflib.get_close_matches(name.lower(), here, n=1, cutoff=0.6)
    if near:
        return f"unknown option {name!r}: did you mean {here[near[0]]}?"
    return f"unknown option {name!r}; known are {', '.join(sorted(set(here.values())))}"
