"""Virtual time for one process, and workers whose work takes virtual time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.engine.host import HostPersistence, HostRegions
from anabranch.engine.script_machine import ScriptMachine
from anabranch.engine.session import Session
from anabranch.node.driver import WorkFuture
from anabranch.server.cron import next_by_cron
from anabranch.simulator.timeline import Timeline


class Later:
    """Work that is done at its time, or earlier if the process waits for it."""

    def __init__(self, worker: SimulatedWorker, work: Callable[[], object]) -> None:
        self._worker = worker
        self._work = work
        self._is_done = False
        self._result: object = None
        self._problem: BaseException | None = None

    def do(self) -> None:
        """Do the work."""
        try:
            self._result = self._work()
        except Exception as problem:
            self._problem = problem
        self._is_done = True

    def done(self) -> bool:
        """Whether the work has ended."""
        return self._is_done

    def result(self) -> Any:
        """Block until the work has ended, and return its result; raises what it raised."""
        problem = self.exception()
        if problem is not None:
            raise problem
        return self._result

    def exception(self) -> BaseException | None:
        """Block until the work has ended, and return what it raised; None if nothing."""
        self._worker.do_until(self)
        return self._problem


class SimulatedWorker:
    """A worker whose work takes some virtual time."""

    def __init__(self, after: Callable[[Callable[[], None]], None]) -> None:
        """``after`` calls a function when the work has taken its time."""
        self._after = after
        self._queue: deque[Later] = deque()

    def start(self) -> None:
        """Become ready. Raises :class:`OSError` if the system cannot start a thread."""

    def submit(
        self, work: Callable[[], object], then: Callable[[WorkFuture], object] | None = None
    ) -> WorkFuture:
        """Do ``work``; when it has ended, ``then`` is called in a turn of the process."""
        later = Later(self, work)
        self._queue.append(later)

        def over() -> None:
            self.do_until(later)
            if then is not None:
                then(later)

        self._after(over)
        return later

    def do_until(self, last: Later) -> None:
        """Do all work up to this piece."""
        while not last.done():
            self._queue.popleft().do()

    def close(self) -> None:
        """Finish all work, then end."""
        while self._queue:
            self._queue.popleft().do()


class _VirtualTimer:
    def __init__(self, action: Callable[[], object]) -> None:
        self._action: Callable[[], object] | None = action

    def cancel(self) -> None:
        self._action = None

    def fire(self) -> None:
        if self._action is not None:
            self._action()


class SimulatedDriver:
    """Virtual time, timers and workers of one process."""

    def __init__(
        self,
        timeline: Timeline,
        happen: Callable[[Callable[[], None]], None],
        chance: random.Random,
        work_ms: Sequence[float],
        late_ms: Sequence[float],
    ) -> None:
        """``happen`` runs a function as an event of the process, if the process still runs.

        ``work_ms`` is the range of the duration of work, ``late_ms`` that of the delay of timers.
        """
        self._timeline = timeline
        self._happen = happen
        self._chance = chance
        self._work_ms = work_ms
        self._late_ms = late_ms
        self.least_work_ms = 0.0
        """The least duration of a piece of work while the disk is slow."""
        self.is_held = False
        """Whether work is done only by :meth:`finish_work`, or where the process waits for it."""
        self._soon: deque[Callable[[], object]] = deque()
        self._held: list[Callable[[], None]] = []

    def now_s(self) -> float:
        """A monotonic clock, in seconds."""
        return self._timeline.now_ms / 1000

    def call_soon(self, action: Callable[[], object]) -> object:
        """Call ``action`` when the present turn is over, before anything else happens."""
        self._soon.append(action)
        return None

    def end_turn(self) -> None:
        """The turn is over: call what :meth:`call_soon` got."""
        while self._soon:
            self._soon.popleft()()

    def call_later(self, delay_s: float, action: Callable[[], object]) -> _VirtualTimer:
        """Call ``action`` after a delay."""
        timer = _VirtualTimer(action)
        late_ms = self._chance.choice(self._late_ms)
        self._timeline.after(delay_s * 1000 + late_ms, lambda: self._happen(timer.fire))
        return timer

    def worker(self, name: str) -> SimulatedWorker:
        """Make a new worker; the name is shown in lists of threads."""
        del name
        return SimulatedWorker(self._work)

    @property
    def is_waiting(self) -> bool:
        """Whether there is work for :meth:`finish_work`."""
        return bool(self._held)

    def finish_work(self) -> None:
        """Do the work that is held."""
        held, self._held = self._held, []
        for over in held:
            self._happen(over)

    def _work(self, over: Callable[[], None]) -> None:
        if self.is_held:
            self._held.append(over)
            return
        work_ms = max(self._chance.choice(self._work_ms), self.least_work_ms)
        self._timeline.after(work_ms, lambda: self._happen(over))


# -- the host of a simulated region: random numbers from a seed, and no log -------------------


class SimulatedHost:
    """What commands need of a simulated process. A mistake of a command ends the run."""

    def __init__(self, chance: random.Random) -> None:
        self.persistence: HostPersistence
        self.regions: HostRegions | None = None
        self._chance = chance

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes (ACL GENPASS, run IDs)."""
        return self._chance.randbytes(count)

    def random_below(self, bound: int) -> int:
        """A uniform choice (RANDOMKEY)."""
        return self._chance.randrange(bound)

    def next_by_cron(self, line: bytes, zone: bytes, after_ms: int) -> int | None:
        """The first time of a cron line after another one, as a server finds it."""
        return next_by_cron(line, zone, after_ms)

    def script_machine(self) -> ScriptMachine:
        """Simulated clients send no scripts."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """Time does not pass within an event."""

    def log(self, level: str, event: str, **fields: object) -> None:
        """Write an operator's log line."""
        mistake = fields.get("exc")
        if isinstance(mistake, Exception):
            raise mistake

    def close(self, session: Session) -> None:
        """Close a connection once its outbox is written."""
        session.closing = True

    def shutdown(self, *, save: bool | None, now: bool, force: bool) -> None:
        """Processes end when a fault ends them."""

    def process_info(self) -> dict[str, object]:
        """Facts for INFO: pid, memory, CPU times, versions, paths (see server/process.py)."""
        return {}

    def give_back_memory(self) -> None:
        """There is no process of its own."""

    def rewrite_config(self, users: list[list[bytes]]) -> None:
        """Do nothing: a simulated process has no configuration file."""

    def read_acl_file(self) -> str:
        """Nothing: a simulated process has no ACL file."""
        return ""

    def write_acl_file(self, text: str) -> None:
        """Do nothing: a simulated process has no ACL file."""

    def apply_setting(self, name: str) -> None:
        """Nothing outside the core has settings."""
