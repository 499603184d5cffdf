"""Stream tests in the words of a redis-cli session: command lines in, readable replies out.

``run`` gives decoded replies with text instead of bytes; ``shows`` gives the reply as one line in
which the RESP types can be told apart, for tests of a reply's *shape*.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from anabranch.engine.session import Session
from tests.support.region_harness import Harness, decode_all

__all__ = ["BOTH_PROTOCOLS", "NOW", "Streams", "as_map", "plain", "shown"]

NOW = 1_700_000_000_000
"""The wall-clock time at which every harness begins."""

BOTH_PROTOCOLS = pytest.mark.parametrize("resp3", [False, True], ids=["RESP2", "RESP3"])

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NOT_INTEGER = "ERR value is not an integer or out of range"
SYNTAX = "ERR syntax error"
NO_SUCH_KEY = "ERR no such key"


@lru_cache(maxsize=4096)
def words(line: str) -> tuple[str, ...]:
    """The words of a command line; quotes as in a shell."""
    return tuple(shlex.split(line))


class Streams(Harness):
    """A region to which one talks in lines."""

    def run(self, *lines: str, session: Session | None = None) -> Any:
        """Run command lines; the last reply. An error reply is raised."""
        reply = None
        for line in lines:
            reply = plain(self.do(*words(line), session=session))
        return reply

    def fails(self, line: str, session: Session | None = None) -> str:
        """Run a line that must fail; the error text."""
        return self.error(*words(line), session=session)

    def shows(self, line: str, session: Session | None = None) -> str:
        """The reply of a line as :func:`shown` writes it; empty while it blocks."""
        return shown(self.raw(*words(line), session=session))

    def waits(self, line: str, *, resp3: bool = False) -> Session:
        """A new connection whose command must block."""
        session = self.connect(resp3=resp3)
        assert self.shows(line, session) == "", "the command did not block"
        return session

    def answer(self, session: Session) -> str:
        """What a connection got since last asked, as :func:`shown` writes it."""
        return shown(self.received(session))

    def fill(self, key: str, *ids: str) -> None:
        """Add entries ``f v`` with the given IDs."""
        for entry_id in ids:
            self.do("XADD", key, entry_id, "f", "v")

    def count_to(self, key: str, last: int, first: int = 1) -> None:
        """Add entries ``first-0`` to ``last-0``."""
        self.fill(key, *(f"{ms}-0" for ms in range(first, last + 1)))

    def ids(self, key: str) -> list[str]:
        """The IDs of the live entries."""
        return [entry[0] for entry in self.run(f"XRANGE {key} - +")]

    def info(self, key: str = "s") -> dict[str, Any]:
        """XINFO STREAM as a dictionary."""
        return as_map(self.run(f"XINFO STREAM {key}"))

    def group(self, key: str = "s", name: str = "g") -> dict[str, Any]:
        """One group's XINFO GROUPS element."""
        groups = [as_map(group) for group in self.run(f"XINFO GROUPS {key}")]
        return next(group for group in groups if group["name"] == name)

    def full_group(self, key: str = "s", name: str = "g") -> dict[str, Any]:
        """One group as XINFO STREAM FULL shows it, its consumers as dictionaries by name."""
        stream = as_map(self.run(f"XINFO STREAM {key} FULL COUNT 0"))
        group = next(g for g in map(as_map, stream["groups"]) if g["name"] == name)
        group["consumers"] = {c["name"]: c for c in map(as_map, group["consumers"])}
        return group

    def consumer(self, name: str, key: str = "s", group: str = "g") -> dict[str, Any]:
        """A consumer as XINFO STREAM FULL shows it."""
        found: dict[str, Any] = self.full_group(key, group)["consumers"][name]
        return found

    def pending(self, key: str = "s", group: str = "g") -> list[list[Any]]:
        """``[ID, consumer, idle, deliveries]`` of every pending entry."""
        rows: list[list[Any]] = self.run(f"XPENDING {key} {group} - + 1000000")
        return rows

    def changes_of(self, line: str) -> int:
        """By how much a line moves rdb_changes_since_last_save."""
        before = self.region.context.changes
        self.raw(*words(line))
        return self.region.context.changes - before

    def events_of(self, act: Callable[[], object]) -> list[str]:
        """The keyspace events that something causes: ``event key``."""
        from anabranch.engine.channels import event_flags

        listener = self.connect()
        self.raw("PSUBSCRIBE", "__keyevent@*", session=listener)
        events = self.region.events
        flags = event_flags("KEAnm")
        assert flags
        before, events.flags = events.flags, flags
        try:
            act()
        finally:
            events.flags = before
        messages = [plain(message) for message in decode_all(self.received(listener))]
        self.region.close_session(listener)
        return [f"{channel.partition(':')[2]} {key}" for _, _, channel, key in messages]


def plain(value: Any) -> Any:
    """Bytes inside a decoded reply as text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def as_map(flat: Any) -> dict[str, Any]:
    """A RESP2 reply of pairs as a dictionary."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def shown(data: bytes) -> str:
    """RESP as one line: ``'bulk' +status -error 12 [array] {map: value} $-1 *-1 _ >[push]``."""
    texts = []
    at = 0
    while at < len(data):
        text, at = _shown_value(data, at)
        texts.append(text)
    return " ".join(texts)


def _shown_value(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\r\n", at)
    sign, rest = chr(data[at]), data[at + 1 : end].decode("latin-1")
    at = end + 2
    if sign in "$=":
        size = int(rest)
        if size < 0:
            return "$-1", at
        assert data[at + size : at + size + 2] == b"\r\n"
        return f"'{data[at : at + size].decode('latin-1')}'", at + size + 2
    if sign == ":":
        return rest, at
    if sign in "*~>%":
        if rest == "-1":
            return "*-1", at
        items = []
        for _ in range(int(rest) * (2 if sign == "%" else 1)):
            item, at = _shown_value(data, at)
            items.append(item)
        if sign == "%":
            pairs = (f"{key}: {value}" for key, value in zip(items[::2], items[1::2], strict=True))
            return "{" + ", ".join(pairs) + "}", at
        return f"{'' if sign == '*' else sign}[{', '.join(items)}]", at
    assert sign in "+-_#,"
    return sign + rest, at
