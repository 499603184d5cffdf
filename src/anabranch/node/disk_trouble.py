"""What clients get while the disk takes no writes, and after a sync that failed.

Writing commands are refused with MISCONF. Reads go on, except for reads of what a crash would take
back (:mod:`anabranch.commands.execution.withheld`). After a failed sync both last until a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.commands.execution.withheld import Withheld
from anabranch.effects.write_set import WriteSet
from anabranch.oplog.log import LOST

if TYPE_CHECKING:
    from anabranch.node.driver import Driver
    from anabranch.region.region import Region

__all__ = ["DiskTrouble"]

LOG_EVERY_S: Final = 60.0
"""A trouble that lasts is logged this often."""


class DiskTrouble:
    """The trouble of the disk of one process, if there is any."""

    def __init__(self, region: Region, driver: Driver, unsafe: Callable[[], WriteSet]) -> None:
        """``unsafe`` is what is not as safe as ``appendfsync`` asks for."""
        self._region = region
        self._driver = driver
        self._unsafe = unsafe
        self._lost: WriteSet | None = None  # what was not safe when a sync failed
        self._logged_at = -LOG_EVERY_S
        self.withheld = Withheld(self._not_told)
        """Reads that are refused meanwhile."""
        self.reason: str | None = None
        """Why writing commands are refused, None if they are not."""
        self.is_final = False
        """A sync failed: nothing gets better before a restart."""

    def report(self, reason: str, waiting_bytes: int) -> None:
        """Nothing can be written for now."""
        if not self._begin(reason):
            return
        if reason == LOST:
            self._log("error", "oplog.directory_lost", reason=reason)
        else:
            self._log("error", "oplog.write_failed", reason=reason, waiting_bytes=waiting_bytes)

    def sync_failed(self, problem: BaseException) -> None:
        """Nobody knows what is on the disk."""
        self.is_final = True
        self._lost = self._write_set()
        reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        self._begin(f"fsync failed: {reason}")
        self._log("error", "oplog.sync_failed", reason=reason)

    def end(self) -> None:
        """Everything was written."""
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

        Whether that is worth a line in the log, being new or long ago.
        """
        if self.reason is None:
            self._hold_what_was_made()
        now = self._driver.now_s()
        is_news = self.reason != reason or now - self._logged_at >= LOG_EVERY_S
        if is_news:
            self._logged_at = now
        self.reason = reason
        dispatcher = self._region.dispatcher
        refusal = f"MISCONF Errors writing to the AOF file: {reason}"
        dispatcher.refuse_writes("disk", refusal)
        self.withheld.say(refusal, "a restart" if self.is_final else "the disk accepts writes")
        dispatcher.withheld = self.withheld
        return is_news

    def _hold_what_was_made(self) -> None:
        """Replies that were made while all was well, and not written out, may report anything."""
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
        """How many keys cannot be read because a crash would take back their last change; -1: all.

        0 without trouble.
        """
        if self.reason is None:
            return 0
        write_set = self._write_set()
        return -1 if write_set.everything else len(write_set.keys)

    def _log(self, level: str, event: str, **facts: object) -> None:
        self._region.host.log(level, event, **facts)
