"""Two steps while a region is cut off: a producer that fails over, and an entry that is late.

What they have begun is checked once more when the links are healed.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from hiredis import pack_command

from anabranch.cli.cluster_files import HOST, Member
from anabranch.cli.demo.cluster import STREAM, DemoCluster
from anabranch.cli.demo.story import DemoClaim, Scene, StoryStep
from anabranch.cli.demo.traffic import Traffic
from anabranch.stream.entry_id import parse

PRODUCER: Final = "shop-roaming"
MESSAGES: Final = 3
_NUMBERS: Final = list(range(1, MESSAGES + 1))


class FailOver:
    """A producer does not know whether its message was accepted, and sends it to another region."""

    def __init__(self, cluster: DemoCluster, alone: Member, other: Member) -> None:
        self._cluster, self._alone, self._other = cluster, alone, other

    def _words(self, number: int) -> list[str]:
        text = str(number)
        return ["XADD", STREAM, "IDMP", PRODUCER, text, "*", "shop", PRODUCER, "order", text]

    def _sent_to(self, member: Member) -> list[str]:
        """The IDs with which a region answers the orders of this producer."""
        return [self._cluster.do(member, *self._words(number)) for number in _NUMBERS]

    def copies(self, member: Member) -> list[int]:
        """Numbers of the orders of this producer in a region, one for each entry."""
        return sorted(
            int(fields["order"])
            for fields in self._cluster.entries(member).values()
            if fields["shop"] == PRODUCER
        )

    def tell(self) -> StoryStep:
        """Send, disconnect, send again: both regions have accepted the orders for now."""
        alone, other = self._alone, self._other
        yield Scene(
            "A producer fails over",
            f"A producer sends {MESSAGES} orders to {alone.name} and loses the connection before "
            f"the answers come. So it sends them again, with the same idempotent IDs, to "
            f"{other.name}, which cannot know of them while the links are cut.",
        )
        for number in _NUMBERS:
            with socket.create_connection((HOST, alone.port)) as sock:
                sock.sendall(pack_command(tuple(self._words(number))))  # type: ignore[arg-type]
        self._cluster.until(
            lambda: len(self.copies(alone)) == MESSAGES, f"{alone.name} has taken the orders"
        )
        taken_again = self._sent_to(other)
        words = " ".join(f"'{word}'" if word == "*" else word for word in self._words(1))
        yield f"redis-cli -p {other.port} {words}"
        yield DemoClaim(
            f"{alone.name} and {other.name} both took the orders, as neither knows of the other",
            self.copies(alone) == self.copies(other) == _NUMBERS,
            f"{MESSAGES} orders",
        )
        yield DemoClaim(
            f"a retry in {other.name} is answered with the entry that is there",
            self._sent_to(other) == taken_again and self.copies(other) == _NUMBERS,
        )

    def tell_the_end(self) -> StoryStep:
        """Checked after the cut: each order has one entry, and all regions have it."""
        copies = {each.name: self.copies(each) for each in self._cluster.members}
        is_so = all(numbers == _NUMBERS for numbers in copies.values())
        yield DemoClaim(
            "the producer that failed over is not doubled: each order is there once, everywhere",
            is_so,
            f"{MESSAGES} orders, {2 * MESSAGES} were taken" if is_so else str(copies),
        )
        answers = {tuple(self._sent_to(each)) for each in self._cluster.members}
        yield DemoClaim("every region answers another retry with the same entry", len(answers) == 1)


class LateEntry:
    """An entry that arrives behind higher IDs."""

    def __init__(
        self, cluster: DemoCluster, traffic: Traffic, alone: Member, other: Member
    ) -> None:
        self._cluster, self._alone, self._other = cluster, alone, other
        self._consumer = next(each for each in traffic.consumers if each.home == other)
        self._entry_id = ""
        self._last = ""
        self._token = ""

    def tell(self) -> StoryStep:
        """Add the entry, and read behind it: it is not there yet."""
        alone, other, cluster = self._alone, self._other, self._cluster
        yield Scene(
            "An entry is late",
            f"{alone.name} adds an entry. Readers in {other.name} go on and read entries with "
            "higher IDs; the entry arrives behind them, when the links are healed.",
        )
        self._entry_id = entry_id = cluster.do(
            alone, "XADD", STREAM, "*", "shop", "late", "order", 1
        )
        cluster.until(
            lambda: self._read_past(entry_id), f"{other.name} has entries behind {entry_id}"
        )
        self._token, _ = self._read_on("0")
        delivered = self._consumer.delivered
        cluster.until(
            lambda: any(_number(each) > _number(entry_id) for each in list(delivered)),
            f"group {self._consumer.group} has read past {entry_id}",
        )
        yield f"redis-cli -p {other.port} XREAD COUNT 5 STREAMS {STREAM} {self._last}"
        yield f"redis-cli -p {other.port} AB.READ COUNT 5 STREAMS {STREAM} {self._token}"
        absent = not cluster.client(other).xrange(STREAM, entry_id, entry_id)
        yield DemoClaim(
            f"readers in {other.name} have read past an ID whose entry is not there yet",
            absent and _number(self._last) > _number(entry_id),
            f"{entry_id} is missing, {self._last} was read",
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

    def tell_the_end(self) -> StoryStep:
        """Checked after the cut: which reader got the entry."""
        entry_id, client = self._entry_id, self._cluster.client(self._other)
        reply: Any = client.xread({STREAM: self._last})
        by_id = {each for _, rows in reply for each, _ in rows}
        there = bool(client.xrange(STREAM, entry_id, entry_id))
        _, by_cursor = self._read_on(self._token)
        yield DemoClaim(
            "XREAD from the last ID skips the late entry, although it is there",
            there and entry_id not in by_id,
            entry_id,
        )
        yield DemoClaim("AB.READ with its cursor returns the late entry", entry_id in by_cursor)
        yield DemoClaim(
            f"XREADGROUP delivered the late entry to {self._consumer.group}",
            self._consumer.delivered[entry_id] == 1,
        )


def _number(entry_id: str) -> int:
    return parse(entry_id.encode())
