"""XREADGROUP with CLAIM and BLOCK: waiting for entries to come of age (specification §4.3)."""

from __future__ import annotations

import pytest

from tests.support.streams import NOW, Streams


def _pending(*ids: str, key: str = "s") -> Streams:
    """Entries that were just delivered to consumer c of group g."""
    s = Streams()
    s.fill(key, *ids)
    s.run(f"XGROUP CREATE {key} g 0 MKSTREAM")
    if ids:
        s.run(f"XREADGROUP GROUP g c STREAMS {key} >")
    return s


def _claimed(entry_id: str, idle: int, deliveries: int) -> str:
    return f"[['s', [['{entry_id}', ['f', 'v'], {idle}, {deliveries}]]]]"


def test_a_pending_entry_that_comes_of_age_is_served() -> None:
    """§4.3: at delivery time + min-idle, a millisecond later at most."""
    s = _pending("1-0")
    s.advance(30)
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    assert s.region.keyspace.waiters.next_timer_ms() == NOW + 101
    s.advance(69)
    assert s.answer(reader) == ""
    s.advance(2)
    assert s.answer(reader) == _claimed("1-0", 101, 1)
    assert s.pending() == [["1-0", "d", 0, 2]]


def test_a_pause_of_writes_holds_back_what_comes_of_age() -> None:
    s = _pending("1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    s.run("CLIENT PAUSE 200 WRITE")
    s.advance(150)
    assert s.answer(reader) == ""
    assert s.pending() == [["1-0", "c", 150, 1]]
    s.advance(50)
    s.advance(1)
    assert s.answer(reader) == _claimed("1-0", 201, 1)


def test_the_timeout_may_come_first() -> None:
    """§4.3."""
    s = _pending("1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 50 CLAIM 100 STREAMS s >")
    s.advance(50)
    assert s.answer(reader) == "*-1"
    s.advance(100)
    assert s.answer(reader) == ""


def test_new_data_may_come_first() -> None:
    """§4.3: a new entry has no idle time and no deliveries."""
    s = _pending("1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    s.advance(10)
    s.fill("s", "2-0")
    assert s.answer(reader) == _claimed("2-0", 0, 0)


def test_released_entries_are_served_at_once() -> None:
    """§4.3 [N]: XNACK that released at least one wakes CLAIM readers."""
    s = _pending("1-0")
    plain = s.waits("XREADGROUP GROUP g e BLOCK 0 STREAMS s >")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100000 STREAMS s >")
    s.run("XNACK s g FAIL IDS 1 9-9")
    assert s.answer(reader) == ""
    s.run("XNACK s g FAIL IDS 1 1-0")
    assert s.answer(reader) == _claimed("1-0", NOW, 1)
    assert s.answer(plain) == ""


def test_with_nothing_pending_it_looks_again_after_the_idle_time() -> None:
    """§4.3: something may become pending meanwhile."""
    s = _pending()
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    other = s.waits("XREADGROUP GROUP g e BLOCK 0 CLAIM 100000 STREAMS s >")
    s.advance(50)
    s.run("MULTI", "XADD s 1-0 f v", "XREADGROUP GROUP g c STREAMS s >", "EXEC")
    assert s.answer(reader) == ""
    s.advance(99)
    assert s.answer(reader) == ""
    s.advance(3)
    assert s.answer(reader).startswith("[['s', [['1-0', ['f', 'v'], 10")
    assert s.answer(other) == ""


def test_the_oldest_pending_entry_of_all_streams_decides() -> None:
    """§4.3: min over the listed streams."""
    s = _pending("1-0")
    s.advance(60)
    s.fill("t", "1-0")
    s.run("XGROUP CREATE t g 0", "XREADGROUP GROUP g c STREAMS t >")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS t s > >")
    s.advance(41)
    assert s.answer(reader) == _claimed("1-0", 101, 1)


def test_ghosts_do_not_count_for_the_timer() -> None:
    """§4.3: oldest *still-existing* entry."""
    s = _pending("1-0", "2-0")
    s.advance(50)
    s.run("XCLAIM s g c 0 2-0", "XDEL s 1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    assert s.region.keyspace.waiters.next_timer_ms() == NOW + 151
    s.advance(101)
    assert s.answer(reader) == _claimed("2-0", 101, 2)


def test_an_entry_claimed_by_another_starts_anew() -> None:
    """§4.3: the wait goes on until its new time comes."""
    s = _pending("1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    s.advance(80)
    s.run("XCLAIM s g e 0 1-0")
    s.advance(30)
    assert s.answer(reader) == ""
    s.advance(71)
    assert s.answer(reader) == _claimed("1-0", 101, 2)


def test_an_acknowledged_entry_leaves_the_reader_waiting() -> None:
    """§4.3."""
    s = _pending("1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    s.run("XACK s g 1-0")
    for _ in range(5):
        s.advance(100)
    assert s.answer(reader) == ""
    s.fill("s", "2-0")
    assert s.answer(reader) == _claimed("2-0", 0, 0)


def test_two_claiming_readers_do_not_get_the_same_entry() -> None:
    """§4.3: first come, first served."""
    s = _pending("1-0")
    readers = [
        s.waits(f"XREADGROUP GROUP g {name} BLOCK 0 CLAIM 100 STREAMS s >") for name in ("d", "e")
    ]
    s.advance(101)
    assert [s.answer(reader) for reader in readers] == [_claimed("1-0", 101, 1), ""]
    s.advance(101)
    assert s.answer(readers[1]) == _claimed("1-0", 101, 2)


@pytest.mark.parametrize("idle", [0, 1])
def test_a_tiny_idle_time_does_not_spin(idle: int) -> None:
    """§4.3: the next look is in the future."""
    s = _pending("1-0")
    s.run("XDEL s 1-0")
    s.waits(f"XREADGROUP GROUP g d BLOCK 0 CLAIM {idle} STREAMS s >")
    timer = s.region.keyspace.waiters.next_timer_ms()
    assert timer is not None
    assert timer > NOW
    s.advance(10)
    timer = s.region.keyspace.waiters.next_timer_ms()
    assert timer is not None
    assert timer > NOW + 10


def test_inside_a_transaction_it_does_not_wait() -> None:
    """§4.3."""
    s = _pending("1-0")
    s.run("MULTI", "XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    assert s.run("EXEC") == [None]


def test_the_failures_of_a_waiting_reader_hold_for_claim_too() -> None:
    """§4.3."""
    s = _pending("1-0")
    reader = s.waits("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s >")
    s.run("XGROUP DESTROY s g")
    assert s.answer(reader).startswith("-NOGROUP")
    s.advance(1000)
    assert s.answer(reader) == ""
