"""Whole regions in virtual time that find each other, without faults unless a test makes some."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from anabranch.config.settings import Settings
from anabranch.metrics.peers import PeerFigures
from anabranch.simulator.machine import HOST, Machine, Process
from anabranch.simulator.record import RunRecord
from anabranch.stream.stream import Stream
from tests.support.linked_world import LinkedWorld

__all__ = ["SimulatedCluster"]


class SimulatedCluster(LinkedWorld):
    """Regions 1 to ``count``, up and in one cluster."""

    def __init__(self, count: int = 2, **settings: Any) -> None:
        super().__init__(1)
        self.record = RunRecord(self.timeline)
        self.network.reached = self.record.reached
        self.alarms: list[tuple[int, Mapping[str, object]]] = []
        """Regions that reported that another one differs, and what they reported."""
        self.record.on_divergence = lambda number, facts: self.alarms.append((number, facts))
        self.machines = {
            number: Machine(
                Settings(region_id=number, **settings),
                self.timeline,
                self.network,
                self.record,
                random.Random(number),
                lambda _process: None,
            )
            for number in range(1, count + 1)
        }
        for machine in self.machines.values():
            machine.seeds = [] if machine.number == 1 else [(HOST, self.network.port(1))]
            machine.start(found=machine.number == 1)
        self.run_until(
            lambda: all(
                machine.process is not None
                and set(machine.process.replica.members) == set(self.machines)
                and all(peer.state == "in_sync" for peer in self.peers(machine.number))
                for machine in self.machines.values()
            )
        )

    def process(self, number: int) -> Process:
        process = self.machines[number].process
        assert process is not None
        return process

    def peers(self, number: int) -> list[PeerFigures]:
        return self.process(number).replicator.peers(self.now_ms)

    def do(self, number: int, *words: object) -> Any:
        """A command in a turn of its own; its reply, waited for. Error replies are raised."""
        process = self.process(number)
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        replies: list[Any] = []
        process.happen(lambda: replies.append(process.do(raw)))
        session = process.client.session
        if session.waiter is not None:

            def is_answered() -> bool:
                process.region.waking.answer_inquiries()
                return session.waiter is None

            self.run_until(is_answered)
            replies = [process.client.take_reply()]
        (reply,) = replies
        if isinstance(reply, Exception):
            raise reply
        return reply

    def write(self, number: int, *words: bytes) -> None:
        """A command of somebody else, whose reply nobody looks at."""
        process = self.process(number)
        session = process.region.open_session("127.0.0.1:3", "127.0.0.1:2")
        process.happen(lambda: process.region.execute(session, [list(words)]))
        process.region.close_session(session)

    def have_converged(self) -> bool:
        vectors = [self.process(number).replica.vector for number in self.machines]
        return all(vector == vectors[0] for vector in vectors)

    def stream(self, number: int, key: bytes) -> Stream:
        stream = self.process(number).region.keyspace.databases[0].values[key]
        assert type(stream) is Stream
        return stream

    def lose_entry(self, number: int, key: bytes) -> None:
        """Take the newest entry of region 1 away behind the back of everything."""
        stream = self.stream(number, key)
        log = stream.log_of(1)
        assert log.tail is not None
        log.remove_within(log.tail, [log.tail.last_live()])
        self.process(number).replica.last_effects.mark_changed((0, key))
