"""What `anabranch inspect` shows of values, and how far it is."""

from __future__ import annotations

import builtins
import json
import re
import types
import typing
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from anabranch.cli.inspect_values import as_json, effect_fields, record_fields, when
from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from anabranch.oplog import snapshot as records
from anabranch.oplog.inspection import SeenRecord
from tests.support.servers import REPOSITORY


@pytest.mark.parametrize(
    "value", [b"", b"plain", "ä€😀".encode(), b"\\", b"\\xff", b"\xff", bytes(range(256)), b'"\n']
)
def test_bytes_can_be_had_back_from_json(value: bytes) -> None:
    text: str = json.loads(as_json(value))
    back = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            back += text[at].encode()
            at += 1
        elif text[at + 1] == "\\":
            back += b"\\"
            at += 2
        else:
            assert text[at + 1] == "x"
            back.append(int(text[at + 2 : at + 4], 16))
            at += 4
    assert bytes(back) == value


def test_times_beyond_the_calendar_stay_numbers() -> None:
    assert when(1700000000123) == "2023-11-14T22:13:20.123+00:00"
    assert when((1 << 63) - 1) == "9223372036854775807ms"
    assert when(None) is None


ENTRY_ID = 7777 << 64


def sample(hint: Any) -> Any:
    """A value of a declared type of an effect."""
    if get_origin(hint) is Annotated:
        of, meta = get_args(hint)
        ids = {"entry ID": ENTRY_ID, "entry IDs": [ENTRY_ID]}
        return ids[meta.title] if getattr(meta, "title", None) in ids else sample(of)
    if hint in (int, bytes, bool, str):
        return {int: 3, bytes: b"b", bool: True, str: "set"}[hint]
    of, *others = get_args(hint)
    match get_origin(hint):
        case types.UnionType | typing.Union:
            return sample(of)
        case builtins.tuple:
            return tuple(map(sample, (of, *others)))
        case builtins.dict:
            return {sample(of): sample(others[0])}
        case _:
            return [sample(of)]


@pytest.mark.parametrize("kind", EFFECTS, ids=lambda kind: kind.__name__)
def test_every_kind_can_be_shown(kind: type[kinds.Effect]) -> None:
    hints = get_type_hints(kind, include_extras=True)
    values = {name: sample(hints[name]) for name in kind.__struct_fields__}
    entry = b"*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
    if kind is kinds.Add:
        values["fragment"] = entry
    if kind is kinds.AddRun:
        values |= {"data": entry, "sizes": [len(entry)]}
    for name, fields in effect_fields(kind(**values)):
        assert name == ("Add" if kind is kinds.AddRun else kind.__name__)
        assert kind is kinds.AddRun or len(fields) == len(values)
        text = as_json(fields)
        assert json.loads(text)
        assert str(ENTRY_ID) not in text
        assert ("7777-0" in text) == ("entry ID" in repr(hints))


def test_a_run_is_shown_as_its_additions() -> None:
    fragments = [
        b"*2\r\n$3\r\n%d-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n" % number for number in (1, 2, 3)
    ]
    run = kinds.AddRun(
        2,
        b"s",
        [number << 64 for number in (1, 2, 3)],
        b"".join(fragments),
        list(map(len, fragments)),
        [7, 8, 9],
        [0, 2],
    )
    assert [name for name, _ in effect_fields(run)] == ["Add"] * 3
    assert [fields for _, fields in effect_fields(run)] == [
        {
            "db": 2,
            "key": b"s",
            "entry_id": f"{number}-0",
            "fields": [b"f", b"v"],
            "weight": number + 6,
            "opens": number != 2,
        }
        for number in (1, 2, 3)
    ]


def test_records_have_the_names_and_fields_of_the_page() -> None:
    page = (REPOSITORY / "docs/formats.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \| [^|]+ \|$", page, re.MULTILINE)
    names = {int(number): name for number, name in rows if name in vars(records)}
    assert sorted(names) == list(range(max(names) + 1))
    for number, name in names.items():
        assert vars(records)[name] == number
        if number != records.BLOCKS:
            seen = SeenRecord(0, 9, [number, 1, {b"k": b"\xff"}], 3, b"key", [])
            shown, fields = record_fields(seen)
            assert shown == name
            assert json.loads(as_json(fields)) == {
                "db": 3,
                "key": "key",
                "values": [1, {"k": r"\xff"}],
            }
