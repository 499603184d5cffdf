"""Which keyspace events a command publishes, with every class in force."""

from __future__ import annotations

import pytest

from anabranch.engine.channels import event_flags
from tests.support.region_harness import Harness


class Listener:
    """A connection that hears all keyspace events."""

    def __init__(self, flags: str = "EAnmoc") -> None:
        self.h = Harness()
        found = event_flags(flags)
        assert found is not None
        self.h.region.events.flags = found
        self.session = self.h.connect()
        self.h.raw("PSUBSCRIBE", "__key*", session=self.session)

    def events(self, *args: object) -> list[str]:
        """``event key`` of all that a command published."""
        self.h.received(self.session)
        self.h.raw(*args)
        found = []
        for _, _, channel, message in self.h.replies(self.session):
            found.append(f"{channel.decode().partition(':')[2]} {message.decode()}")
        return found


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_new_keys(listener: Listener) -> None:
    events = listener.events
    assert events("XADD", "s", "1-0", "f", "v") == ["new s", "xadd s"]
    assert events("XADD", "s", "2-0", "f", "v") == ["xadd s"]
    assert events("SET", "k", "v") == ["new k", "set k"]
    assert events("LPUSH", "l", "a") == ["new l", "lpush l"]
    assert events("RPUSH", "l", "a") == ["rpush l"]
    assert events("SADD", "t", "a") == ["new t", "sadd t"]
    assert events("INCR", "n") == ["new n", "incrby n"]
    assert events("INCR", "n") == ["incrby n"]


def test_overwriting(listener: Listener) -> None:
    events = listener.events
    for key in ("s", "s2", "s3", "s4"):
        events("XADD", key, "1-0", "f", "v")
    assert events("SET", "s", "v") == ["overwritten s", "type_changed s", "set s"]
    assert events("SET", "s", "w", "EX", "9") == ["overwritten s", "set s", "expire s"]
    assert events("SET", "s", "x", "KEEPTTL") == ["overwritten s", "set s"]
    assert events("COPY", "s2", "s", "REPLACE") == [
        "new s",
        "copy_to s",
        "overwritten s",
        "type_changed s",
    ]
    assert events("RENAME", "s2", "s3") == [
        "new s3",
        "rename_from s2",
        "rename_to s3",
        "overwritten s3",
    ]
    assert events("RENAME", "s3", "s3") == []


def test_restoring(listener: Listener) -> None:
    events = listener.events
    events("XADD", "s", "1-0", "f", "v")
    events("SET", "k", "v")
    payload = listener.h.do("DUMP", "s")
    assert events("RESTORE", "t", "0", payload) == ["new t", "restore t"]
    assert events("RESTORE", "t", "0", payload, "REPLACE") == [
        "new t",
        "restore t",
        "overwritten t",
    ]
    assert events("RESTORE", "k", "9", payload, "REPLACE") == [
        "new k",
        "restore k",
        "overwritten k",
        "type_changed k",
    ]
    assert events("RESTORE", "k", "1", payload, "REPLACE", "ABSTTL") == ["del k"]


def test_going(listener: Listener) -> None:
    events = listener.events
    for key in ("a", "b", "c", "d"):
        events("SET", key, "v")
    assert events("DEL", "a", "missing", "b") == ["del a", "del b"]
    assert events("EXPIRE", "c", "100") == ["expire c"]
    assert events("PERSIST", "c") == ["persist c"]
    assert events("EXPIRE", "c", "-1") == ["del c"]
    events("PEXPIRE", "d", "10")
    listener.h.clock.us += 10_000
    assert events("EXISTS", "d") == ["expired d", "keymiss d"]
    events("RPUSH", "l", "a", "b", "c")
    assert events("LPOP", "l") == ["lpop l"]
    assert events("LPOP", "l", "5") == ["lpop l", "del l"]


def test_moving_to_another_database(listener: Listener) -> None:
    listener.events("SET", "k", "v")
    assert listener.events("MOVE", "k", "1") == ["new k", "move_from k", "move_to k"]


def test_missing(listener: Listener) -> None:
    events = listener.events
    for command in ("GET", "TYPE", "EXISTS", "TTL", "TOUCH", "DUMP"):
        assert events(command, "missing") == ["keymiss missing"]
    for command in ("XREADGROUP GROUP g c STREAMS missing >", "XACK missing g 1-1"):
        assert events(*command.split()) == ["keymiss missing"]
    assert events("OBJECT", "ENCODING", "missing") == []
    assert events("DEL", "missing") == []


def test_whole_databases_publish_nothing(listener: Listener) -> None:
    listener.events("SET", "k", "v")
    assert listener.events("SWAPDB", "0", "1") == []
    assert listener.events("FLUSHALL") == []


def test_the_message_of_the_key_goes_first() -> None:
    listener = Listener("KE$")
    assert listener.events("SET", "k", "v") == ["k set", "set k"]


def test_flags() -> None:
    assert event_flags("KEA!") is None
    assert event_flags("A") == 0
    assert event_flags("KE") == 0
    assert event_flags("") == 0
    assert event_flags("Kx") != 0


def test_several_keys_at_once(listener: Listener) -> None:
    events = listener.events
    events("XADD", "s", "1-0", "f", "v")
    assert events("MSET", "s", "1", "k", "2", "k", "3") == [
        "overwritten s",
        "type_changed s",
        "set s",
        "new k",
        "set k",
        "overwritten k",
        "set k",
    ]
    assert listener.h.do("MGET", "s", "k") == [b"1", b"3"]
    assert events("MSETNX", "x", "1", "k", "2") == []
    assert events("MSETNX", "x", "1", "y", "2") == ["new x", "set x", "new y", "set y"]
    assert events("DEL", "s", "none", "k", "s") == ["del s", "del k"]
    assert events("UNLINK", "none", "x") == ["del x"]
