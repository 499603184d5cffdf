"""The keys that unsafe effects have changed: what a crash would undo.

This is needed only while the disk does not accept writes. Normally replies wait until their effects
are safe, and the keys are not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from anabranch.effects.codec import EffectFormatError
from anabranch.effects.recorded import Recordable
from anabranch.effects.write_set import WriteSet
from anabranch.oplog.batch import BatchError, batch_size, decode_batch
from anabranch.oplog.errors import LogError
from anabranch.oplog.log import OpLog

READ_BYTES_MAX: Final = 8 << 20
"""If more bytes than this are unsafe, every key counts as changed: reading them takes too long."""

EFFECTS_MAX: Final = 20_000
"""The same for the count of effects: reading them takes about 20 ms."""


class UnsafeEffects:
    """The effects behind the safe part of a log, written or not."""

    def __init__(self, log: OpLog) -> None:
        self._log = log
        self._known = (-1, -1, 0)  # safe position, end of the log, runs of batches behind it
        self._write_set = WriteSet()
        self._effects = 0  # count of effects read for that

    def write_set(
        self,
        safe: int,
        unwritten: Sequence[bytes],
        recorded: Sequence[Recordable],
        *,
        numbered: bool,
    ) -> WriteSet:
        """The keys that effects behind the position ``safe`` have changed.

        ``unwritten`` are the pieces of the batches that wait to be written; ``recorded`` are the
        effects behind them, ``numbered`` if the effects for other regions have numbers.
        """
        log = self._log
        end = log.end
        if self._known[:2] != (safe, end) or self._known[2] > len(unwritten):
            self._write_set = WriteSet()
            self._effects = 0
            if end - safe > READ_BYTES_MAX:
                self._write_set.add_all()
            else:
                self._read(data for _, data in log.batches_from(safe))
            self._known = safe, end, 0
        if self._known[2] < len(unwritten):
            new = unwritten[self._known[2] :]
            if sum(map(len, new)) > READ_BYTES_MAX:
                self._write_set.add_all()
            else:
                self._read(_batches(b"".join(new)))
            self._known = safe, end, len(unwritten)
        for effect in recorded:
            self._write_set.add(effect, numbered=numbered and not effect.local)
        return self._write_set

    def _read(self, batches: Iterable[bytes]) -> None:
        write_set = self._write_set
        try:
            for data in batches:
                if self._effects > EFFECTS_MAX:
                    write_set.add_all()
                    return
                batch = decode_batch(data)
                self._effects += len(batch.effects)
                numbered = bool(batch.region) and not batch.is_local
                write_set.add_plain(batch.effects, numbered=numbered)
        except (OSError, LogError, BatchError, EffectFormatError):  # then the keys are unknown
            write_set.add_all()


def _batches(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        size = batch_size(data, at)
        assert size is not None
        yield data[at : at + size]
        at += size
