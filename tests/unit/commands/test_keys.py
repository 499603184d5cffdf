"""DEL, UNLINK, EXISTS, TOUCH, TYPE, RENAME, RENAMENX, COPY, MOVE, OBJECT."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness


@pytest.fixture
def h() -> Harness:
    return Harness()


def changes(h: Harness, *args: object) -> int:
    before = h.region.context.changes
    h.do(*args)
    return h.region.context.changes - before


def test_deleting_counts_what_was_there(h: Harness) -> None:
    h.do("XADD", "s", "1-0", "f", "v")
    h.do("SET", "k", "v")
    assert h.do("DEL", "s", "s", "missing") == 1
    assert h.do("UNLINK", "k") == 1
    assert h.do("EXISTS", "s", "k") == 0


def test_a_command_on_several_keys_wakes_and_breaks_what_observes_them(h: Harness) -> None:
    blocked, watching = h.connect(), h.connect()
    h.do("MSET", "a", 1, "b", 2, "other", 3)
    h.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    for words in [("DEL", "a", "b"), ("MSET", "a", 1, "b", 2)]:
        h.do("WATCH", "b", session=watching)
        h.do(*words)
        h.do("MULTI", session=watching)
        assert h.do("EXEC", session=watching) is None
    h.raw("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">", session=blocked)
    h.do("EXPIRE", "a", 9)
    assert h.do("DEL", "a", "s") == 2
    assert b"NOGROUP" in h.received(blocked)
    h.do("MSET", "a", 1, "s", 2)
    assert h.do("TTL", "a") == -1
    h.do("EXPIRE", "a", 9)
    h.do("MSET", "s", 1, "a", 2)
    assert h.do("TTL", "a") == -1
    h.check()
    for database in h.region.keyspace.databases:
        database.check()


def test_repeated_keys_are_counted(h: Harness) -> None:
    h.do("SET", "k", "v")
    assert h.do("EXISTS", "k", "k", "missing") == 2
    assert h.do("TOUCH", "k", "k", "missing") == 2


def test_changes_since_the_last_save(h: Harness) -> None:
    for key in ("a", "b", "c"):
        h.do("SET", key, "v")
    assert changes(h, "EXISTS", "a") == 0
    assert changes(h, "COPY", "a", "d") == 1
    assert changes(h, "RENAME", "d", "e") == 1
    assert changes(h, "RENAME", "e", "e") == 0
    assert changes(h, "MOVE", "e", "1") == 1
    assert changes(h, "DEL", "a", "b", "missing") == 2


@pytest.mark.parametrize(
    ("setup", "name"),
    [
        (("XADD", "k", "*", "f", "v"), b"stream"),
        (("SET", "k", "v"), b"string"),
        (("LPUSH", "k", "v"), b"list"),
        (("SADD", "k", "v"), b"set"),
        (("PING",), b"none"),
    ],
)
def test_types(h: Harness, setup: tuple[str, ...], name: bytes) -> None:
    h.do(*setup)
    assert h.do("TYPE", "k") == name


def test_rename_takes_everything_along(h: Harness) -> None:
    h.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    h.do("XGROUP", "CREATE", "s", "g", "0")
    h.do("EXPIRE", "s", "100")
    h.do("SET", "t", "overwritten")
    entries = h.do("XRANGE", "s", "-", "+")
    assert h.do("RENAME", "s", "t") == b"OK"
    assert h.do("EXISTS", "s") == 0
    assert h.do("TTL", "t") == 100
    assert h.do("XRANGE", "t", "-", "+") == entries
    assert h.do("XADD", "t", "IDMP", "p", "i", "*", "f", "v") == entries[0][0]
    assert h.error("RENAME", "s", "t") == "ERR no such key"


def test_renamenx(h: Harness) -> None:
    h.do("SET", "a", "1")
    h.do("SET", "b", "2")
    assert h.do("RENAMENX", "a", "b") == 0
    assert h.do("RENAMENX", "a", "a") == 0
    assert h.do("RENAMENX", "a", "c") == 1
    assert h.error("RENAMENX", "a", "d") == "ERR no such key"


def test_a_copy_is_independent(h: Harness) -> None:
    h.do("XADD", "s", "1-0", "f", "v")
    h.do("XGROUP", "CREATE", "s", "g", "0")
    h.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    assert h.do("COPY", "s", "t") == 1
    assert h.do("COPY", "s", "t") == 0
    assert h.do("XACK", "t", "g", "1-0") == 1
    h.do("XADD", "t", "2-0", "f", "v")
    assert h.do("XPENDING", "s", "g")[0] == 1
    assert h.do("XLEN", "s") == 1
    assert h.do("COPY", "s", "t", "DB", "1", "REPLACE") == 1
    h.check()


def test_copy_errors(h: Harness) -> None:
    same = "ERR source and destination objects are the same"
    assert h.error("COPY", "missing", "missing") == same
    assert h.error("COPY", "s", "t", "DB", "16") == "ERR DB index is out of range"
    assert h.error("COPY", "s", "t", "DB", "x") == "ERR value is not an integer or out of range"
    assert h.error("COPY", "s", "t", "DB") == "ERR syntax error"
    assert h.error("MOVE", "s", "0") == same
    beyond = "ERR value is out of range, value must between -2147483648 and 2147483647"
    assert h.error("COPY", "s", "t", "DB", str(2**31)) == beyond
    assert h.error("MOVE", "s", str(-(2**31) - 1)) == beyond
    assert h.error("MOVE", "s", str(-(2**31))) == "ERR DB index is out of range"


def test_move_does_not_overwrite(h: Harness) -> None:
    other = h.connect()
    h.do("SELECT", "1", session=other)
    h.do("SET", "k", "there", session=other)
    h.do("SET", "k", "here")
    assert h.do("MOVE", "k", "1") == 0
    h.do("DEL", "k", session=other)
    h.do("PEXPIRE", "k", "5000")
    assert h.do("MOVE", "k", "1") == 1
    assert h.do("PTTL", "k", session=other) == 5000


def test_a_target_past_its_deadline_does_not_exist(h: Harness) -> None:
    h.region.services.active_expire = False
    h.do("SET", "a", "1")
    h.do("SET", "b", "2", "PX", "10")
    h.advance(10)
    assert h.do("RENAMENX", "a", "b") == 1
    assert h.do("TTL", "b") == -1


def test_keys_that_are_due_together_are_removed_in_slices(h: Harness) -> None:
    scheduler = h.region.scheduler
    asked = []
    scheduler.drive(lambda: asked.append(True))
    for index in range(100):
        h.do("SET", f"k{index}", "v", "PX", "10")
    h.advance(10)
    h.region.tick()
    keys = h.region.keyspace.databases[0].values
    assert len(keys) >= 98  # outside of a slice one step is done
    assert asked
    assert len(scheduler) == 1
    scheduler.run_turn()
    assert not keys
    assert not len(scheduler)


def test_idle_time_counts_from_the_last_use(h: Harness) -> None:
    h.do("XADD", "s", "1-0", "f", "v")
    assert h.do("OBJECT", "IDLETIME", "s") == 0
    h.advance(5000)
    assert h.do("OBJECT", "IDLETIME", "s") == 5
    h.do("TYPE", "s")
    assert h.do("OBJECT", "IDLETIME", "s") == 5
    h.do("XLEN", "s")
    assert h.do("OBJECT", "IDLETIME", "s") == 0


@pytest.mark.parametrize(
    "line", ["EXPIRE s 100", "PERSIST s", "RENAME s t", "RENAMENX s t", "MOVE s 1", "APPEND s x"]
)
def test_a_command_that_writes_is_a_use(h: Harness, line: str) -> None:
    h.do("XADD", "s", "1-0", "f", "v")
    h.advance(5000)
    h.raw(*line.split())
    if line.startswith("MOVE"):
        h.do("SELECT", "1")
    assert h.do("OBJECT", "IDLETIME", "t" if line.endswith("t") else "s") == 0


@pytest.mark.parametrize(
    ("setup", "encoding"),
    [
        (("SET", "k", "12"), b"int"),
        (("SET", "k", "x" * 44), b"embstr"),
        (("SET", "k", "x" * 45), b"raw"),
        (("LPUSH", "k", "a"), b"listpack"),
        (("LPUSH", "k", "a" * 9000), b"quicklist"),
        (("SADD", "k", "1", "2"), b"intset"),
        (("SADD", "k", "1", "a"), b"listpack"),
        (("SADD", "k", "a" * 65), b"hashtable"),
        (("XADD", "k", "*", "f", "v"), b"stream"),
    ],
)
def test_encodings(h: Harness, setup: tuple[str, ...], encoding: bytes) -> None:
    h.do(*setup)
    assert h.do("OBJECT", "ENCODING", "k") == encoding


def test_object_of_a_missing_key_is_null(h: Harness) -> None:
    for word in ("ENCODING", "REFCOUNT", "IDLETIME", "FREQ"):
        assert h.raw("OBJECT", word, "missing") == b"$-1\r\n"


def test_blocked_readers_are_told_of_a_renamed_key(h: Harness) -> None:
    h.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    reader = h.connect()
    h.raw("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">", session=reader)
    h.do("RENAME", "s", "t")
    assert b"-NOGROUP" in h.received(reader)
