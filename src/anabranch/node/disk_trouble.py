"""What clients get while the disk does not accept writes, and after a sync that failed.

Writing commands are refused with MISCONF. Reads are served, except for reads of keys whose last
change a crash would undo (:mod:`anabranch.engine.withheld`). After a failed sync both
rules apply until a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.effects.write_set import WriteSet
from anabranch.engine.withheld import Withheld
from anabranch.node.driver import Driver
from anabranch.oplog.log import LOST
from anabranch.region.region import Region

LOG_EVERY_S: Final = 60.0
"""The interval between two log lines about trouble that continues."""


class DiskTrouble:
    """Whether the disk of a process is in trouble, and what is refused meanwhile."""

    def __init__(self, region: Region, driver: Driver, unsafe: Callable[[], WriteSet]) -> None:
        """``unsafe`` finds the effects that are not as safe as ``appendfsync`` asks."""
        self._region = region
        self._driver = driver
        self._unsafe = unsafe
        self._lost: WriteSet | None = None  # the write set of unsafe effects when a sync failed
        self._logged_at = -LOG_EVERY_S
        self.withheld = Withheld(self._not_told)
        """The reads that are refused during trouble."""
        self.reason: str | None = None
        """Why writing commands are refused, None if they are not."""
        self.is_final = False
        """A sync failed: only a restart ends the trouble."""

    def report(self, reason: str, waiting_bytes: int) -> None:
        """The disk does not accept writes at present."""
        if not self._begin(reason):
            return
        if reason == LOST:
            self._log("error", "oplog.directory_lost", reason=reason)
        else:
            self._log("error", "oplog.write_failed", reason=reason, waiting_bytes=waiting_bytes)

    def sync_failed(self, problem: BaseException) -> None:
        """A sync failed: the contents of the disk are unknown."""
        self.is_final = True
        self._lost = self._write_set()
        reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        self._begin(f"fsync failed: {reason}")
        self._log("error", "oplog.sync_failed", reason=reason)

    def end(self) -> None:
        """Everything is written: the trouble is over."""
        if self.reason is not None:
            self.reason = None
            region = self._region
            region.dispatcher.allow_writes("disk")
            region.dispatcher.withheld = None
            events, self.withheld.events = self.withheld.events, []
            region.events.publish(events)
            self._log("warning", "oplog.writes_again")

    def _begin(self, reason: str) -> bool:
        """Refuse writes, and reads of what is not safe.

        Returns whether to log it: the trouble is new, or its last log line was long ago.
        """
        if self.reason is None:
            self._hold_what_was_made()
        now = self._driver.now_s()
        is_new = self.reason != reason or now - self._logged_at >= LOG_EVERY_S
        if is_new:
            self._logged_at = now
        self.reason = reason
        dispatcher = self._region.dispatcher
        refusal = f"MISCONF Errors writing to the AOF file: {reason}"
        dispatcher.refuse_writes("disk", refusal)
        self.withheld.say(refusal, "a restart" if self.is_final else "the disk accepts writes")
        dispatcher.withheld = self.withheld
        return is_new

    def _hold_what_was_made(self) -> None:
        """Hold the replies that were made before the trouble: they may report unsafe effects."""
        context = self._region.context
        if context.in_exec:
            context.session.outbox.append(b"")  # a reply will come, behind this
        for session in list(self._region.sessions.values()):
            if session.outbox and session.connection is not None:
                session.connection.flush()

    def _not_told(self) -> WriteSet:
        """The write set of effects that are not safe."""
        return WriteSet() if self._region.settings.serve_unsafe_reads else self._write_set()

    def _write_set(self) -> WriteSet:
        return self._unsafe() if self._lost is None else self._lost

    @property
    def unsafe_keys(self) -> int:
        """How many keys cannot be read because a crash would undo their last change; -1: all.

        0 without trouble.
        """
        if self.reason is None:
            return 0
        write_set = self._write_set()
        return -1 if write_set.everything else len(write_set.keys)

    def _log(self, level: str, event: str, **facts: object) -> None:
        self._region.host.log(level, event, **facts)
