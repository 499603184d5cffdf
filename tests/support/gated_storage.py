"""A disk in memory whose syncs wait until they are let go, in whatever thread they run."""

from __future__ import annotations

import threading

from anabranch.simulator.disk import MemoryStorage

__all__ = ["GatedStorage"]


class GatedStorage(MemoryStorage):
    """See :meth:`hold_syncs`."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        super().__init__(files)
        self._gate: threading.Semaphore | None = None
        self._gate_for = ""
        self.syncing = threading.Semaphore(0)
        """Released whenever a sync of a file has to wait."""

    def hold_syncs(self, name: str = "") -> None:
        """From now on a sync of a file whose name begins so waits for :meth:`let_sync`."""
        self._gate_for = name
        self._gate = threading.Semaphore(0)

    def let_sync(self, count: int = 1) -> None:
        """Let so many of them go on."""
        assert self._gate is not None
        self._gate.release(count)

    def let_all_sync(self) -> None:
        """Hold none any more."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release(1000)

    def begin_sync(self, name: str) -> None:
        gate = self._gate
        if gate is not None and name.startswith(self._gate_for):
            self.syncing.release()
            gate.acquire()
        super().begin_sync(name)
