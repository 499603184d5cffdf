r"""Effects, records and entries for people and for programs.

A value becomes plain things first (integers, text, bytes, lists, dictionaries), and those one of
two forms. As text, bytes stand in quotes as redis-cli shows them, and what is long is shortened. In
JSON bytes are strings: UTF-8 as it is, any other byte as ``\xHH``, and a backslash doubled, so that
the string shows the bytes unambiguously.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final, get_args, get_type_hints

from hiredis import Reader

from anabranch.effects import kinds
from anabranch.engine.dispatch import quoted
from anabranch.oplog import snapshot as records
from anabranch.oplog.inspection import SeenRecord
from anabranch.stream import entry_id as ids
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.frozen import StreamBuilder
from anabranch.stream.shared import Shared
from anabranch.stream.stream import Stream

BYTES_SHOWN: Final = 64
"""The most bytes of one value, without ``full``."""

ITEMS_SHOWN: Final = 8
"""The most items of one list, without ``full``."""


# -- the two forms ----------------------------------------------------------------------------


def as_text(value: Any, *, full: bool) -> str:
    """A value on one line; long ones are shortened unless ``full``."""
    if isinstance(value, bytes):
        if full or len(value) <= BYTES_SHOWN:
            return quoted(value).decode("ascii")
        return f"{quoted(value[:BYTES_SHOWN]).decode('ascii')}...({len(value)} bytes)"
    if isinstance(value, dict):
        return "{" + " ".join(_pairs(value, full=full)) + "}"
    if isinstance(value, list | tuple):
        shown = value if full else value[:ITEMS_SHOWN]
        words = [as_text(each, full=full) for each in shown]
        if len(shown) < len(value):
            words.append(f"...({len(value)} in all)")
        return "[" + " ".join(words) + "]"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def in_pieces(fields: dict[str, Any], *, full: bool) -> str:
    """Fields of an effect or a record as ``name=value`` words."""
    return " ".join(_pairs(fields, full=full))


def _pairs(fields: dict[str, Any], *, full: bool) -> Iterator[str]:
    return (f"{name}={as_text(value, full=full)}" for name, value in fields.items())


def as_json(value: Any) -> str:
    """One value as JSON on one line, complete."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def when(ms: int | None) -> str | None:
    """Wall-clock milliseconds as ISO 8601; beyond the calendar the number, None for none."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms}ms"


def id_text(entry_id: int) -> str:
    """An entry ID as ``ms-seq``."""
    return ids.text(entry_id).decode("ascii")


# -- effects ----------------------------------------------------------------------------------


def _rows(rows: Iterable[tuple[int, int, int, int]]) -> list[dict[str, Any]]:
    return [
        {"id": id_text(entry), "region": region, "delivered": when(ms), "count": count}
        for entry, region, ms, count in rows
    ]


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    repr(kinds.EntryId): id_text,
    repr(kinds.EntryId | None): lambda value: None if value is None else id_text(value),
    repr(kinds.EntryIds): lambda value: list(map(id_text, value)),
    repr(list[tuple[kinds.EntryId, int, int, int]]): _rows,
}
"""By the declared type of a field, for fields with entry IDs."""


def _form_of(hint: Any) -> Callable[[Any], Any]:
    """How a value of a declared type is shown: entry IDs, also within rows, as text."""
    known = _FORMS.get(repr(hint))
    if known is not None:
        return known
    if "entry ID" not in repr(hint):
        return lambda value: value
    (row,) = get_args(hint)  # a list of rows
    forms = list(map(_form_of, get_args(row)))
    return lambda rows: [
        [form(value) for form, value in zip(forms, each, strict=True)] for each in rows
    ]


@cache
def _forms_of(kind: type[kinds.Effect]) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _form_of(hints[name]) for name in kind.__struct_fields__}


def effect_fields(effect: kinds.Effect) -> list[tuple[str, dict[str, Any]]]:
    """Name and fields of an effect; an :class:`kinds.AddRun` is its additions, one by one."""
    if isinstance(effect, kinds.AddRun):
        ends = [0, *accumulate(effect.sizes)]
        fragments = [effect.data[low:high] for low, high in pairwise(ends)]
        adds = zip(effect.ids, fragments, effect.weights, strict=True)
        opens = set(effect.opens)
        first = effect.position
        return [
            _fields(
                kinds.Add(
                    *(effect.db, effect.key, entry, fragment, weight, index in opens),
                    position=first + index if first >= 0 else first,
                )
            )
            for index, (entry, fragment, weight) in enumerate(adds)
        ]
    return [_fields(effect)]


def _fields(effect: kinds.Effect) -> tuple[str, dict[str, Any]]:
    found: dict[str, Any] = {}
    for name, form in _forms_of(type(effect)).items():
        value = getattr(effect, name)
        if name == "position" and value < 0:
            continue  # a server on its own does not write it
        if isinstance(effect, kinds.Add) and name == "fragment":
            found["fields"] = _entry_fields(value)
        elif isinstance(effect, kinds.SetLibrary) and name == "functions":
            found[name] = [function for function, _, _ in value]
        elif name.endswith("_ms"):
            found[name.removesuffix("_ms")] = when(value)
        else:
            found[name] = form(value)
    return type(effect).__name__, found


# -- entries ----------------------------------------------------------------------------------


def _entry_fields(fragment: bytes) -> list[bytes]:
    """Fields and values, one after the other, of an entry in the form of replies."""
    reader = Reader()
    reader.feed(fragment)
    _, fields = reader.gets()
    return list(fields)


def _entries_of(stream: Stream) -> Iterator[dict[str, Any]]:
    """Live entries, ascending."""
    for block, low, high in stream.spans(MIN_ID, MAX_ID):
        for entry, fragment in zip(block.ids[low:high], block.fragments(low, high), strict=True):
            yield {"id": id_text(entry), "fields": _entry_fields(fragment)}


# -- records ----------------------------------------------------------------------------------

_VALUES: Final = {
    records.STRING: ("string", "value"),
    records.LIST: ("list", "items"),
    records.SET: ("set", "members"),
}


def record_fields(record: SeenRecord, *, full: bool) -> tuple[str, dict[str, Any]]:
    """Name and fields of a record; entries one by one only if ``full``."""
    kind, *values = record.fields
    found: dict[str, Any] = {}
    if record.key is not None:
        found |= {"db": record.database, "key": record.key}
    if kind == records.REPLICA:
        names = ("region", "epoch", "next_number", "taken", "next_incarnation")
        found |= dict(zip(names, values, strict=False))
        found["taken"] = when(found["taken"])
        return "origin", found
    if kind == records.USER:
        return "user", dict(zip(("name", "line"), values, strict=False))
    if kind == records.LIBRARY:
        name, _, functions = values
        return "library", {"name": name, "functions": [each for each, _, _ in functions]}
    if kind == records.DELETED:
        database, *maps = values
        heads = {key: head for rows in maps for key, head in rows.items()}
        return "deleted keys", {"db": database, "keys": list(heads) if full else len(heads)}
    if kind == records.LAST_EFFECTS:
        database, *maps = values
        return "last effects", {"db": database, "keys": sum(map(len, maps))}
    if kind == records.LAST_POSITIONS:
        database, ended_ms, *maps = values
        found = {"db": database, "keys": sum(map(len, maps))}
        return "last positions", found | ({"until": when(ended_ms)} if ended_ms else {})
    if kind == records.BLOCKS:
        return "blocks", found | _blocks(record, full=full)
    if kind == records.PENDING:
        return "pending", found | _pending(record)
    found["deadline"] = when(values[2])
    if kind == records.STREAM:
        return "stream", found | _head(StreamBuilder(record.head).stream)
    if kind == records.SHARED_STRING:
        return "string", found | {"value": Shared.restored(values[3]).string}
    name, field = _VALUES[kind]
    return name, found | {field: values[3]}


def _head(stream: Stream) -> dict[str, Any]:
    producers = stream.producers
    return {
        "last-generated-id": id_text(stream.last_id),
        "max-deleted-entry-id": id_text(stream.max_deleted_id),
        "entries-added": stream.entries_added,
        "idmp-duration": producers.duration_s,
        "idmp-maxsize": producers.maxsize,
        "pids-tracked": len(producers.tables),
        "iids-tracked": producers.tracked,
        "iids-added": producers.iids_added,
        "iids-duplicates": producers.duplicates,
        "groups": [
            {
                "name": name,
                "last-delivered-id": id_text(group.progress.last_delivered_id),
                "entries-read": group.progress.entries_read,
                "consumers": list(group.consumers),
            }
            for name, group in stream.groups.items()
        ],
        "producers": [
            {
                "pid": pid,
                "iids": [
                    {"iid": iid, "id": id_text(entry), "at": when(ms)}
                    for iid, (entry, ms) in table.items()
                ],
            }
            for pid, table in producers.tables.items()
        ],
        "bulk-producers": [
            {
                "pid": pid,
                "batch": record.batch,
                "rows": record.rows,
                "crc": record.crc,
                "at": when(record.at_ms),
            }
            for pid, record in stream.ledger.records.items()
        ],
        "incarnation": stream.incarnation,
    }


def _pending(record: SeenRecord) -> dict[str, Any]:
    index, region, names, milliseconds, sequences, owners, times, counts = record.fields[1:9]
    return {
        "group": record.head[3][index][0],
        "region": region,
        "entries": [
            {
                "id": f"{ms}-{seq}",
                "consumer": names[owner] if owner >= 0 else None,
                "delivered": when(time_ms),
                "count": count,
            }
            for ms, seq, owner, time_ms, count in zip(
                milliseconds, sequences, owners, times, counts, strict=True
            )
        ],
    }


def _blocks(record: SeenRecord, *, full: bool) -> dict[str, Any]:
    counters, producers, logs, _, *rest = record.head
    # The stream without the parts that its entries do not need.
    builder = StreamBuilder([counters, [*producers[:4], []], logs, [], *rest])
    region, blocks = record.fields[1:3]
    builder.add_blocks([region, blocks])
    stream = builder.stream
    found: dict[str, Any] = {"region": region, "blocks": len(blocks)}
    if full:
        return found | {"entries": list(_entries_of(stream))}
    return found | {
        "entries": sum(block.live for block in stream.logs[region].blocks),
        "first": id_text(stream.first_id),
        "last": id_text(stream.last_live_id),
    }
