"""Blocked readers whose key or group goes away, and CLIENT UNBLOCK (specification §4.3)."""

from __future__ import annotations

import pytest

from tests.support.streams import WRONGTYPE, Streams

NOGROUP = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"
GROUP_READER = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"
READER = "XREAD BLOCK 0 STREAMS s $"
ENTRY = "[['s', [['9-0', ['f', 'v']]]]]"


def _stream() -> Streams:
    s = Streams()
    s.fill("s", "1-0")
    s.run("XGROUP CREATE s g $")
    return s


GOING = {
    "DEL": ["DEL s"],
    "UNLINK": ["UNLINK s"],
    "expiry in the past": ["PEXPIREAT s 1"],
    "FLUSHDB": ["FLUSHDB"],
    "FLUSHALL": ["FLUSHALL"],
    "RENAME away": ["RENAME s t"],
    "MOVE away": ["MOVE s 3"],
    "SWAPDB away": ["SWAPDB 0 3"],
}


@pytest.mark.parametrize("how", GOING)
def test_a_key_that_goes_fails_xreadgroup_and_leaves_xread_waiting(how: str) -> None:
    """§4.3."""
    s = _stream()
    group_reader, reader = s.waits(GROUP_READER), s.waits(READER)
    s.run(*GOING[how])
    assert s.answer(group_reader) == NOGROUP
    assert s.answer(reader) == ""
    assert reader.blocked
    assert not group_reader.blocked
    s.fill("s", "9-0")
    assert s.answer(reader) == ENTRY


def test_an_expired_key_fails_xreadgroup_when_its_time_comes() -> None:
    """§4.3."""
    s = _stream()
    group_reader, reader = s.waits(GROUP_READER), s.waits(READER)
    s.run("PEXPIRE s 100")
    s.advance(99)
    assert s.answer(group_reader) == ""
    s.advance(1)
    assert s.answer(group_reader) == NOGROUP
    assert s.answer(reader) == ""


def test_a_destroyed_group_fails_its_readers_only() -> None:
    """§4.3: other readers keep waiting."""
    s = _stream()
    s.run("XGROUP CREATE s h $")
    mine, reader = s.waits(GROUP_READER), s.waits(READER)
    other = s.waits("XREADGROUP GROUP h c BLOCK 0 STREAMS s >")
    s.run("XGROUP DESTROY s g")
    assert s.answer(mine) == NOGROUP
    assert (s.answer(other), s.answer(reader)) == ("", "")
    s.fill("s", "9-0")
    assert (s.answer(other), s.answer(reader)) == (ENTRY, ENTRY)


@pytest.mark.parametrize(
    "lines", [["SET s v"], ["MULTI", "DEL s", "SET s v", "EXEC"], ["RENAME string s"]]
)
def test_a_key_of_another_type_fails_xreadgroup_and_leaves_xread_waiting(lines: list[str]) -> None:
    """§4.3."""
    s = _stream()
    s.run("SET string v")
    group_reader, reader = s.waits(GROUP_READER), s.waits(READER)
    s.run(*lines)
    assert s.answer(group_reader) == f"-{WRONGTYPE}"
    assert s.answer(reader) == ""
    s.run("DEL s")
    s.fill("s", "9-0")
    assert s.answer(reader) == ENTRY


def test_a_group_made_again_in_one_transaction_is_waited_for() -> None:
    """§4.3: DEL and XGROUP CREATE."""
    s = _stream()
    reader = s.waits(GROUP_READER)
    s.run("MULTI", "DEL s", "XGROUP CREATE s g $ MKSTREAM", "EXEC")
    assert s.answer(reader) == ""
    s.fill("s", "9-0")
    assert s.answer(reader) == ENTRY


def test_a_key_without_the_group_fails_too() -> None:
    """§4.3: DEL and XADD in one transaction."""
    s = _stream()
    reader = s.waits(GROUP_READER)
    s.run("MULTI", "DEL s", "XADD s 1-0 f v", "EXEC")
    assert s.answer(reader) == NOGROUP


def test_one_of_several_keys_fails_the_whole_xreadgroup() -> None:
    """§4.3; XREAD keeps waiting."""
    s = _stream()
    s.run("XGROUP CREATE t g $ MKSTREAM")
    group_reader = s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS t s > >")
    reader = s.waits("XREAD BLOCK 0 STREAMS t s $ $")
    s.run("DEL s")
    assert s.answer(group_reader) == NOGROUP
    assert s.answer(reader) == ""
    assert list(s.region.keyspace.databases[0].waiters) == [b"t", b"s"]


def test_a_failed_wait_is_a_failed_command() -> None:
    """§4.3: INFO errorstats counts it."""
    s = _stream()
    s.waits(GROUP_READER)
    s.run("DEL s")
    assert "NOGROUP" in str(s.region.stats.errors)


# -- CLIENT UNBLOCK ---------------------------------------------------------------------------


@pytest.mark.parametrize("line", [GROUP_READER, READER])
@pytest.mark.parametrize(
    ("how", "resp2", "resp3"),
    [
        ("", "*-1", "_"),
        (" TIMEOUT", "*-1", "_"),
        (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK",
         "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ],
)  # fmt: skip
def test_client_unblock_ends_a_wait(line: str, how: str, resp2: str, resp3: str) -> None:
    """§4.3."""
    s = _stream()
    old, new = s.waits(line), s.waits(line, resp3=True)
    assert [s.run(f"CLIENT UNBLOCK {reader.id}{how}") for reader in (old, new)] == [1, 1]
    assert (s.answer(old), s.answer(new)) == (resp2, resp3)
    assert s.run(f"CLIENT UNBLOCK {old.id}{how}") == 0
    s.fill("s", "9-0")
    assert s.answer(old) == ""
    assert s.run("XLEN s", session=old) == 2
