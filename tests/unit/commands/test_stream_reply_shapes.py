"""The shape of every reply in RESP2 and RESP3 (specification §2.4, §2.5 and all reply columns)."""

from __future__ import annotations

import pytest

from anabranch.resp.encode import encode
from anabranch.resp.values import Map
from tests.support.streams import BOTH_PROTOCOLS, Streams

_SHAPES_SETUP = (
    "XADD s 1-0 f v",
    "XADD s 2-0 f v",
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s new 0",
    "XGROUP CREATE empty g 0 MKSTREAM",
    "XREADGROUP GROUP g c STREAMS s >",
    "XDEL s 1-0",
)

NULLS = [
    ("XADD missing NOMKSTREAM * f v", "$-1", "_"),
    ("XRANGE s - + COUNT 0", "*-1", "_"),
    ("XRANGE s - + COUNT -5", "*-1", "_"),
    ("XREVRANGE s + - COUNT 0", "*-1", "_"),
    ("XRANGE empty - + COUNT 0", "*-1", "_"),
    ("XRANGE missing - + COUNT 0", "[]", "[]"),
    ("XRANGE missing - +", "[]", "[]"),
    ("XREVRANGE missing + -", "[]", "[]"),
    ("XRANGE s 5 +", "[]", "[]"),
    ("XRANGE s + -", "[]", "[]"),
    ("XREVRANGE s - +", "[]", "[]"),
    ("XREAD STREAMS s $", "*-1", "_"),
    ("XREAD STREAMS missing 0", "*-1", "_"),
    ("XREADGROUP GROUP g c STREAMS s >", "*-1", "_"),
    ("XREADGROUP GROUP g c STREAMS s 0", "[['s', [['1-0', *-1], ['2-0', ['f', 'v']]]]]",
     "{'s': [['1-0', _], ['2-0', ['f', 'v']]]}"),
    ("XREADGROUP GROUP g d STREAMS s 0", "[['s', []]]", "{'s': []}"),
    ("XPENDING empty g", "[0, $-1, $-1, *-1]", "[0, _, _, _]"),
    ("XPENDING s g", "[2, '1-0', '2-0', [['c', '2']]]", "[2, '1-0', '2-0', [['c', '2']]]"),
    ("XCLAIM s g c 0 9-9", "[]", "[]"),
    ("XCLAIM s g c 0 2-0 JUSTID", "['2-0']", "['2-0']"),
    ("XAUTOCLAIM s g c 99999 2-0", "['0-0', [], []]", "['0-0', [], []]"),
    ("XAUTOCLAIM s g c 0 - JUSTID", "['0-0', ['2-0'], ['1-0']]", "['0-0', ['2-0'], ['1-0']]"),
    ("XINFO GROUPS empty",
     "[['name', 'g', 'consumers', 0, 'pending', 0, 'last-delivered-id', '0-0', "
     "'entries-read', $-1, 'lag', 0]]",
     "[{'name': 'g', 'consumers': 0, 'pending': 0, 'last-delivered-id': '0-0', "
     "'entries-read': _, 'lag': 0}]"),
    ("XRANGE s - +", "[['2-0', ['f', 'v']]]", "[['2-0', ['f', 'v']]]"),
    ("XREVRANGE s + -", "[['2-0', ['f', 'v']]]", "[['2-0', ['f', 'v']]]"),
    ("XREAD STREAMS s missing 0 0", "[['s', [['2-0', ['f', 'v']]]]]",
     "{'s': [['2-0', ['f', 'v']]]}"),
    ("XREAD STREAMS s s 0 0",
     "[['s', [['2-0', ['f', 'v']]]], ['s', [['2-0', ['f', 'v']]]]]",
     "{'s': [['2-0', ['f', 'v']]], 's': [['2-0', ['f', 'v']]]}"),
    ("XREADGROUP GROUP new c STREAMS s >", "[['s', [['2-0', ['f', 'v']]]]]",
     "{'s': [['2-0', ['f', 'v']]]}"),
    ("XREADGROUP GROUP g d CLAIM 0 STREAMS s >", "[['s', [['2-0', ['f', 'v'], 0, 1]]]]",
     "{'s': [['2-0', ['f', 'v'], 0, 1]]}"),
    ("XPENDING s g - + 1", "[['1-0', 'c', 0, 1]]", "[['1-0', 'c', 0, 1]]"),
    ("XLEN s", "1", "1"),
    ("XLEN missing", "0", "0"),
    ("XADD s 9-0 f v", "'9-0'", "'9-0'"),
    ("XSETID s 9-0", "+OK", "+OK"),
    ("XCFGSET s IDMP-MAXSIZE 5", "+OK", "+OK"),
    ("XIDMPRECORD s p i 2-0", "+OK", "+OK"),
    ("XGROUP CREATE s h $", "+OK", "+OK"),
    ("XGROUP SETID s g $", "+OK", "+OK"),
    ("XGROUP DESTROY s g", "1", "1"),
    ("XDELEX s IDS 2 1-0 2-0", "[-1, 1]", "[-1, 1]"),
    ("XACKDEL s g IDS 2 1-0 7-0", "[1, -1]", "[1, -1]"),
    ("XNACK s g FAIL IDS 1 2-0", "1", "1"),
    ("XIDMP CFGGET s", "['duration', 100, 'maxsize', 100]", "{'duration': 100, 'maxsize': 100}"),
]  # fmt: skip


@pytest.mark.parametrize("row", NULLS, ids=[row[0] for row in NULLS])
@BOTH_PROTOCOLS
def test_the_shape_of_every_reply(row: tuple[str, str, str], resp3: bool) -> None:
    """§2.4, §2.5, and the reply columns of §3-§5."""
    s = Streams()
    s.run(*_SHAPES_SETUP)
    line, resp2_shape, resp3_shape = row
    assert s.shows(line, s.connect(resp3=resp3)) == (resp3_shape if resp3 else resp2_shape)


@BOTH_PROTOCOLS
def test_a_transaction_broken_by_watch_is_null(resp3: bool) -> None:
    """§2.4."""
    s = Streams()
    mine = s.connect(resp3=resp3)
    s.run("WATCH s", session=mine)
    s.run("XADD s * f v")
    s.run("MULTI", "XLEN s", session=mine)
    assert s.shows("EXEC", mine) == ("_" if resp3 else "*-1")


def test_a_map_may_carry_the_same_key_twice() -> None:
    """§2.5: that is why some replies are no dictionaries inside."""
    assert encode(Map([(b"k", 1), (b"k", 2)]), True) == b"%2\r\n$1\r\nk\r\n:1\r\n$1\r\nk\r\n:2\r\n"
