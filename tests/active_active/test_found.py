"""Histories that once went wrong, cut down to what it takes."""

from __future__ import annotations

import pytest

from tests.active_active.life import Event, Life

FOUND: dict[str, tuple[int, str, str, list[Event]]] = {
    "pending again after SETID back, then SETID forward": (4, "strict", "keep", [
        ("unit", 3, ("DEL", b"b"), ("XADD", b"a", "*", "f", b"v1")),
        ("unit", 2, ("XGROUP", "CREATE", b"a", b"h", "0", "MKSTREAM"),
         ("XADD", b"c", "*", "f", b"v3"), ("XADD", b"b", "IDMP", "q", "i1", "*", "f", b"v4")),
        ("send", 2, 3, 3396728876),
        ("do", 3, "XREADGROUP", "GROUP", b"h", "c", "NOACK", "STREAMS", b"a", ">"),
        ("do", 3, "XGROUP", "SETID", b"a", b"h", "0"),
        ("do", 3, "XREADGROUP", "GROUP", b"h", "c", "COUNT", 3, "STREAMS", b"a", ">"),
        ("do", 3, "XGROUP", "SETID", b"a", b"h", "1030"),
    ]),
    "an acknowledgement of entries whose key expired meanwhile": (4, "liberal", "collapse", [
        ("do", 1, "XADD", b"a", "*", "f", b"v1"),
        ("do", 1, "PEXPIRE", b"a", 20),
        ("pass", 3, 30),
        ("send", 1, 4, 1001380245),
        ("do", 2, "XGROUP", "CREATE", b"a", b"g", "0", "MKSTREAM"),
        ("send", 2, 4, 1841940112),
        ("send", 1, 3, 3812202241),
        ("do", 4, "XREADGROUP", "GROUP", b"g", "c", "STREAMS", b"a", ">"),
        ("do", 4, "XGROUP", "CREATE", b"b", b"h", "0", "MKSTREAM"),
    ]),
    "a deadline that outlived the second FLUSHALL": (2, "semi-strict", "keep", [
        ("do", 2, "XGROUP", "CREATE", b"b", b"g", "1000", "MKSTREAM"),
        ("do", 2, "PEXPIRE", b"b", 60),
        ("do", 1, "FLUSHALL"),
        ("send", 2, 1, 909980527),
        ("send", 2, 1, 909980528),
        ("do", 1, "FLUSHALL"),
        ("do", 1, "XGROUP", "CREATE", b"b", b"h", "0", "MKSTREAM"),
    ]),
    "an entry added where counting had been forgotten": (2, "semi-strict", "keep", [
        ("unit", 2, ("XADD", b"c", "*", "f", b"v1"), ("XGROUP", "DESTROY", b"b", b"g")),
        ("unit", 2, ("DEL", b"c"), ("XGROUP", "CREATE", b"b", b"g", "$", "MKSTREAM")),
        ("send", 2, 1, 2168117762),
        ("row", 1, 2),
        ("do", 2, "XGROUP", "CREATE", b"c", b"g", "0", "MKSTREAM"),
        ("send", 1, 2, 3248911198),
        ("send", 2, 1, 2693890149),
        ("do", 1, "FLUSHALL"),
        ("send", 1, 2, 1647115096),
        ("do", 2, "XADD", b"c", "*", "f", b"v6"),
    ]),
    "the same after a second DEL": (2, "liberal", "collapse", [
        ("do", 2, "XADD", b"b", "1000-2", "f", b"v1"),
        ("send", 2, 1, 3323246393),
        ("do", 1, "DEL", b"b"),
        ("do", 1, "XADD", b"b", "*", "f", b"v3"),
        ("send", 1, 2, 3616285552),
        ("send", 1, 2, 1879753828),
        ("row", 1, 2),
        ("unit", 1, ("DEL", b"b")),
        ("send", 1, 2, 3137129627),
        ("do", 2, "XADD", b"b", "MAXLEN", "=", 5, "1003", "f", b"v14"),
    ]),
    "entries-added below nothing, after DEL": (2, "semi-strict", "keep", [
        ("unit", 1,
         ("XADD", b"b", "*", "f", b"v2"), ("XADD", b"c", "1002", "f", b"v3"), ("DEL", b"b")),
        ("send", 1, 2, 1721414029),
        ("do", 2, "XGROUP", "CREATE", b"b", b"g", "0", "MKSTREAM"),
        ("send", 2, 1, 4133687531),
        ("row", 2, 1),
        ("unit", 2, ("DEL", b"b"), ("XADD", b"b", "1006", "f", b"v6")),
        ("send", 2, 1, 2403913086),
    ]),
    "entries-added below nothing, after RENAMENX": (2, "liberal", "collapse", [
        ("do", 2, "XADD", b"b", "1031-0", "f", b"v22"),
        ("do", 1, "XADD", b"b", "*", "f", b"v24"),
        ("send", 2, 1, 3785777828),
        ("do", 2, "RENAMENX", b"b", b"a"),
        ("send", 2, 1, 952715478),
        ("send", 1, 2, 2195815023),
        ("row", 1, 2),
        ("do", 1, "FLUSHALL"),
        ("do", 2, "XSETID", b"b", "1035-2"),
        ("send", 1, 2, 2283937061),
    ]),
    "an entry added to a key whose deadline has come": (2, "liberal", "collapse", [
        ("do", 2, "XADD", b"c", "IDMP", "p", "i4", "*", "f", b"v28"),
        ("pass", 2, 30),
        ("state", 2, 1),
        ("do", 1, "PEXPIRE", b"c", 3),
        ("send", 1, 2, 3949702509),
        ("do", 1, "PEXPIRE", b"c", 20),
        ("send", 1, 2, 2617899804),
        ("do", 2, "XADD", b"c", "MAXLEN", "~", 2, "*", "f", b"v46"),
    ]),
    "an entry delivered here, acknowledged there, claimed here": (3, "liberal", "collapse", [
        ("do", 3, "XADD", b"a", "1001-2", "f", b"v2"),
        ("send", 3, 1, 2726051654),
        ("do", 1, "XADD", b"c", "*", "f", b"v5"),
        ("do", 1, "XDEL", b"a", b"1001-2"),
        ("unit", 1, ("XDEL", b"c", b"1000-1"), ("XADD", b"b", "MINID", 998, "*", "f", b"v7")),
        ("do", 1, "XADD", b"b", "1004-*", "f", b"v10"),
        ("do", 3, "XADD", b"a", "KEEPREF", "MAXLEN", "~", 1, "*", "f", b"v11"),
        ("do", 3, "XGROUP", "CREATE", b"a", b"g", "0", "MKSTREAM"),
        ("do", 1, "XADD", b"c", "*", "f", b"v12"),
        ("do", 3, "XREADGROUP", "GROUP", b"g", "c", "COUNT", 3, "STREAMS", b"a", ">"),
        ("do", 1, "XADD", b"a", "KEEPREF", "MAXLEN", "=", 4, "1001-*", "f", b"v14"),
        ("do", 3, "XACK", b"a", b"g", b"1001-3"),
        ("do", 3, "XACK", b"a", b"g", b"1001-2"),
        ("send", 1, 3, 2512088674),
        ("send", 3, 2, 3292100685),
        ("do", 2, "XREADGROUP", "GROUP", b"g", "d", "COUNT", 3, "STREAMS", b"a", ">"),
        ("send", 3, 2, 1519490003),
        ("do", 2, "XAUTOCLAIM", b"a", b"g", "d", 0, "-"),
    ]),
    "an acknowledgement that came with a state after XGROUP SETID": (4, "strict", "collapse", [
        ("unit", 1, ("DEL", b"a"), ("XADD", b"b", "1000", "f", b"v1")),
        ("unit", 1,
         ("DEL", b"b"), ("XADD", b"b", "*", "f", b"v2"),
         ("XGROUP", "CREATE", b"a", b"h", "0", "MKSTREAM")),
        ("do", 4, "XADD", b"b", "1001", "f", b"v3"),
        ("do", 2, "XADD", b"a", "*", "f", b"v4"),
        ("send", 1, 3, 3928665052),
        ("do", 3, "COPY", b"b", b"c"),
        ("do", 1, "COPY", b"a", b"b", "REPLACE"),
        ("send", 3, 2, 2892331452),
        ("send", 4, 3, 366071136),
        ("send", 3, 2, 159904405),
        ("do", 2, "XADD", b"b", "*", "f", b"v5"),
        ("send", 1, 3, 2059489050),
        ("send", 2, 1, 2127248882),
        ("state", 2, 3),
        ("do", 3, "XREADGROUP", "GROUP", b"h", "d", "STREAMS", b"b", ">"),
        ("do", 3, "XACK", b"b", b"h", b"1001-258", b"1001-4"),
        ("do", 1, "XGROUP", "SETID", b"b", b"h", "0"),
        ("state", 3, 1),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_it_does_not_go_wrong_again(name: str) -> None:
    regions, mode, conflict, events = FOUND[name]
    life = Life(regions, mode, conflict)
    for event in events:
        life.run(event)
        for node in life.mesh.nodes.values():
            life.check(node)
        life.check_equals()
    life.finish()
