"""What the policies of a group promise, checked from outside: by replies, and by what is shown.

The watch of a region knows which worker was given which entry, which connections are open, and when
a name was last used. It knows nothing of how the server decides. It looks at every hand-over at the
moment of the decision, before a client gets the reply, and at the whole group several times a
second:

======== ===========================================================================================
held     with ``lease connection`` nobody is given an entry while a connection of its consumer is
         open, nor before the grace is over; with ``heartbeat`` and ``time`` not before the consumer
         was silent, or the entry out, for long enough
late     what is over is released within a second, and given to a reader that waits
twice    what was acknowledged is never handed out again; an XACK counts unless another one has the
         entry, and then it counts for nothing
lost     each entry is pending, acknowledged, a dead letter, or not handed out yet
dead     an entry is given up after ``max-deliveries`` and not before, and has one copy
waits    nothing is handed out before its backoff is over; nobody has more than ``max-pending``
life     ``consumer-ttl`` removes who is gone, and nobody else
kept     retention removes nothing that the group still needs
======== ===========================================================================================
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.simulator.record import Violation
from anabranch.simulator.workload import parsed_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from anabranch.simulator.machine import Process

__all__ = ["DEAD", "GROUP", "KEY", "LATE_MS", "GroupRules", "Watch", "require"]

KEY: Final = b"jobs"
GROUP: Final = b"g"
DEAD: Final = b"dead"
LATE_MS: Final = 1000
"""How late a release may come."""
UNKNOWN_MS: Final = 10_000
"""The time for which a consumer may stay away after a start (docs/policies.md)."""


def require(kept: bool, promise: str, what: str) -> None:
    """Raise a violation of a promise unless it was kept."""
    if not kept:
        raise Violation(0, f"{promise}: {what}")


@dataclass(frozen=True)
class GroupRules:
    """The policies of the group in a run; 0 is none."""

    mode: str
    """connection, heartbeat or time."""
    lease_ms: int
    deliveries: int = 0
    delays: tuple[int, ...] = ()
    room: int = 0
    """Of each consumer."""
    ttl_ms: int = 0
    keeps: bool = False
    creates: bool = False

    def words(self) -> list[str]:
        """As AB.POLICY SET takes them."""
        found = ["lease", f"{self.mode}:{self.lease_ms}"]
        if self.deliveries:
            found += ["max-deliveries", f"{self.deliveries}", "dead-letter", DEAD.decode()]
        if self.delays:
            found += ["backoff", ",".join(f"{each}ms" for each in self.delays)]
        if self.room:
            found += ["max-pending", f"consumer:{self.room}"]
        if self.ttl_ms:
            found += ["consumer-ttl", f"{self.ttl_ms}ms"]
        if self.keeps:
            found += ["keep", "unacked", "exact", "yes", "max-length", "2"]
        if self.creates:
            found += ["auto-create-group", f"{GROUP.decode()}:0"]
        return found


@dataclass
class Given:
    """An entry that a consumer has been given."""

    name: bytes
    at_ms: int
    """When its time begins."""


@dataclass
class Everywhere:
    """What all regions know of: entries that were confirmed, acknowledged, or given up."""

    added: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    sure: set[bytes] = field(default_factory=set)
    """Of these, those whose acknowledgement a client has heard of: no end of a region undoes it."""
    dead: set[bytes] = field(default_factory=set)

    @property
    def over(self) -> set[bytes]:
        """What nobody needs any more."""
        return self.acked | self.dead


class Watch:
    """What the clients of one region know, and must find."""

    def __init__(self, rules: GroupRules, everywhere: Everywhere, *, is_alone: bool) -> None:
        self.rules = rules
        self.everywhere = everywhere
        self.is_alone = is_alone
        self.given: dict[bytes, Given] = {}
        self.counts: Counter[bytes] = Counter()
        self.users: dict[object, set[bytes]] = {}
        """By open connection, the names that it has used."""
        self.seen_ids: set[bytes] = set()
        self.reached: Counter[str] = Counter()
        self._beat: dict[bytes, int] = {}
        self._left: dict[bytes, int] = {}
        self._free_ms: dict[bytes, int] = {}  # when the lease of what was released was over
        self._nacked: set[bytes] = set()
        self._former: dict[bytes, bytes] = {}
        self._waits_since: dict[bytes, int] = {}
        self._started_ms = self._runs_since_ms = 0
        self._is_new = True
        self._unsure: set[bytes] = set()  # acknowledged, and no client has got the reply
        self._acked_here: set[bytes] = set()
        self._dead_here: set[bytes] = set()  # given up, and a loss of power would undo it

    # -- the process -----------------------------------------------------------------------------

    def starts(self, now_ms: int, unsure: Collection[bytes]) -> None:
        """A process has begun; ``unsure`` are entries of which no client got the last reply."""
        for each in (self.users, self._beat, self._left, self._former, self._waits_since):
            each.clear()
        self._started_ms = self._runs_since_ms = now_ms
        self._is_new = True
        self.seen_ids &= self.everywhere.added
        self._unsure = {each for each in unsure if each in self.everywhere.acked}
        for entry_id in unsure:
            self.given.pop(entry_id, None)
            self._free_ms.pop(entry_id, None)
            if entry_id in self._acked_here - self.everywhere.sure:
                self.everywhere.acked.discard(entry_id)
        # Those that are kept are found again by the first look.
        self.everywhere.dead -= self._dead_here
        self._dead_here.clear()

    def stood_still(self, now_ms: int) -> None:
        """The process was paused: nothing could happen until now."""
        self._runs_since_ms = now_ms
        self._waits_since.clear()

    def opened(self, connection: object) -> None:
        """A connection."""
        self.users[connection] = set()

    def closed(self, connection: object, now_ms: int) -> None:
        """The server has seen its end."""
        for name in self.users.pop(connection, ()):
            if not self._holders(name):
                self._left[name] = now_ms

    def _holders(self, name: bytes) -> bool:
        return any(name in names for names in self.users.values())

    def used(self, connection: object, name: bytes, now_ms: int) -> None:
        """A connection used the name of a consumer."""
        if connection in self.users:
            self.users[connection].add(name)
        self._beat[name] = now_ms

    # -- leases ----------------------------------------------------------------------------------

    def over_ms(self, entry_id: bytes) -> int | None:
        """When the lease of an entry is over, as far as is known; None: it is held."""
        given, rules = self.given[entry_id], self.rules
        over: int | None
        if rules.mode == "time":
            over = given.at_ms + rules.lease_ms
        elif rules.mode == "heartbeat":
            over = self._since(given.name, self._beat)
        else:
            over = None if self._holders(given.name) else self._since(given.name, self._left)
        if rules.ttl_ms and not self._holders(given.name):
            life = self._life_over_ms(given.name)
            over = life if over is None else min(over, life)
        return over

    def _since(self, name: bytes, signs: dict[bytes, int]) -> int:
        """When a lease ends that began with the last of such signs."""
        if name in signs:
            return signs[name] + self.rules.lease_ms
        return self._started_ms + max(UNKNOWN_MS, self.rules.lease_ms)

    def _life_over_ms(self, name: bytes) -> int:
        """From when on ``consumer-ttl`` may remove a consumer without a connection."""
        signs = [each[name] for each in (self._beat, self._left) if name in each]
        unknown = self._started_ms + max(UNKNOWN_MS - self.rules.lease_ms, 0)
        return max(signs, default=unknown) + self.rules.ttl_ms

    def overs(self) -> dict[bytes, int | None]:
        """Of every entry; to be asked for before somebody is served."""
        return {entry_id: self.over_ms(entry_id) for entry_id in self.given}

    def handed(
        self,
        name: bytes,
        ids: Iterable[bytes],
        overs: dict[bytes, int | None],
        now_ms: int,
        *,
        counts: bool = True,
    ) -> None:
        """A consumer is given entries; ``counts``: that is a delivery."""
        for entry_id in ids:
            known = self.given.get(entry_id)
            is_over = entry_id in self.everywhere.over if self.is_alone else False
            require(not is_over, "twice", f"{entry_id!r} was acknowledged, or is a dead letter")
            if known is not None:
                self._released(entry_id, known, overs.get(entry_id), now_ms)
            self._delay_is_over(entry_id, now_ms)
            self.given[entry_id] = Given(name, now_ms)
            self.counts[entry_id] += counts
            self.reached["handed out again"] += self.counts[entry_id] > 1
            most = self.rules.deliveries
            require(
                not most or self.counts[entry_id] <= most,
                "dead", f"{entry_id!r} is handed out {self.counts[entry_id]} times",
            )  # fmt: skip
            self._nacked.discard(entry_id)
            self._free_ms.pop(entry_id, None)
            self._waits_since.pop(entry_id, None)

    def freed(self, entry_id: bytes, overs: dict[bytes, int | None], now_ms: int) -> None:
        """An entry is shown as released."""
        known = self.given.get(entry_id)
        if known is not None:
            self._released(entry_id, known, overs.get(entry_id), now_ms)

    def _released(self, entry_id: bytes, given: Given, over: int | None, now_ms: int) -> None:
        """An entry was taken from the consumer that was given it."""
        require(over is not None, "held", f"{given.name!r} holds {entry_id!r}, and loses it")
        assert over is not None
        early = over - now_ms
        require(early <= 0, "held", f"{entry_id!r} is taken from {given.name!r} {early} ms early")
        self._free_ms[entry_id] = over
        self._former[entry_id] = given.name
        self.reached["lease over"] += 1
        del self.given[entry_id]

    def _delay_is_over(self, entry_id: bytes, now_ms: int) -> None:
        """The backoff of an entry that was released."""
        delays, count, free_ms = self.rules.delays, self.counts[entry_id], self._free_ms
        if delays and count and entry_id in free_ms:
            delay = delays[min(count, len(delays)) - 1]
            early = free_ms[entry_id] + delay - now_ms
            require(early <= 0, "waits", f"{entry_id!r} is handed out {early} ms too early")
            self.reached["waited"] += 1

    # -- what clients do -------------------------------------------------------------------------

    def gave_back(self, entry_id: bytes, now_ms: int) -> None:
        """XNACK has released an entry."""
        known = self.given.pop(entry_id, None)
        if known is not None:
            self._former[entry_id] = known.name
        self._free_ms[entry_id] = now_ms
        self._nacked.add(entry_id)

    def counts_for(self, connection: object, entry_id: bytes) -> bool:
        """Whether an XACK or XNACK of an entry counts, as far as this region knows."""
        known = self.given.get(entry_id)
        if known is None:
            return entry_id not in self.everywhere.over
        names = self.users.get(connection, set())
        former = self._former.get(entry_id)
        return former in (None, known.name) or known.name in names or former not in names

    def acknowledged(self, entry_id: bytes) -> None:
        """XACK has counted."""
        self.everywhere.acked.add(entry_id)
        self._acked_here.add(entry_id)
        self.given.pop(entry_id, None)
        self._free_ms.pop(entry_id, None)

    # -- the whole group -------------------------------------------------------------------------

    def look(self, process: Process, waiting: Collection[bytes], now_ms: int) -> None:
        """Compare all that is shown with what must be; ``waiting`` are consumers in a read."""
        rows = process.inspect([b"XPENDING", KEY, GROUP, b"-", b"+", b"1000"])
        if isinstance(rows, Exception):
            require(not self.given, "lost", f"the group is gone: {rows}")
            return
        shown = {entry_id: (owner, idle, count) for entry_id, owner, idle, count in rows}
        self.look_at_dead(process)
        if self._is_new:
            self._resume(process, shown, now_ms)
            self._is_new = False
        overs = self.overs()
        for entry_id, (owner, _, count) in shown.items():
            known = self.given.get(entry_id)
            require(
                entry_id not in self.everywhere.over or not self.is_alone,
                "twice", f"{entry_id!r} is pending, and was acknowledged or given up",
            )  # fmt: skip
            if owner:
                require(known is not None and known.name == owner, "lost",
                        f"{owner!r} has {entry_id!r}, and was not given it")  # fmt: skip
                require(count == self.counts[entry_id], "lost",
                        f"{entry_id!r} counts {count}, not {self.counts[entry_id]}")  # fmt: skip
                self._in_time(entry_id, overs[entry_id], now_ms)
            else:
                self._is_served(entry_id, waiting, now_ms)
        gone = self.given.keys() - shown.keys() - self.everywhere.over
        require(not gone, "lost", f"{gone} are not pending any more")
        for entry_id in self.given.keys() & self.everywhere.over - shown.keys():
            del self.given[entry_id]  # what another region has acknowledged
        self._look_at_consumers(process, waiting, now_ms)
        self._look_at_entries(process)

    def _in_time(self, entry_id: bytes, over: int | None, now_ms: int) -> None:
        if over is not None:
            late = now_ms - max(over, self._runs_since_ms)
            require(late <= LATE_MS, "late", f"{entry_id!r} is released {late} ms too late")

    def _is_served(self, entry_id: bytes, waiting: Collection[bytes], now_ms: int) -> None:
        """A released entry does not wait while a reader with room does."""
        delay = 0
        if self.rules.delays:
            count = self.counts[entry_id]
            delay = self.rules.delays[min(max(count, 1), len(self.rules.delays)) - 1]
        held = Counter(each.name for each in self.given.values())
        can_read = any(not self.rules.room or held[name] < self.rules.room for name in waiting)
        if not can_read:
            self._waits_since.pop(entry_id, None)
            return
        since = self._waits_since.setdefault(entry_id, now_ms)
        waits = now_ms - since - delay
        require(waits <= LATE_MS, "late", f"{entry_id!r} is free, and nobody is given it")

    def _resume(
        self, process: Process, shown: dict[bytes, tuple[bytes, int, int]], now_ms: int
    ) -> None:
        """A start: what clients could not know is as the server shows it."""
        for row in process.inspect([b"XINFO", b"GROUPS", KEY]):
            last = parsed_id(row[row.index(b"last-delivered-id") + 1])
            done = {each for each in self._unsure - shown.keys() if parsed_id(each) <= last}
            self.everywhere.acked |= done - self.everywhere.dead
            self._acked_here |= done
        for entry_id, (owner, idle, count) in shown.items():
            is_over = self.is_alone and entry_id in self.everywhere.acked
            if owner and entry_id not in self.given and not is_over:
                self.given[entry_id] = Given(owner, now_ms - idle)
            if entry_id in self.given:
                require(count >= self.counts[entry_id] - 1, "lost", f"{entry_id!r} counts {count}")
            self.counts[entry_id] = count
        for entry_id in self.counts.keys() - shown.keys() - self.given.keys():
            del self.counts[entry_id]

    def look_at_dead(self, process: Process) -> None:
        """Compare the dead letters with what was handed out."""
        letters: Counter[bytes] = Counter()
        for _, words in process.inspect([b"XRANGE", DEAD, b"-", b"+"]):
            letter = dict(zip(words[::2], words[1::2], strict=True))
            origin = letter[b"ab-id"]
            letters[origin] += 1
            if origin not in self.everywhere.dead:
                self._died(origin, letter)
        if _is_kept(process):
            self._dead_here.clear()
        twice = [entry_id for entry_id, count in letters.items() if count > 1]
        require(not (self.is_alone and twice), "dead", f"{twice} have several copies")

    def _died(self, origin: bytes, letter: dict[bytes, bytes]) -> None:
        """A dead letter is new."""
        self.reached["dead letter"] += 1
        most = self.rules.deliveries
        require(int(letter[b"ab-deliveries"]) == most, "dead",
                f"{origin!r} is given up after {letter[b'ab-deliveries']!r}")  # fmt: skip
        require(letter[b"task"] != b"", "dead", f"the fields of {origin!r} are gone")
        if self.is_alone:
            require(origin not in self.everywhere.acked, "dead", f"{origin!r} was acknowledged")
            self.given.pop(origin, None)
        self.everywhere.dead.add(origin)
        self._dead_here.add(origin)

    def _look_at_consumers(self, process: Process, waiting: Collection[bytes], now_ms: int) -> None:
        if not self.rules.ttl_ms:
            return
        rows = process.inspect([b"XINFO", b"CONSUMERS", KEY, GROUP])
        names = {row[1] for row in rows}
        for name in waiting:
            require(name in names, "life", f"{name!r} waits, and was removed")
        for name in names:
            if self._holders(name) or name not in self._left:
                continue
            gone_ms = now_ms - max(self._life_over_ms(name), self._runs_since_ms)
            require(gone_ms <= 2 * LATE_MS, "life", f"{name!r} is still there")
        self.reached["consumer removed"] += len(self._left.keys() - names)

    def _look_at_entries(self, process: Process) -> None:
        ids = {row[0] for row in process.inspect([b"XRANGE", KEY, b"-", b"+"])}
        self.seen_ids |= ids
        gone = self.seen_ids - ids - self.everywhere.over
        require(not gone, "kept", f"{gone} are removed, and nobody has done them")
        self.reached["removed by retention"] += len(self.seen_ids - ids)


def _is_kept(process: Process) -> bool:
    """Whether a new start would find everything; without ``always`` no run loses power."""
    durability = process.durability
    assert durability.log is not None
    is_strict = process.region.settings.appendfsync == "always"
    kept = durability.synced if is_strict else durability.log.end
    return kept == durability.position
