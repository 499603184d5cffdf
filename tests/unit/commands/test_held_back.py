"""Readers that are blocked although there are entries: every event that lets them go on wakes them.

A policy holds entries back from a reader: it has as many as ``max-pending`` allows, or an entry of
the same key is before them. No command may forget to wake the reader when this is over.
"""

from __future__ import annotations

import pytest

from anabranch.engine.session import Session
from tests.support.mesh import Mesh
from tests.support.streams import Streams

Lines = tuple[str, ...]

READ = "XREADGROUP GROUP g bob BLOCK 0 STREAMS s >"


def blocked(policies: str, *before: str) -> tuple[Streams, Session]:
    """Bob waits in group ``g`` of ``s``, with entries 1-0 and 2-0, after some commands."""
    w = Streams()
    w.run("XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-0 k a", "XADD s 2-0 k a")
    w.run(f"AB.POLICY SET s GROUP g {policies}", *before)
    passes(w, 300)
    return w, w.waits(READ)


def passes(w: Streams, ms: int) -> None:
    for _ in range(ms // 50):
        w.advance(50)
        while len(w.region.scheduler):
            w.region.scheduler.run_turn()
        w.settle()


def given(w: Streams, reader: Session) -> str:
    """The first ID that the reader was given, or another answer."""
    passes(w, 300)
    answer = w.answer(reader)
    return answer.split("'")[3] if answer.startswith("[") else answer


TAKEN: Lines = ("XREADGROUP GROUP g bob COUNT 1 STREAMS s >",)
POISON: Lines = ("AB.POLICY SET s GROUP g on-poison halt", "XNACK s g FATAL IDS 1 1-0")

ROOM: dict[str, tuple[Lines, str]] = {
    "acknowledged": (("XACK s g 1-0",), "2-0"),
    "acknowledged and deleted": (("XACKDEL s g DELREF IDS 1 1-0",), "2-0"),
    "deleted with its references": (("XDELEX s DELREF IDS 1 1-0",), "2-0"),
    "deleted before, its references now": (("XDEL s 1-0", "XDELEX s DELREF IDS 1 1-0"), "2-0"),
    "trimmed with its references": (("XTRIM s MAXLEN = 1 DELREF",), "2-0"),
    "trimmed by XADD": (("XADD s DELREF MAXLEN = 2 3-0 k b",), "2-0"),
    "claimed": (("XCLAIM s g eve 0 1-0",), "2-0"),
    "claimed by XAUTOCLAIM": (("XAUTOCLAIM s g eve 0 0 JUSTID",), "2-0"),
    "claimed by a read": (("XREADGROUP GROUP g eve COUNT 1 CLAIM 0 STREAMS s >",), "2-0"),
    "given back": (("XNACK s g FAIL IDS 1 1-0",), "2-0"),
    "given up": (("AB.POLICY SET s dead-letter d", "XNACK s g FATAL IDS 1 1-0"), "2-0"),
    "given back, and readers get it": (
        ("AB.POLICY SET s GROUP g redeliver first", "XNACK s g FAIL IDS 1 1-0"),
        "1-0",
    ),
    "another one reads after SETID": (
        ("XGROUP SETID s g 0", "XREADGROUP GROUP g eve COUNT 1 STREAMS s >"),
        "2-0",
    ),
    "its consumer is deleted": (("XGROUP DELCONSUMER s g bob",), "2-0"),
    "the lease is over": (("AB.POLICY SET s GROUP g lease time:100ms",), "1-0"),
    "more room": (("AB.POLICY SET s GROUP g max-pending consumer:2",), "2-0"),
    "more room by a pattern": (
        ("AB.POLICY SET PATTERN * max-pending consumer:9", "AB.POLICY DEL s GROUP g"),
        "2-0",
    ),
    "no policy": (("AB.POLICY DEL s GROUP g",), "2-0"),
    "another stream takes the name": (
        ("XGROUP CREATE t g 0 MKSTREAM", "XADD t 7-0 k a", "RENAME t s"),
        "7-0",
    ),
    "a copy takes the name": (
        ("XGROUP CREATE t g 0 MKSTREAM", "XADD t 7-0 k a", "COPY t s REPLACE"),
        "7-0",
    ),
    "the other database has the name": (
        ("SELECT 1", "XGROUP CREATE s g 0 MKSTREAM", "XADD s 7-0 k a", "SWAPDB 0 1"),
        "7-0",
    ),
    "the group is destroyed": (
        ("XGROUP DESTROY s g",),
        "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
    ),
    "the stream has ended": (("AB.SEAL s",), "*-1"),
}

ORDER: dict[str, tuple[Lines, Lines, str]] = {
    "acknowledged": (TAKEN, ("XACK s g 1-0",), "2-0"),
    "lost with its consumer": (TAKEN, ("XGROUP DELCONSUMER s g bob",), "2-0"),
    "deleted with its references": (TAKEN, ("XDELEX s DELREF IDS 1 1-0",), "2-0"),
    "given back": (TAKEN, ("XNACK s g FAIL IDS 1 1-0",), "1-0"),
    "given up": (TAKEN, ("AB.POLICY SET s max-deliveries 1", "XNACK s g FAIL IDS 1 1-0"), "2-0"),
    "given back and deleted": (
        (*TAKEN, "AB.POLICY SET s GROUP g backoff 1h", "XNACK s g FAIL IDS 1 1-0"),
        ("XDEL s 1-0",),
        "2-0",
    ),
    "stopped and trimmed": ((*TAKEN, *POISON), ("XTRIM s MAXLEN 1",), "2-0"),
    "stopped and too old by a policy": (
        (*TAKEN, *POISON),
        ("AB.POLICY SET s max-length 1 exact yes",),
        "2-0",
    ),
    "stopped and skipped": ((*TAKEN, *POISON), ("AB.SKIP s g a",), "2-0"),
    "stopped and redriven": (
        (*TAKEN, "AB.POLICY SET s dead-letter d", *POISON),
        ("AB.REDRIVE d",),
        "1-0",
    ),
    "more may wait": (
        (*TAKEN, "AB.POLICY SET s GROUP g key-waiting 1", "XADD s 3-0 k a", "XADD s 4-0 k b"),
        ("AB.POLICY SET s GROUP g key-waiting 2",),
        "4-0",
    ),
    "one waits less": (
        (
            *TAKEN,
            "AB.POLICY SET s GROUP g key-waiting 1",
            "XADD s 3-0 k a",
            "XADD s 4-0 k b",
            "XREADGROUP GROUP g bob STREAMS s >",
        ),
        ("XACK s g 2-0",),
        "4-0",
    ),
    "the group passes what is pending ahead of it": (
        (
            *TAKEN,
            "AB.POLICY SET s GROUP g key-waiting 1",
            "XADD s 3-0 k a",
            "XADD s 4-0 k b",
            "XNACK s g SILENT IDS 1 4-0 FORCE",
        ),
        ("XCLAIM s g bob 0 9-0 LASTID 4-0",),
        "4-0",
    ),
    "the order is over": (
        TAKEN,
        ("AB.POLICY SET s GROUP g redeliver first", "AB.POLICY DEL s GROUP g key-field"),
        "2-0",
    ),
}


@pytest.mark.parametrize("event", ROOM)
def test_a_reader_that_has_what_it_may_have_goes_on_when_it_has_less(event: str) -> None:
    lines, expected = ROOM[event]
    w, reader = blocked("max-pending consumer:1", *TAKEN)
    goes_on(w, reader, lines, expected)


@pytest.mark.parametrize("event", ORDER)
def test_a_reader_that_waits_for_another_entry_of_the_key_goes_on_without_it(event: str) -> None:
    before, lines, expected = ORDER[event]
    w, reader = blocked("key-field k", *before)
    goes_on(w, reader, lines, expected)


def goes_on(w: Streams, reader: Session, lines: Lines, expected: str) -> None:
    """The last line gives the reader what it has to get, the others nothing."""
    for line in lines[:-1]:
        w.run(line)
    assert given(w, reader) == ""
    w.run(lines[-1])
    assert given(w, reader) == expected
    w.check()


def unsorted() -> Streams:
    """Many entries of ``s`` are pending, and nobody has sorted them by their keys yet."""
    w = Streams()
    w.run("XGROUP CREATE s g 0 MKSTREAM")
    for number in range(1, 11_001):
        w.do("XADD", "s", f"{number}-0", "k", number)
    w.do("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    w.run("AB.POLICY SET PATTERN * key-field k backoff 1h", "XADD s 20000-0 k a")
    passes(w, 300)
    return w


def test_a_reader_looks_again_at_one_stream_although_another_one_changes() -> None:
    w = unsorted()
    w.run("XGROUP CREATE t g 0 MKSTREAM", "XADD t 1-0 k a", "XREADGROUP GROUP g bob STREAMS t >")
    reader = w.waits("XREADGROUP GROUP g eve BLOCK 0 STREAMS s t > >")
    w.run("XNACK t g FAIL IDS 1 1-0")
    assert given(w, reader) == "20000-0"


def test_a_subscription_looks_again_although_nothing_changes() -> None:
    w = unsorted()
    session = w.connect(resp3=True)
    w.run("AB.SUBSCRIBE CREDIT 5 GROUP g eve STREAMS s", session=session)
    assert "20000-0" in given(w, session)


# -- regions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["effect", "full sync", "deletion"])
def test_what_another_region_does_wakes_readers(way: str) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    one.do("AB.POLICY", "SET", "s", "max-pending", "group:1")
    first, second = [one.do("XADD", "s", "*", "f", "v") for _ in range(2)]
    mesh.settle()
    for node in (one, two):  # each region has delivered the first one
        node.do("XREADGROUP", "GROUP", "g", "bob", "COUNT", "1", "STREAMS", "s", ">")
    reader = two.region.open_session("127.0.0.1:1", "127.0.0.1:2")
    two.region.execute(reader, [[each.encode() for each in READ.split()]])
    assert not reader.outbox
    if way == "deletion":
        one.do("XDELEX", "s", "DELREF", "IDS", "1", first)
    else:
        one.do("XACK", "s", "g", first)
    if way == "full sync":
        mesh.send_full_sync(1, 2)
    else:
        mesh.settle()
    assert second in b"".join(reader.outbox)
