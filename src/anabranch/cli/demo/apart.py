"""Two steps while a region is cut off: a producer that fails over, and an entry that is late."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final

from anabranch.cli.cluster_files import HOST, Member
from anabranch.cli.demo.cluster import STREAM, DemoCluster
from anabranch.cli.demo.story import DemoClaim, StoryStep
from anabranch.cli.demo.traffic import Traffic

PRODUCER: Final = "shop-roaming"
MESSAGES: Final = 3


class FailOver(StoryStep):
    """A producer does not know whether its message was accepted, and sends it to another region."""

    title = "A producer fails over"

    def __init__(self, cluster: DemoCluster, alone: Member, other: Member) -> None:
        self._cluster, self._alone, self._other = cluster, alone, other
        self.text = (
            f"A producer sends {MESSAGES} orders to {alone.name} and loses the connection before "
            f"the answers come. So it sends them again, with the same idempotent IDs, to "
            f"{other.name}, which cannot know of them while the links are cut."
        )
        self._taken: dict[int, str] = {}
        self._taken_again: dict[int, str] = {}

    def _words(self, number: int) -> list[str]:
        text = str(number)
        return ["XADD", STREAM, "IDMP", PRODUCER, text, "*", "shop", PRODUCER, "order", text]

    def act(self) -> None:
        """Send, disconnect, send again."""
        for number in range(1, MESSAGES + 1):
            with socket.create_connection((HOST, self._alone.port)) as sock:
                sock.sendall(_packed(self._words(number)))
        self._cluster.until(
            lambda: len(self.entries_of(self._alone)) == MESSAGES,
            f"{self._alone.name} has taken the orders",
        )
        self._taken = self.entries_of(self._alone)
        for number in range(1, MESSAGES + 1):
            self._taken_again[number] = self._cluster.do(self._other, *self._words(number))

    def entries_of(self, member: Member) -> dict[int, str]:
        """ID of each order of this producer in a region."""
        return {
            int(fields["order"]): entry_id
            for entry_id, fields in self._cluster.entries(member).items()
            if fields["shop"] == PRODUCER
        }

    def copies(self, member: Member) -> list[int]:
        """Numbers of the orders of this producer in a region, one for each entry."""
        return sorted(
            int(fields["order"])
            for fields in self._cluster.entries(member).values()
            if fields["shop"] == PRODUCER
        )

    def shown_by(self) -> Sequence[str]:
        """A retry is answered with the ID of the existing entry."""
        words = " ".join(f"'{word}'" if word == "*" else word for word in self._words(1))
        return [f"redis-cli -p {self._other.port} {words}"]

    def claims(self) -> Iterable[DemoClaim]:
        """Both regions have accepted it for now; a retry in the same region adds nothing."""
        expected = list(range(1, MESSAGES + 1))
        yield DemoClaim(
            f"{self._alone.name} and {self._other.name} both took the orders, as neither knows of "
            "the other",
            self.copies(self._alone) == self.copies(self._other) == expected,
            f"{MESSAGES} orders",
        )
        again = {number: self._cluster.do(self._other, *self._words(number)) for number in expected}
        yield DemoClaim(
            f"a retry in {self._other.name} is answered with the entry that is there",
            again == self._taken_again and self.copies(self._other) == expected,
        )

    def claims_at_the_end(self) -> Iterable[DemoClaim]:
        """Checked after the cut: each order has one entry, and all regions have it."""
        expected = list(range(1, MESSAGES + 1))
        copies = {each.name: self.copies(each) for each in self._cluster.members}
        yield DemoClaim(
            "the producer that failed over is not doubled: each order is there once, everywhere",
            all(numbers == expected for numbers in copies.values()),
            f"{MESSAGES} orders, {2 * MESSAGES} were taken"
            if all(numbers == expected for numbers in copies.values())
            else str(copies),
        )
        answers = {
            tuple(self._cluster.do(each, *self._words(number)) for number in expected)
            for each in self._cluster.members
        }
        yield DemoClaim("every region answers another retry with the same entry", len(answers) == 1)


class LateEntry(StoryStep):
    """An entry that arrives behind higher IDs."""

    title = "An entry is late"

    def __init__(
        self, cluster: DemoCluster, traffic: Traffic, alone: Member, other: Member
    ) -> None:
        self._cluster, self._alone, self._other = cluster, alone, other
        self._consumer = next(each for each in traffic.consumers if each.home == other)
        self.text = (
            f"{alone.name} adds an entry. Readers in {other.name} go on and read entries with "
            "higher IDs; the entry arrives behind them, when the links are healed."
        )
        self.entry_id = ""
        self._last = ""
        self._token = ""

    def act(self) -> None:
        """Add the entry, and read behind it."""
        entry_id = self._cluster.do(self._alone, "XADD", STREAM, "*", "shop", "late", "order", 1)
        self.entry_id = entry_id
        self._cluster.until(
            lambda: self._read_past(entry_id), f"{self._other.name} has entries behind {entry_id}"
        )
        self._token, _ = self._read_on("0")
        self._cluster.until(
            lambda: any(
                _number(each) > _number(entry_id) for each in list(self._consumer.delivered)
            ),
            f"group {self._consumer.group} has read past {entry_id}",
        )

    def _read_past(self, entry_id: str) -> bool:
        rows: Any = self._cluster.client(self._other).xrevrange(STREAM, count=1)
        self._last = rows[0][0] if rows else "0-0"
        return _number(self._last) > _number(entry_id)

    def _read_on(self, cursor: str) -> tuple[str, set[str]]:
        """All entries behind a cursor of AB.READ; the next cursor, and the IDs."""
        found: set[str] = set()
        while True:
            ((_, cursor, rows),) = self._cluster.do(
                self._other, "AB.READ", "COUNT", 1000, "STREAMS", STREAM, cursor
            )
            if not rows:
                return cursor, found
            found.update(entry_id for entry_id, _ in rows)

    def shown_by(self) -> Sequence[str]:
        """A reader that keeps the last ID, and another one that keeps a cursor."""
        port = self._other.port
        return [
            f"redis-cli -p {port} XREAD COUNT 5 STREAMS {STREAM} {self._last}",
            f"redis-cli -p {port} AB.READ COUNT 5 STREAMS {STREAM} {self._token}",
        ]

    def claims(self) -> Iterable[DemoClaim]:
        """The entry is not there yet, and both readers have read behind its ID."""
        absent = not self._cluster.client(self._other).xrange(STREAM, self.entry_id, self.entry_id)
        yield DemoClaim(
            f"readers in {self._other.name} have read past an ID whose entry is not there yet",
            absent and _number(self._last) > _number(self.entry_id),
            f"{self.entry_id} is missing, {self._last} was read",
        )

    def claims_at_the_end(self) -> Iterable[DemoClaim]:
        """Checked after the cut: which reader got the entry."""
        reply: Any = self._cluster.client(self._other).xread({STREAM: self._last})
        by_id = {entry_id for _, rows in reply for entry_id, _ in rows}
        there = bool(self._cluster.client(self._other).xrange(STREAM, self.entry_id, self.entry_id))
        _, by_cursor = self._read_on(self._token)
        yield DemoClaim(
            "XREAD from the last ID skips the late entry, although it is there",
            there and self.entry_id not in by_id,
            self.entry_id,
        )
        yield DemoClaim(
            "AB.READ with its cursor returns the late entry", self.entry_id in by_cursor
        )
        yield DemoClaim(
            f"XREADGROUP delivered the late entry to {self._consumer.group}",
            self._consumer.delivered[self.entry_id] == 1,
        )


def _packed(words: list[str]) -> bytes:
    """A request as bytes."""
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def _number(entry_id: str) -> tuple[int, int]:
    ms, _, seq = entry_id.partition("-")
    return int(ms), int(seq)
