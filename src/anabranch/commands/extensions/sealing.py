"""AB.SEAL: ends a stream.

In a sealed stream the last ID but one of all counts as given (``XSETID``), although no entry had
it: :data:`anabranch.stream.entry_id.SEALED_ID`. So nothing about a seal is new to the log, to
snapshots, ``DUMP`` and other regions.
"""

from __future__ import annotations

from typing import Final

from anabranch.effects import kinds
from anabranch.engine.context import Context, existing
from anabranch.errors import CommandError
from anabranch.resp.encode import ONE, ZERO
from anabranch.stream.entry_id import SEALED_ID

_EXHAUSTED: Final = (
    "ERR The stream has used up its IDs: it takes no more entries, and needs no seal"
)


def seal(ctx: Context, args: list[bytes]) -> bytes:
    """AB.SEAL key: the reply is 1, or 0 if the stream was sealed before."""
    stream = existing(ctx.stream(args[1]))
    if stream.is_sealed:
        return ZERO
    if stream.last_id >= SEALED_ID:
        raise CommandError(_EXHAUSTED)
    ctx.emit(kinds.SetLastId(ctx.db.index, args[1], SEALED_ID, None, None), 1)
    return ONE
