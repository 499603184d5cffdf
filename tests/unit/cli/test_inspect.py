"""What `anabranch inspect` shows of values, and how far it is."""

from __future__ import annotations

import builtins
import json
import types
import typing
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from anabranch.cli.inspect_values import as_json, as_text, effect_fields, in_pieces, when
from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS

TEXTS = {
    b"plain": '"plain"',
    b'"\\\n\r\t\a\b\x00\xff': r'"\"\\\n\r\t\a\b\x00\xff"',
    "ä".encode(): r'"\xc3\xa4"',
    b"x" * 64: '"' + "x" * 64 + '"',
    b"x" * 65: '"' + "x" * 64 + '"...(65 bytes)',
}


@pytest.mark.parametrize("value", TEXTS)
def test_bytes_look_as_in_redis_cli(value: bytes) -> None:
    assert as_text(value, full=False) == TEXTS[value]
    assert "..." not in as_text(value, full=True)


def test_lists_are_shortened_unless_in_full() -> None:
    assert as_text([1, b"a", None, True], full=False) == '[1 "a" none yes]'
    assert as_text(list(range(9)), full=False) == "[0 1 2 3 4 5 6 7 ...(9 in all)]"
    assert as_text(list(range(9)), full=True) == "[0 1 2 3 4 5 6 7 8]"
    assert in_pieces({"a": {"b": [b"c"]}, "d": 1}, full=False) == 'a={b=["c"]} d=1'


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
        assert json.loads(as_json(fields))
        text = in_pieces(fields, full=True)
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
    assert [in_pieces(fields, full=False) for _, fields in effect_fields(run)] == [
        f'db=2 key="s" entry_id={number}-0 fields=["f" "v"] weight={number + 6} opens={opens}'
        for number, opens in ((1, "yes"), (2, "no"), (3, "yes"))
    ]
