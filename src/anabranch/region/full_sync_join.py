"""Joins a full sync in slices of time. A key that a client asks for is joined before its turn.

The number of keys may be large, and nobody must see a key that is not joined yet. Until all are
joined,

* a request that names its keys runs as soon as these are joined, which takes a moment;
* a request that may read other keys as well (EXEC, scripts, SCAN, FLUSHALL, AB.WAITFOR) waits;
* no time passes for the data, no blocked command runs again, effects of other regions wait, as
  during a long transaction (:attr:`Scheduler.is_exclusive`).

The log has the join before the effects of these requests, and all keys are independent of one
another. So recovery, which joins all keys at once, comes to the same state.

Where no driver runs turns (most tests) everything is done at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.effects.join import KeyspaceJoin
from anabranch.engine.key_extraction import has_keys, keys_of
from anabranch.engine.session import Session
from anabranch.engine.spec import Command
from anabranch.region.state import RegionState

_OTHER_KEYS: Final = frozenset({"copy", "exec", "move"})
"""Commands that name keys, and read or change others: of another database, or of a transaction."""

_REASON: Final = "exclusive"


class FullSyncJoin:
    """One full sync that is joined key by key, in slices of time."""

    def __init__(
        self,
        region: RegionState,
        join: KeyspaceJoin,
        resolve_in: Callable[[int, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        """``on_end`` is called when all keys are joined.

        ``resolve_in`` resolves the conflicts in a key (database, key) that a client asks for.
        """
        self._region = region
        self._join = join
        self._steps = join.steps()
        self._resolve_in = resolve_in
        self._on_end = on_end

    def begin(self) -> bool:
        """Join what fits into the present slice; returns whether keys are left."""
        if not self._go_on():
            self._on_end()
            return False
        region = self._region
        region.scheduler.is_exclusive = True
        region.dispatcher.guarded_by.add(_REASON)
        region.dispatcher.may_run = self._may_run
        region.scheduler.schedule(self.go_on)
        return True

    def go_on(self) -> bool:
        """Join what fits into another slice. A :data:`anabranch.scheduling.Work`."""
        try:
            if self._go_on():
                return True
        except Exception as mistake:  # a bug of ours
            self._stop_server(mistake)
            return False
        self._end()
        return False

    def _stop_server(self, mistake: Exception) -> None:
        """Let nobody see data of which a part is joined; the log has the full sync."""
        host = self._region.host
        self._region.dispatcher.may_run = None
        self._region.scheduler.remove(self.go_on)
        host.log("error", "region.join_failed", error=repr(mistake), exc=mistake)
        host.shutdown(save=False, now=True, force=True)

    def complete(self) -> None:
        """Join all that is left now."""
        for _ in self._steps:
            pass
        self._region.scheduler.remove(self.go_on)
        self._end()

    def _go_on(self) -> bool:
        is_over = self._region.scheduler.is_over
        while next(self._steps, self) is None:
            if is_over():
                return True
        return False

    def _end(self) -> None:
        dispatcher = self._region.dispatcher
        self._region.scheduler.is_exclusive = False
        dispatcher.guarded_by.discard(_REASON)
        dispatcher.may_run = None
        dispatcher.release_postponed()
        self._on_end()

    def _may_run(self, session: Session, command: Command, args: list[bytes]) -> bool:
        """Whether a request can run now: it has no key, or its keys are joined, which this does."""
        if not has_keys(command):
            return "connection" in command.categories
        if command.name in _OTHER_KEYS or "script_runner" in command.flags:
            return False
        keys = keys_of(command, args)
        try:
            for key, _ in keys:
                self._join.join_key(session.db, key)
                self._resolve_in(session.db, key)
        except Exception as mistake:  # a bug of ours
            self._stop_server(mistake)
            return False
        return True
