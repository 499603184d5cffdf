"""What `anabranch inspect` shows of values, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_type_hints

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


SAMPLES = {
    int: 3,
    int | None: None,
    bytes: b"b",
    bytes | None: None,
    bool: True,
    str: "set",
    list[int]: [],
    Sequence[int]: [],
    list[bytes]: [b"b"],
    list[tuple[bytes, bytes, list[bytes]]]: [(b"f", b"", [b"no-writes"])],
    list[tuple[int, int]]: [(0, 5)],
    list[tuple[int, int, int, int]]: [(1 << 64, 0, 5, 1)],
}


@pytest.mark.parametrize(
    "kind", [kind for kind, row in EFFECTS.items() if row.alone], ids=lambda kind: kind.__name__
)
def test_every_kind_can_be_shown(kind: type[kinds.Effect]) -> None:
    hints = get_type_hints(kind)  # without the annotations
    values = {name: SAMPLES[hints[name]] for name in kind.__struct_fields__}
    if kind is kinds.Add:
        values["fragment"] = b"*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
    for name, fields in effect_fields(kind(**values)):
        assert name == kind.__name__
        assert len(fields) == len(values)
        assert json.loads(as_json(fields))
        assert "18446744073709551616" not in in_pieces(fields, full=True)


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
