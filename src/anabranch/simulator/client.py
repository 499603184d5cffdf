"""A client of a simulated process, which records the effects that its replies report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import hiredis

from anabranch.engine.session import Session
from anabranch.keyspace.replica import Replica
from anabranch.node.durability import Durability
from anabranch.region.region import Region
from anabranch.scheduling import NEVER
from anabranch.simulator.record import Violation
from anabranch.stream.shared import Dot


def run_at_once(region: Region, session: Session, words: list[bytes]) -> None:
    """Run a command to its end without slices: the caller needs the reply now."""
    scheduler = region.scheduler
    deadline_ns, scheduler.deadline_ns = scheduler.deadline_ns, NEVER
    region.execute(session, [words])
    scheduler.deadline_ns = deadline_ns


class ServingProcess(Protocol):
    """The process that serves the client."""

    region: Region
    durability: Durability
    replica: Replica

    @property
    def own_number(self) -> int:
        """The number of the last own effect."""

    def inspect(self, words: list[bytes]) -> Any:
        """The reply of a command that no client gets."""

    def was_reported(self, upto: Mapping[int, int], *, is_write: bool) -> None:
        """The client has received replies that may report these effects."""


@dataclass
class _Reported:
    """The effects that the replies of one turn may report, by replica ID."""

    upto: dict[int, int] = field(default_factory=dict)
    is_write: bool = False
    """Whether a command of the client has made effects for other regions."""
    then: list[Callable[[], None]] = field(default_factory=list)


class SimulatedClient:
    """A connection without a socket, which reads all replies at once."""

    has_more = False

    def __init__(self, process: ServingProcess) -> None:
        self._process = process
        self.session = process.region.open_session("127.0.0.1:1", "127.0.0.1:2")
        self.session.connection = self
        self._parser = hiredis.Reader()
        self._parsed = 0  # count of parsed parts of the outbox
        self._replies: deque[Any] = deque()
        self._reported = _Reported()  # by what is in the outbox
        self._held: deque[_Reported] = deque()

    # -- commands -----------------------------------------------------------------------------

    def do(self, words: list[bytes]) -> Any:
        """Run a command; returns its reply, an error reply as an exception.

        The caller gets the reply at once; the client gets it when the process releases it.
        """
        process = self._process
        before = process.own_number
        run_at_once(process.region, self.session, words)
        self._reported.is_write |= process.own_number != before
        return self.take_reply()

    def take_reply(self) -> Any:
        """The oldest reply that was not taken; None if there is none yet."""
        self._parse()
        return self._replies.popleft() if self._replies else None

    def _parse(self) -> None:
        outbox = self.session.outbox
        if len(outbox) == self._parsed:
            return
        self._parser.feed(b"".join(outbox[self._parsed :]))
        self._parsed = len(outbox)
        while (reply := self._parser.gets()) is not False:
            self._replies.append(reply)
        process = self._process
        if process.durability.trouble is None:  # a reply may report any effect
            self._reported.upto = dict(process.replica.vector)

    def reports(self, effects: Iterable[Dot]) -> None:
        """The replies so far report these effects, among others."""
        upto = self._reported.upto
        for replica_id, number in effects:
            upto[replica_id] = max(number, upto.get(replica_id, 0))

    def on_answer(self, action: Callable[[], None]) -> None:
        """Call ``action`` when the client has received the replies so far."""
        self._reported.then.append(action)

    # -- for the process ----------------------------------------------------------------------

    @property
    def waits_for_older(self) -> bool:
        """Whether replies of the session are held until the log is safe."""
        return bool(self._held)

    @property
    def unsent_bytes(self) -> int:
        """The bytes of replies that were taken from the outbox, and that the socket has not."""
        return 0  # replies are numbers of effects here

    def flush(self) -> None:
        """Write the outbox of the session, or pass it to :class:`HeldReplies`."""
        self._parse()
        outbox = self.session.outbox
        if not outbox:
            return
        held = self._process.durability.replies.hold(self, outbox)
        if not outbox:
            return  # the commit of a long turn has failed, and had them held
        outbox.clear()
        self._parsed = 0
        reported, self._reported = self._reported, _Reported()
        if held is None:
            self._got(reported)
        else:
            self._held.append(reported)

    def release(self, parts: list[bytes]) -> None:
        """Write the oldest held replies."""
        del parts
        self._got(self._held.popleft())

    def cut_off(self) -> None:
        """Disconnect without writing anything more. Another client comes in its place."""
        self._held.clear()

    def go_on_later(self) -> None:
        """Do nothing: no request waits here."""

    def _got(self, reported: _Reported) -> None:
        self._process.was_reported(reported.upto, is_write=reported.is_write)
        for action in reported.then:
            action()


class SlicedClient(SimulatedClient):
    """A client that dumps streams in slices: each payload must show the moment of its request."""

    def __init__(self, process: ServingProcess) -> None:
        super().__init__(process)
        self._expected: deque[Any] = deque()

    def dump(self, key: bytes) -> bool:
        """Request a DUMP, unless one is in progress; returns whether the scheduler has cut it."""
        if self.session.backlog:
            return False
        words = [b"DUMP", key]
        self._expected.append(self._process.inspect(words))
        self._process.region.execute(self.session, [words])
        return bool(self.session.backlog)

    def _parse(self) -> None:
        super()._parse()
        while self._replies:
            reply, expected = self._replies.popleft(), self._expected.popleft()
            # A read may be refused, because its key is withheld.
            if reply != expected and not isinstance(reply, Exception):
                raise Violation(28, "a DUMP in slices shows changes after its request")
