"""The IDs of new entries, and what counts as newer than now: rules of Redis, and of regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.engine import texts
from anabranch.engine.arguments import id_argument
from anabranch.errors import CommandError
from anabranch.keyspace.replica import write_token
from anabranch.stream.entry_id import (
    MAX_ID,
    MAX_SEQ,
    MODULUS,
    SEALED_ID,
    SEQ_BITS,
    automatic_id,
    next_sequence,
    sequence_in,
    steps_below,
    text,
)

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

    from anabranch.config.settings import Settings
    from anabranch.keyspace.replica import Replica
    from anabranch.metrics.stats import Stats
    from anabranch.stream.stream import Stream

_NOT_ABOVE = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
_EXHAUSTED = "ERR The stream has exhausted the last possible ID, unable to add more items"
_FULL_ID = "ERR Full IDs are not accepted while xadd-id-uniqueness-mode is strict; use * or <ms>"
_BELOW_LAST = "ERR The ID specified in XSETID is smaller than the target stream top item"
_BELOW_ADDED = "ERR The entries_added specified in XSETID is smaller than the current entries_added"
_BELOW_DELETED = "ERR The max_deleted_entry_id specified in XSETID is smaller than the current one"

_SEQ_END: Final = 1 << 60  # far below the last one, and a short integer in machine code

_TEXT_COUNT: Final = 1024
"""How many sequence numbers of a millisecond have their bytes in replies made beforehand."""


def _texts(first: int, step: int) -> list[bytes]:
    return [b"%d\r\n" % seq for seq in range(first, first + _TEXT_COUNT * step, step)]


_TEXTS: Final = _texts(0, 1)

_TEXT_BYTES_MAX: Final = 24  # twenty digits, the line end, and one because lengths begin at 0


class ExhaustedError(CommandError):
    """The greatest ID counts as given, or the one before it: see :meth:`IdRules.at_end`."""

    def __init__(self) -> None:
        super().__init__(_EXHAUSTED)


class IdRules:
    """The rules of Redis. Who sets ``now_ms`` also sets ``first``, and calls :meth:`begin`."""

    def __init__(self, stats: Stats) -> None:
        self.now_ms = 0
        self.first = 0  # the first ID of this millisecond
        self.refusal = ""  # why the clock makes no IDs; usually empty
        self._stats = stats
        self._step = 1  # from an automatic ID to the next one
        # The last automatic ID, and its distance from ``first`` if that is below ``_seq_end``: then
        # the next one is a step above it.
        self._last = -1
        self._seq: i64 = -1
        self._seq_end = _SEQ_END
        # The first bytes of IDs of a millisecond in replies, by the length of the rest.
        self._head_ms = -1
        self._heads: list[bytes | None] = []
        # And the rest of them: ``_texts[n]`` is of number ``_from + (n << _shift)``, as long as
        # that is below ``_text_end``.
        self._texts = _TEXTS
        self._from: i64 = 0
        self._text_end: i64 = _TEXT_COUNT
        self._shift: i64 = 0

    def begin(self) -> None:
        """The next automatic ID follows from the rules, not from the last one."""
        self._last = -1

    def following(self, last: int) -> int:
        """The ID for ``*`` above ``last``; as a rule it is a step above the one made before."""
        if last is self._last:  # as in a pipeline: nothing else is done with long integers
            entry_id = last + self._step
            seq: int = self._seq + self._step
        else:
            entry_id = self.automatic(last)
            seq = entry_id - self.first
        if seq < self._seq_end:
            self._last = entry_id
            self._seq = seq
        return entry_id

    def reply(self, entry_id: int) -> bytes:
        """An ID of a new entry as a reply, which is also the first part of the entry."""
        ms = self.now_ms
        if entry_id is self._last:
            at = self._seq
            if at < self._text_end:
                end = self._texts[at - self._from >> self._shift]
            else:
                seq: int = at  # only an int is formatted without a call of Python
                end = b"%d\r\n" % seq
        else:
            seq = entry_id - self.first
            if not 0 <= seq <= MAX_SEQ:
                ms, seq = entry_id >> SEQ_BITS, entry_id & MAX_SEQ
                self._stats.ids_ahead_ms = max(self._stats.ids_ahead_ms, ms - self.now_ms)
            end = b"%d\r\n" % seq
        if ms != self._head_ms:
            self._head_ms = ms
            self._heads = [None] * _TEXT_BYTES_MAX
        head = self._heads[len(end)]
        if head is None:
            dashed = b"%d-" % ms
            head = b"$%d\r\n%b" % (len(dashed) + len(end) - 2, dashed)
            self._heads[len(end)] = head
        return head + end

    def automatic(self, last: int) -> int:
        """The ID for ``*`` above ``last``."""
        if self.first > last:
            return self.first
        if last >= SEALED_ID:
            raise ExhaustedError
        return last + 1

    def consecutive(self, last: int, count: int) -> range:
        """``count`` IDs for ``*`` above ``last``, one after the other."""
        first = max(self.first, last + 1)
        return range(first, first + count)

    def given(self, raw: bytes) -> tuple[int | None, int | None]:
        """An ID given by a client: ``(ID, None)``, or ``(None, milliseconds)`` for ``ms-*``."""
        return id_argument(raw), None

    def next(self, given_id: int | None, ms: int | None, last: int) -> int:
        """The ID of a new entry above ``last``; without an ID and milliseconds it is automatic."""
        if last >= SEALED_ID:
            raise ExhaustedError
        if given_id is not None:
            new = given_id
        elif ms is None:
            return self.automatic(last)
        elif ms != last >> SEQ_BITS:
            new = ms << SEQ_BITS
        elif last & MAX_SEQ == MAX_SEQ:
            raise CommandError(_NOT_ABOVE)
        else:
            new = last + 1
        if new <= last:
            raise CommandError(_NOT_ABOVE)
        return new

    def at_end(self, given_id: int | None, ms: int | None, stream: Stream | None) -> int:
        """The same where :class:`ExhaustedError` was raised: one ID may be left."""
        if stream is not None and stream.is_sealed:
            raise CommandError(texts.SEALED)
        if stream is None or stream.last_id == MAX_ID:
            raise ExhaustedError
        if given_id not in (None, MAX_ID) or ms not in (None, MAX_ID >> SEQ_BITS):
            raise CommandError(_NOT_ABOVE)
        return MAX_ID

    def check_counters(
        self, stream: Stream, last_id: int, entries_added: int | None, max_deleted: int
    ) -> None:
        """Refuse counters that XSETID must not set; 0 is no ID."""

    def newest(self, stream: Stream | None) -> bytes:
        """The meaning of ``$`` in XREAD now: an ID, or a token of the known entries."""
        return text(0 if stream is None else stream.last_id)


class RegionalIdRules(IdRules):
    """The rules where several regions write, see :mod:`anabranch.stream.entry_id`."""

    def __init__(self, replica: Replica, settings: Settings, stats: Stats) -> None:
        super().__init__(stats)
        self._step = MODULUS
        self._shift = MODULUS.bit_length() - 1
        self._text_end = 0
        self._own = -1  # the replica ID of which there are texts; none yet
        self._first_seq = 0  # the first sequence number that it gives
        self._replica = replica
        self._settings = settings

    def automatic(self, last: int) -> int:
        """The ID for ``*`` above ``last``; its sequence number belongs to this region."""
        if self.refusal:
            raise CommandError(self.refusal)
        own = self._replica.own
        if own != self._own:
            self._own = own
            self._first_seq = next_sequence(own, -1)
            if self._first_seq < _SEQ_END:
                self._from = self._first_seq
                self._text_end = self._from + _TEXT_COUNT * MODULUS
                self._texts = _texts(self._first_seq, MODULUS)
        if last < self.first:  # the first ID of a millisecond
            self._seq_end = min(steps_below(own, self._first_seq), _SEQ_END)
            return self.first + self._first_seq
        if last >= SEALED_ID:
            raise ExhaustedError
        entry_id = automatic_id(own, self.now_ms, last)
        self._seq_end = min(steps_below(own, entry_id - self.first), _SEQ_END)
        return entry_id

    def consecutive(self, last: int, count: int) -> range:
        """``count`` IDs for ``*`` above ``last``, all with sequence numbers of this region."""
        first = self.automatic(last)
        return range(first, first + count * MODULUS, MODULUS)

    def given(self, raw: bytes) -> tuple[int | None, int | None]:
        """An ID given by a client, as in Redis, unless ``xadd-id-uniqueness-mode`` refuses it.

        Without ``-`` it names milliseconds only, but in the liberal mode. CommandError for a full
        ID in the strict mode.
        """
        mode = self._settings.xadd_id_uniqueness_mode
        found = id_argument(raw)
        if mode == "liberal":
            return found, None
        if b"-" not in raw:
            return None, found >> SEQ_BITS
        if mode == "strict":
            raise CommandError(_FULL_ID)
        return found, None

    def next(self, given_id: int | None, ms: int | None, last: int) -> int:
        """The ID of a new entry above ``last``; a sequence number made here is of this region."""
        if given_id is None and ms is None:
            return self.automatic(last)
        if ms is None or self._settings.xadd_id_uniqueness_mode == "liberal":
            return super().next(given_id, ms, last)
        if last >= SEALED_ID:
            raise ExhaustedError
        new = sequence_in(self._replica.own, ms, last)
        if ms < last >> SEQ_BITS or new >> SEQ_BITS != ms:
            raise CommandError(_NOT_ABOVE)
        return new

    def check_counters(
        self, stream: Stream, last_id: int, entries_added: int | None, max_deleted: int
    ) -> None:
        """Refuse counters that are below the present ones: among regions they only rise."""
        if last_id < stream.last_id:
            raise CommandError(_BELOW_LAST)
        if entries_added is not None and entries_added < stream.entries_added:
            raise CommandError(_BELOW_ADDED)
        if 0 < max_deleted < stream.max_deleted_id:
            raise CommandError(_BELOW_DELETED)

    def newest(self, stream: Stream | None) -> bytes:
        """A token of what is applied here: entries of others may come late, with lower IDs."""
        return write_token(self._replica.vector)
