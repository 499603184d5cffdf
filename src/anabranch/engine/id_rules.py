"""The IDs of new entries, and what counts as newer than now: rules of Redis, and of regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.engine.arguments import id_argument
from anabranch.errors import CommandError
from anabranch.keyspace.vector_token import write_token
from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, SEQ_BITS, text
from anabranch.stream.regional_id import (
    MODULUS,
    automatic_id,
    next_sequence,
    sequence_in,
    steps_below,
)

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from anabranch.keyspace.replica import Replica
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


class IdRules:
    """The rules of Redis. Who sets ``now_ms`` also sets ``first``, and calls :meth:`begin`."""

    __slots__ = (
        *("any_below", "first", "heads", "heads_ms", "last", "now_ms", "refusal", "seq"),
        *("seq_end", "step", "texts", "texts_end", "texts_from"),
        *("texts_mask", "texts_shift"),
    )

    def __init__(self) -> None:
        self.now_ms = 0
        self.first = 0  # the first ID of this millisecond
        self.any_below = MAX_ID
        """If the last ID of a stream is below this one, XADD need not call :meth:`automatic`: it
        takes the first ID of the millisecond, or the one above the last ID."""
        self.refusal = ""  # why the clock makes no IDs; usually empty
        self.step = 1  # from an automatic ID to the next one
        # XADD keeps the last automatic ID here, and its distance from ``first`` while that is
        # below ``seq_end``. As long as a stream ends with that ID, its next one is ``step`` above.
        self.last = -1
        self.seq = -1
        self.seq_end = _SEQ_END
        # An ID in a reply consists of two parts. XADD keeps the first one here, with the
        # milliseconds ``heads_ms``: one for each length of the second part.
        self.heads_ms = -1
        self.heads: list[bytes | None] = []
        # The second part is a sequence number: ``texts[n]`` is that of the number
        # ``texts_from + (n << texts_shift)``. Numbers from ``texts_end`` on have none.
        self.texts = _TEXTS
        self.texts_from = 0
        self.texts_end = _TEXT_COUNT
        self.texts_shift = 0
        self.texts_mask = 0

    def begin(self) -> None:
        """The next automatic ID follows from the rules, not from the last one."""
        self.last = -1

    def automatic(self, last: int) -> int:
        """The ID for ``*`` above ``last``."""
        if self.first > last:
            return self.first
        if last == MAX_ID:
            raise CommandError(_EXHAUSTED)
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
        if last == MAX_ID:
            raise CommandError(_EXHAUSTED)
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

    def check_counters(
        self, stream: Stream, last_id: int, entries_added: int | None, max_deleted: int
    ) -> None:
        """Refuse counters that XSETID must not set; 0 is no ID."""

    def newest(self, stream: Stream | None) -> bytes:
        """The meaning of ``$`` in XREAD now: an ID, or a token of the known entries."""
        return text(0 if stream is None else stream.last_id)


class RegionalIdRules(IdRules):
    """The rules where several regions write, see :mod:`anabranch.stream.regional_id`."""

    __slots__ = ("_own", "_replica", "_settings")

    def __init__(self, replica: Replica, settings: Settings) -> None:
        super().__init__()
        self.any_below = 0
        self.step = MODULUS
        self.texts_shift = MODULUS.bit_length() - 1
        self.texts_mask = MODULUS - 1
        self.texts_end = 0
        self._own = -1  # the replica ID of which there are texts; none yet
        self._replica = replica
        self._settings = settings

    def automatic(self, last: int) -> int:
        """The ID for ``*`` above ``last``; its sequence number belongs to this region."""
        if self.refusal:
            raise CommandError(self.refusal)
        own = self._replica.own
        if own != self._own:
            self._own = own
            self.texts_from = next_sequence(own, -1)
            self.texts_end = self.texts_from + _TEXT_COUNT * MODULUS
            self.texts = _texts(self.texts_from, MODULUS)
        if last < self.first:  # the first ID of a millisecond
            self.seq_end = steps_below(own, self.texts_from)
            return self.first + self.texts_from
        entry_id = automatic_id(own, self.now_ms, last)
        self.seq_end = steps_below(own, entry_id - self.first)
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
