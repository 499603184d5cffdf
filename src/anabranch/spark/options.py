"""Parses the options of the data source and of the sink.

Spark passes options as text and does not keep the case of their names, so names are compared in
lower case. An unknown name is refused, and the message contains the nearest known one: a mistyped
``failOnDataLoss`` must not mean its default. This module uses neither Spark nor sockets.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Self
from urllib.parse import urlsplit

from anabranch.errors import ConfigError


class OptionError(ConfigError):
    """An option that is unknown, malformed or contradicts another; the text says what to do."""


# ----------------------------------------------------------------------------------- text to value


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


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        for word in words:
            if word.lower() == value.strip().lower():
                return word
        raise OptionError(f"{' or '.join(words)} is needed, not {value!r}")

    return parse


def _boolean(value: str) -> bool:
    return _one_of("true", "false")(value) == "true"


_DURATION_MS: Final = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_SIZE_BYTES: Final = {
    f"{unit}{byte}": 1 << 10 * power
    for power, unit in enumerate(("", *"kmg"))
    for byte in ("", "b")
}


def _measured(units: Mapping[str, int], least: int, what: str) -> Callable[[str], int]:
    def parse(value: str) -> int:
        match = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower(), re.ASCII)
        if match is None or match[2] not in units or int(match[1]) < least:
            raise OptionError(f"{what} is needed, not {value!r}")
        return int(match[1]) * units[match[2]]

    return parse


_duration_ms: Final = _measured(_DURATION_MS, 0, "a duration such as 500ms, 30s or 15m")
_size: Final = _measured(_SIZE_BYTES, 1, "a size such as 512k or 8m")


def _entry_id(value: str) -> str:
    if not re.fullmatch(r"\d+(-\d+)?", value.strip(), re.ASCII):
        raise OptionError(f"an ID such as 1718000000000-0 is needed, not {value!r}")
    return value.strip()


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
        is_list = isinstance(regions, list) and all(isinstance(each, str) for each in regions)
        if not is_list or not regions:
            raise OptionError(f"the regions of {stream!r} must be a list of names")
    return {stream: tuple(regions) for stream, regions in found.items()}


def _mapping(value: str) -> dict[str, str]:
    found = _object(value)
    if not all(isinstance(each, str) for each in found.values()):
        raise OptionError('column names and field names are texts: {"column": "field"}')
    return found


# ------------------------------------------------------------------------------------- the values


def _option(
    default: Any = None,
    parse: Callable[[str], Any] = str,
    name: str | None = None,
    *aliases: str,
    shown: bool = True,
    only: str | None = None,
) -> Any:
    """A field that an option sets; the option has the field's name in camel case, or `name`.

    `only`: the kind of read that has it, ``batch`` or ``streaming``.
    """
    about = {"parse": parse, "name": name, "aliases": aliases, "only": only}
    if default is dict:
        return field(default_factory=dict, metadata=about)
    return field(default=default, repr=shown, metadata=about)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Address, credentials and retries of the server. Secrets are not printed."""

    url: str = _option("redis://127.0.0.1:6379", shown=False)
    username: str | None = _option()
    password: str | None = _option(shown=False)
    db: int | None = _option(None, _whole(0))
    tls_ca: str | None = _option(None, str, "tls.ca")
    tls_cert: str | None = _option(None, str, "tls.cert")
    tls_key: str | None = _option(None, str, "tls.key")
    connect_timeout_ms: int = _option(5_000, _whole(1))
    read_timeout_ms: int = _option(30_000, _whole(1))
    retries: int = _option(5, _whole(0))
    retry_interval_ms: int = _option(200, _whole(1))

    def __post_init__(self) -> None:
        """An address without a scheme is one of TCP.

        Raises `OptionError` for a wrong address, and for files of TLS with one without TLS.
        """
        if "://" not in self.url:
            object.__setattr__(self, "url", f"redis://{self.url}")
        # The text is not shown, because a password may be in it.
        try:
            known = self.url.startswith(("redis://", "rediss://", "unix://"))
            _ = urlsplit(self.url).port
        except ValueError:
            known = False
        if not known:
            raise OptionError(
                "option url: redis://host:port is needed, rediss://host:port for TLS, or "
                "unix:///path, with a port below 65536; in a password / is %2F, : is %3A, @ is %40"
            )
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
    subscribe: tuple[str, ...] = _option((), _names)
    pattern: str | None = _option(None, str, "subscribePattern")
    assign: Mapping[str, tuple[str, ...]] | None = _option(None, _assignment)
    regions: tuple[str, ...] | None = _option(None, _regions)
    starting_offsets: str | None = _option()
    ending_offsets: str | None = _option(only="batch")
    starting_timestamp: int | None = _option(None, _whole(0))
    ending_timestamp: int | None = _option(None, _whole(0), only="batch")
    max_entries: int | None = _option(
        None, _whole(1), "maxEntriesPerTrigger", "maxOffsetsPerTrigger", only="streaming"
    )
    max_bytes: int | None = _option(None, _size, "maxBytesPerTrigger", only="streaming")
    min_entries: int | None = _option(None, _whole(1), "minEntriesPerTrigger", only="streaming")
    max_trigger_delay_ms: int = _option(
        15 * 60_000, _duration_ms, "maxTriggerDelay", only="streaming"
    )
    min_partitions: int | None = _option(None, _whole(1))
    max_records_per_partition: int | None = _option(None, _whole(1))
    fail_on_data_loss: bool = _option(True, _boolean)
    catch_up_timeout_ms: int = _option(60_000, _duration_ms, "catchUpTimeout")
    allow_subscription_change: bool = _option(False, _boolean, only="streaming")
    poll_timeout_ms: int = _option(200, _whole(0), only="streaming")
    frontier_interval_ms: int | None = _option(
        None, _duration_ms, "frontierInterval", only="streaming"
    )
    changes: bool = _option(False, _boolean)
    discovery_interval_ms: int = _option(10_000, _whole(0), only="streaming")
    commit_group: str | None = _option(only="streaming")
    mode: str = _option("PERMISSIVE", _one_of("PERMISSIVE", "FAILFAST", "DROPMALFORMED"))
    corrupt_column: str | None = _option(None, str, "columnNameOfCorruptRecord")
    field_mapping: Mapping[str, str] = _option(dict, _mapping)
    max_batch_bytes: int = _option(8 << 20, _size)
    export_codec: str = _option("nodes", _one_of("nodes", "none", "zstd"))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a batch or stream read; raises `OptionError`."""
        server, own = _split(options, cls)
        if not options:
            raise OptionError(
                _NONE_CAME.format(
                    "SELECT ... FROM table WITH (url = 'redis://host:6379', subscribe = 'orders'), "
                    "or CREATE TEMPORARY VIEW ... USING anabranch OPTIONS (...)"
                )
            )
        chosen = [name for name in ("subscribe", "pattern", "assign") if own.get(name)]
        if len(chosen) != 1:
            said = "none was" if not chosen else "several were"
            raise OptionError(
                "name the streams by exactly one of the options subscribe (comma-separated keys), "
                f"subscribePattern (a glob) and assign (JSON); {said} given"
            )
        if own.get("frontier_interval_ms") is not None and "pattern" in own:
            raise OptionError(
                "frontierInterval is for streams that are named (subscribe, assign): a stream that "
                "a pattern finds later may have older entries"
            )
        for end in ("starting", "ending"):
            if f"{end}_timestamp" in own and f"{end}_offsets" in own:
                raise OptionError(f"{end}Timestamp and {end}Offsets exclude each other")
        return cls(server=server, **own)

    def check_kind(self, kind: str) -> None:
        """Raise `OptionError` for an option that a ``batch`` or ``streaming`` read lacks."""
        for each in fields(self):
            only = each.metadata.get("only")
            if only not in (None, kind) and getattr(self, each.name) != each.default:
                raise OptionError(
                    f"option {_shown(each)} is for {only} reads: a {kind} read "
                    + ("has no end" if kind == "streaming" else "is one batch, with no progress")
                )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write, and with which guarantee; `parse` makes one."""

    server: ServerOptions
    stream: str | None = _option(None, str, "stream", "topic")
    idempotence: str | None = _option(None, _one_of("ledger", "position", "none"))
    producer_id: str | None = _option()
    batch_id: int | None = _option(None, _whole(0))
    sink_id: str = _option("0")
    lane_column: str | None = _option()
    allow_producer_change: bool = _option(False, _boolean)
    result_file: str | None = _option()
    deterministic_order: str = _option("trust", _one_of("trust", "sort"))
    max_len: int | None = _option(None, _whole(0))
    min_id: str | None = _option(None, _entry_id)
    trim: str = _option("~", _one_of("~", "="))
    max_rows_in_flight: int = _option(2_048, _whole(1))
    null_value: str | None = _option()
    preserve_ids: bool = _option(False, _boolean)
    field_mapping: Mapping[str, str] = _option(dict, _mapping)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a batch or stream write; raises `OptionError`."""
        server, own = _split(options, cls)
        if not options:
            raise OptionError(
                _NONE_CAME.format(
                    "INSERT INTO table WITH (url = 'redis://host:6379') ..., or "
                    "df.writeTo(table).options(...).append(); insertInto passes none either"
                )
            )
        if "max_len" in own and "min_id" in own:
            raise OptionError("maxLen and minId exclude each other: a stream is trimmed one way")
        return cls(server=server, **own)


# ----------------------------------------------------------------------------------------- names

_NONE_CAME: Final = (
    "no option came. Spark gives the options of CREATE TABLE to no source in Python: name them in "
    "the query, {}"
)

# Spark adds these to the options of a source or sink.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})


def _shown(option: Field[Any]) -> str:
    first, *words = option.name.split("_")
    return option.metadata["name"] or first + "".join(map(str.capitalize, words))


def _known(side: type) -> dict[str, tuple[str, str, Callable[[str], Any]]]:
    """By each name in lower case: the name to show, the field and what parses the text."""
    found = {}
    for each in (*fields(ServerOptions), *fields(side)):
        if each.metadata:
            name = _shown(each)
            for every in (name, *each.metadata["aliases"]):
                found[every.lower()] = name, each.name, each.metadata["parse"]
    return found


def _split(options: Mapping[str, str], side: type) -> tuple[ServerOptions, dict[str, Any]]:
    """The server's options as a value, those of `side` by field."""
    known = _known(side)
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name, text in options.items():
        if name.lower() in _SPARKS_OWN:
            continue
        if name.lower() not in known:
            raise OptionError(_unknown(name, side))
        shown, own, parse = known[name.lower()]
        if own in values:
            raise OptionError(f"options {said[own]} and {name} mean the same: give one of them")
        said[own] = name
        try:
            values[own] = parse(text)
        except OptionError as error:
            raise OptionError(f"option {shown}: {error}") from None
    of_server = {each.name for each in fields(ServerOptions)} & set(values)
    return ServerOptions(**{name: values.pop(name) for name in of_server}), values


def _unknown(name: str, side: type) -> str:
    if name.lower() == "path":
        wanted = "subscribe" if side is ReadOptions else "stream"
        return f"a stream has no path: name it with option {wanted}, and call the method bare"
    here = {each: shown for each, (shown, *_) in _known(side).items()}
    near = difflib.get_close_matches(name.lower(), here, n=1, cutoff=0.6)
    if near:
        return f"unknown option {name!r}: did you mean {here[near[0]]}?"
    return f"unknown option {name!r}; known are {', '.join(sorted(set(here.values())))}"
