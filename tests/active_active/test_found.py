"""Histories that once went wrong, cut down to what it takes."""

from __future__ import annotations

import pytest

from tests.active_active.checked_cluster import CheckedCluster, Event
from tests.support.mesh import Mesh

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
    "a deadline of another region that met what was restored": (2, "strict", "keep", [
        ("do", 1, "XADD", b"a", "*", "f", b"v1"),
        ("do", 1, "XADD", b"c", "*", "f", b"v2"),
        ("send", 1, 2, 1),
        ("do", 2, "PEXPIRE", b"a", 20),
        ("do", 1, "DEL", b"a"),
        ("send", 2, 1, 2),
        ("pass", 1, 30),
        ("carry", 1, b"c", 1, b"a"),
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
        ("full sync", 2, 1),
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
    "an ID of before a power failure, given out beside another region's later epoch": (
        3, "strict", "collapse", [
        ("fail", 1),
        ("do", 1, "XADD", b"a", "*", "f", b"v1"),
        ("send", 1, 2, 1),
        ("send", 1, 2, 2),
        ("do", 2, "XADD", b"a", "*", "f", b"v2"),
        ("send", 1, 3, 1),
        ("send", 1, 3, 2),
        ("send", 2, 3, 1),
        ("fail", 2),
        ("do", 2, "XADD", b"a", "*", "f", b"v3"),
    ]),
    "a full sync that was sent while its newest entries became more": (3, "liberal", "collapse", [
        ("cut", 2, 3),
        ("do", 3, "XADD", b"b", "*", "f", b"v15"),
        ("forget", 3, 2777165732),
        ("do", 2, "XADD", b"b", "IDMP", "p", "i2", "*", "f", b"v26"),
        ("cut", 3, 2),
        ("send", 3, 2, 2893012156),
        ("send", 2, 1, 3923746064),
        ("do", 2, "XADD", b"b", "ACKED", "MAXLEN", "~", 4, "*", "f", b"v68"),
        ("begin", 1, 3),
        ("send", 2, 1, 4270161115),
        ("more", 3, 1000),
    ]),
    "two pending entries of one ID, both trimmed, claimed": (3, "liberal", "collapse", [
        ("unit", 3, ("XADD", b"a", "IDMP", "q", "i1", "*", "f", b"v2"),
         ("XADD", b"b", "1000-1", "f", b"v3")),
        ("unit", 1, ("XGROUP", "CREATE", b"b", b"h", "0", "MKSTREAM"),
         ("XADD", b"b", "IDMP", "p", "i4", "*", "f", b"v4"), ("XADD", b"b", "*", "f", b"v5")),
        ("send", 3, 2, 3410561922),
        ("send", 3, 1, 3119487397),
        ("send", 1, 2, 2043810393),
        ("do", 2, "XREADGROUP", "GROUP", b"h", "c", "COUNT", 3, "STREAMS", b"b", ">"),
        ("do", 2, "XTRIM", b"b", "MAXLEN", "=", 0),
        ("do", 2, "XCLAIM", b"b", b"h", "c", 0, b"1000-1"),
    ]),
    "an acknowledgement that came with a full sync after XGROUP SETID": (4, "strict", "collapse", [
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
        ("full sync", 2, 3),
        ("do", 3, "XREADGROUP", "GROUP", b"h", "d", "STREAMS", b"b", ">"),
        ("do", 3, "XACK", b"b", b"h", b"1001-258", b"1001-4"),
        ("do", 1, "XGROUP", "SETID", b"b", b"h", "0"),
        ("full sync", 3, 1),
    ]),
    "a deleted consumer took what another held under the same ID": (2, "semi-strict", "keep", [
        ("do", 1, "XGROUP", "CREATE", b"a", b"g", "0", "MKSTREAM"),
        ("do", 1, "XADD", b"a", "1000-2", "f", b"v1"),
        ("do", 2, "XADD", b"a", "1000", "f", b"v2"),
        ("do", 1, "XREADGROUP", "GROUP", b"g", "d", "STREAMS", b"a", ">"),
        ("do", 1, "XADD", b"a", "1004", "f", b"v12"),
        ("send", 2, 1, 3979712299),
        ("do", 1, "XREADGROUP", "GROUP", b"g", "c", "STREAMS", b"a", ">"),
        ("do", 1, "XGROUP", "DELCONSUMER", b"a", b"g", "d"),
        ("do", 1, "XACK", b"a", b"g", b"1004-1"),
    ]),
    "entries with one ID were released, and one of them forgotten": (2, "liberal", "keep", [
        ("do", 1, "XGROUP", "CREATE", b"a", b"g", "0", "MKSTREAM"),
        ("do", 1, "XADD", b"a", "1000-2", "f", b"v1"),
        ("do", 2, "XADD", b"a", "1000-2", "f", b"v2"),
        ("send", 2, 1, 3979712299),
        ("do", 1, "XREADGROUP", "GROUP", b"g", "c", "STREAMS", b"a", ">"),
        ("do", 1, "XNACK", b"a", b"g", "FAIL", "IDS", 1, b"1000-2"),
        ("do", 1, "XNACK", b"a", b"g", "SILENT", "IDS", 1, b"1000-2"),
        ("restart", 1),
        ("do", 1, "XCLAIM", b"a", b"g", "d", 0, b"1000-2"),
        ("do", 1, "XACK", b"a", b"g", b"1000-2"),
    ]),
    "a group of which it mattered what came first, asked late": (4, "strict", "collapse", [
        ("do", 2, "XADD", b"a", "1000-*", "f", b"v5"),
        ("unit", 3, ("XADD", b"b", "*", "f", b"v6"),
         ("XADD", b"a", "IDMP", "q", "i4", "*", "f", b"v7"),
         ("XGROUP", "CREATE", b"a", b"h", "$", "MKSTREAM")),
        ("send", 3, 2, 2392983026),
        ("do", 1, "XGROUP", "CREATE", b"a", b"h", "0", "MKSTREAM"),
        ("do", 3, "PEXPIRE", b"a", 20),
        ("do", 2, "XREADGROUP", "GROUP", b"h", "c", "COUNT", 2, "STREAMS", b"a", ">"),
        ("pass", 3, 30),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_it_does_not_go_wrong_again(name: str) -> None:
    regions, mode, conflict, events = FOUND[name]
    cluster = CheckedCluster(regions, mode, conflict)
    for event in events:
        cluster.run(event)
        cluster.check_all()
    cluster.finish()


def test_an_expiry_takes_what_is_pending_from_a_group_that_it_has_not_seen() -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    one.do("XADD", "k", "*", "f", "v")
    one.do("PEXPIRE", "k", 1000)
    mesh.settle()
    two.do("XGROUP", "CREATE", "k", "g", "0")
    assert len(two.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")) == 1
    three.clock.us += 2_000_000
    assert three.do("EXISTS", "k") == 0
    mesh.settle()
    assert two.do("XPENDING", "k", "g")[0] == 0
    assert two.do("XLEN", "k") == 0
