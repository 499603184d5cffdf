r"""Effects, records and entries as lines of JSON.

Bytes become strings: UTF-8 as it is, any other byte as ``\xHH``, and a backslash doubled, so that
the string shows the bytes unambiguously.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from anabranch.effects import kinds
from anabranch.effects.codec import additions
from anabranch.oplog import snapshot as records
from anabranch.oplog.inspection import SeenRecord
from anabranch.resp.values import read_value
from anabranch.stream import entry_id as ids
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.frozen import StreamBuilder


def as_json(value: Any) -> str:
    """One value as JSON on one line, complete."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
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


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    repr(kinds.EntryId): id_text,
    repr(kinds.EntryId | None): lambda value: None if value is None else id_text(value),
    repr(kinds.EntryIds): lambda value: list(map(id_text, value)),
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
    return list(map(_fields, additions(effect) if isinstance(effect, kinds.AddRun) else [effect]))


def _fields(effect: kinds.Effect) -> tuple[str, dict[str, Any]]:
    found: dict[str, Any] = {}
    for name, form in _forms_of(type(effect)).items():
        value = getattr(effect, name)
        if name == "position" and value < 0:
            continue  # a server on its own does not write it
        if isinstance(effect, kinds.Add) and name == "fragment":
            found["fields"] = read_value(value)[1]
        elif name.endswith("_ms"):
            found[name.removesuffix("_ms")] = when(value)
        else:
            found[name] = form(value)
    return type(effect).__name__, found


# -- records of a snapshot --------------------------------------------------------------------

_RECORDS: Final = (
    "REPLICA STRING LIST SET STREAM PENDING BLOCKS USER END LIBRARY DELETED LAST_EFFECTS "
    "LAST_POSITIONS POLICIES SCHEDULED ADDITIONS SHARED_VALUE ELEMENTS"
).split()
"""Their names by number, as in the table of docs/formats.md."""


def record_fields(record: SeenRecord) -> tuple[str, dict[str, Any]]:
    """Name and fields of a record, as docs/formats.md lists them; blocks as their entries."""
    kind, *values = record.fields
    of_key = {} if record.key is None else {"db": record.database, "key": record.key}
    if kind == records.BLOCKS:
        found = {"region": values[0], "entries": _entries(record.head, values)}
    else:
        found = {"values": values}
    return _RECORDS[kind], of_key | found


def _entries(head: list[Any], values: list[Any]) -> list[dict[str, Any]]:
    """Live entries, ascending, of blocks of a region of the stream with this head."""
    counters, producers, logs, _, *rest = head
    # The stream without the parts that its entries do not need.
    builder = StreamBuilder([counters, [*producers[:4], []], logs, [], *rest])
    builder.add_blocks(values)
    return [
        {"id": id_text(entry), "fields": read_value(fragment)[1]}
        for block, low, high in builder.stream.spans(MIN_ID, MAX_ID)
        for entry, fragment in zip(block.ids[low:high], block.fragments(low, high), strict=True)
    ]
