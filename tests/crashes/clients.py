"""Who writes and who reads: requests by chance, and what each client was told."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from tests.crashes.harness import Wire, World
from tests.crashes.model import Request, parts
from tests.support.wire import encode_command

__all__ = ["Client", "Cursor", "Writing", "a_read"]

STREAMS = ("s0", "s1", "s2")
TEXTS = ("t0", "t1", "t2")
NUMBERS = ("n0", "n1")
KEYS = (*STREAMS, *TEXTS, *NUMBERS)
SETTLING: tuple[Request, ...] = (("BGSAVE",), ("BGSAVE",), ("SAVE",), ("DEBUG", "RELOAD"))
"""What writes the log out in the midst of a turn."""


class Client:
    """One connection: what it has sent, and what it was told, in order."""

    def __init__(self, world: World, on_reply: Callable[[Client, Request, int, Any], None]) -> None:
        self._on_reply = on_reply
        self._reader = hiredis.Reader()
        self._unsent: deque[bytes] = deque()
        self.db = -1
        self.watched: tuple[str, int] | None = None
        """The key of a WATCH, and how many requests were answered when it was sent."""
        self.waiting: deque[tuple[Request, int]] = deque()
        """Requests that are not answered, and when they were sent."""
        self.on_push: Callable[[Any], None] | None = None
        """Hears messages, once all requests are answered."""
        self.wire: Wire = world.connect(self._told)

    @property
    def is_closed(self) -> bool:
        """Whether the server has ended the connection."""
        return self.wire.is_closed

    def send(self, requests: list[Request], now: int, chance: random.Random) -> None:
        """Send requests in one packet, or in two."""
        data = b"".join(map(encoded, requests))
        self.waiting += [(words, now) for words in requests]
        at = chance.randrange(len(data)) if chance.random() < 0.2 else 0
        self._unsent += [piece for piece in (data[:at], data[at:]) if piece]
        self.push()

    def push(self) -> None:
        """Hand over what was sent, as far as the server reads."""
        while self._unsent and not self.wire.is_paused and not self.wire.is_closed:
            self.wire.protocol.data_received(self._unsent.popleft())

    def _told(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if self.waiting:
                words, sent = self.waiting[0]
                if ";" in words and _is_on_the_way(reply):
                    continue
                self.waiting.popleft()
                self._on_reply(self, words, sent, reply)
            elif self.on_push is not None:
                self.on_push(reply)
            else:
                raise AssertionError(f"nobody has asked for {reply!r}")


def _is_on_the_way(reply: Any) -> bool:
    """A reply to MULTI, or to a command that is queued: EXEC has the last word."""
    if isinstance(reply, hiredis.ReplyError):
        return not str(reply).startswith("EXECABORT")
    return reply in (b"OK", b"QUEUED")


def encoded(words: Request) -> bytes:
    """A request as it is sent."""
    if words[0] == "AB.READ":
        return encode_command(["AB.READ", "STREAMS", words[1], words[2]])
    if ";" not in words:
        return encode_command(words)
    commands = [("MULTI",), *parts(words), ("EXEC",)]
    return b"".join(map(encode_command, commands))


class Cursor:
    """A reader of AB.READ: how far it has come in a stream, and what it was given."""

    def __init__(self) -> None:
        self.token = "0"
        self.known: set[str] = set()
        self.is_asking = False

    def request(self, key: str) -> Request:
        """Go on reading."""
        self.is_asking = True
        return ("AB.READ", key, self.token, *sorted(self.known))

    def was_given(self, reply: Any) -> None:
        """The answer to that."""
        ((_, token, rows),) = reply
        self.token = token.decode()
        self.known.update(row[0].decode() for row in rows)


class Writing:
    """Makes up what the one writer of a database does next."""

    def __init__(self, db: int, chance: random.Random, *, regional: bool) -> None:
        self._db = db
        self._left_out = ("RENAME", "COPY", "SET", "INCR") if regional else ()
        self._chance = chance
        self._serial = 0

    def requests(self) -> list[Request]:
        """Some, to be sent together."""
        chance = self._chance
        found = [self._request() for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        if chance.random() < 0.15:
            found.append(chance.choice(SETTLING))
        elif chance.random() < 0.01:
            policy = chance.choice(("always", "everysec", "no"))
            found.append(("CONFIG", "SET", "appendfsync", policy))
        elif chance.random() < 0.2:
            found.append(a_read(chance))
        return found

    def _request(self) -> Request:
        if self._chance.random() < 0.2:
            words: list[str] = []
            for _ in range(self._chance.choice((1, 2, 3))):
                words += [*self._command(), ";"]
            self._serial += 1
            return (*words, "PUBLISH", f"c{self._db}", f"m{self._serial}")
        return self._command()

    def _command(self) -> Request:
        while (words := self._any_command())[0] in self._left_out:
            pass
        return words

    def _any_command(self) -> Request:
        chance = self._chance
        self._serial += 1
        stream, other = chance.choice(STREAMS), chance.choice(STREAMS)
        group = chance.choice(("g", "h"))
        taking = ("XREADGROUP", "GROUP", group, chance.choice("ab"))
        some = f"{chance.randint(max(self._serial - 12, 1), self._serial)}-0"
        return chance.choices(
            [
                ("XADD", stream, f"{self._serial}-0", "f", f"v{self._serial}"),
                ("XDEL", stream, some),
                ("XTRIM", stream, "MAXLEN", "=", chance.choice("0248")),
                ("XGROUP", "CREATE", stream, group, "0", "MKSTREAM"),
                (*taking, "COUNT", chance.choice("123"), "STREAMS", stream, ">"),
                ("XACK", stream, group, some),
                ("SET", chance.choice(TEXTS), f"v{self._serial}"),
                ("SET", f"x{self._serial}", "v"),  # whose event is like no other
                ("INCR", chance.choice(NUMBERS)),
                ("DEL", chance.choice(KEYS)),
                ("RENAME", stream, other),
                ("COPY", stream, other, "REPLACE"),
                ("FLUSHDB",),
            ],
            [30, 8, 4, 5, 10, 8, 10, 4, 6, 4, 2, 2, 1],
        )[0]


def a_read(chance: random.Random, *, may_block: bool = False) -> Request:
    """Something that tells of keys."""
    stream, other = chance.sample(STREAMS, 2)
    if may_block and chance.random() < 0.25:
        wait = chance.choice(("1", "30", "400", "5000"))
        return ("XREAD", "BLOCK", wait, "STREAMS", stream, chance.choice(("0", "5", "20", "60")))
    if chance.random() < 0.15:
        return (*a_read(chance), ";", *a_read(chance))
    return chance.choice(
        [
            ("XRANGE", stream, "-", "+"),
            ("XREVRANGE", stream, "+", "-"),
            ("XLEN", stream),
            ("XINFO", "STREAM", stream),
            ("XPENDING", stream, chance.choice(("g", "h"))),
            ("XREAD", "STREAMS", stream, other, "0", "0"),
            ("GET", chance.choice(TEXTS)),
            ("GET", chance.choice(NUMBERS)),
            ("EXISTS", chance.choice(KEYS), chance.choice(KEYS)),
            ("DBSIZE",),
            ("KEYS", "*"),
        ]
    )
