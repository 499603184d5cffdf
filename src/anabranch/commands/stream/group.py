"""XGROUP: creating, moving and destroying consumer groups and their consumers."""

from __future__ import annotations

from typing import Final

from anabranch.commands.stream.options import group_in
from anabranch.effects import kinds
from anabranch.engine.arguments import id_argument, integer, options_of
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, ONE, ZERO
from anabranch.resp.encode import integer as integer_reply
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream

_KEY_NEEDED = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
    "use the MKSTREAM option to create an empty stream automatically."
)

_CREATE_ARGS_MAX = 8
_SET_ID_ARGS_MAX = 7
"""More arguments mean an option given twice. Redis counts them after looking up the key."""


_WRONG_FORM: Final = (
    b"ERR unknown subcommand or wrong number of arguments for '%b'. Try XGROUP HELP."
)


def _start_and_read(args: list[bytes], *, mkstream_allowed: bool) -> tuple[bool, int | None]:
    """``[MKSTREAM] [ENTRIESREAD n]`` behind the ID: whether to create, and entries-read."""
    mkstream = False
    entries_read: int | None = None
    widths = {b"MKSTREAM": 0, b"ENTRIESREAD": 1} if mkstream_allowed else {b"ENTRIESREAD": 1}
    for option, values in options_of(args[5:], widths, _WRONG_FORM % args[1]):
        if option == b"MKSTREAM":
            mkstream = True
        else:
            value = integer(values[0])
            if value < -1:
                raise CommandError("ERR value for ENTRIESREAD must be positive or -1")
            entries_read = None if value == -1 else value
    return mkstream, entries_read


def _existing_stream(ctx: Context, key: bytes) -> Stream:
    stream = ctx.stream(key)
    if stream is None:
        raise CommandError(_KEY_NEEDED)
    return stream


def _existing_group(ctx: Context, args: list[bytes]) -> tuple[Stream, Group]:
    stream = _existing_stream(ctx, args[2])
    return stream, group_in(stream, args[2], args[3])


def create(ctx: Context, args: list[bytes]) -> bytes:
    """XGROUP CREATE: make a group that begins after an ID; MKSTREAM makes the stream too."""
    mkstream, entries_read = _start_and_read(args, mkstream_allowed=True)
    key, name, raw = args[2], args[3], args[4]
    stream = ctx.stream(key)
    if stream is None and not mkstream:
        raise CommandError(_KEY_NEEDED)
    if len(args) > _CREATE_ARGS_MAX:
        raise CommandError(_WRONG_FORM % args[1])
    start: int | None
    if raw == b"$":
        start = None  # with several regions: whatever this one has not seen, whatever its ID
    else:
        start = id_argument(raw)
    if stream is not None and name in stream.groups:
        raise CommandError("BUSYGROUP Consumer Group name already exists")
    begin_group(ctx, key, name, start, entries_read)
    return OK


def begin_group(
    ctx: Context, key: bytes, name: bytes, start: int | None, entries_read: int | None = None
) -> None:
    """Make a group that is missing, and the stream if that is missing; None is ``$``."""
    stream = ctx.stream(key)
    if stream is None:
        stream = ctx.create_stream(key)
    added = stream.entries_added
    ctx.emit(kinds.CreateGroup(ctx.db.index, key, name, start, _clamped(entries_read, added)), 1)


def _clamped(entries_read: int | None, added: int) -> int | None:
    return None if entries_read is None else min(entries_read, added)


def set_id(ctx: Context, args: list[bytes]) -> bytes:
    """XGROUP SETID; unlike CREATE it takes ``-`` and ``+`` too, as Redis does."""
    _, entries_read = _start_and_read(args, mkstream_allowed=False)
    stream, _ = _existing_group(ctx, args)
    if len(args) > _SET_ID_ARGS_MAX:
        raise CommandError(_WRONG_FORM % args[1])
    raw = args[4]
    last_id: int | None
    if raw == b"$":
        last_id = None
    elif raw in (b"-", b"+"):
        last_id = MIN_ID if raw == b"-" else MAX_ID
    else:
        last_id = id_argument(raw)
    ctx.emit(
        kinds.SetGroup(
            ctx.db.index, args[2], args[3], last_id, _clamped(entries_read, stream.entries_added)
        ),
        1,
    )
    return OK


def destroy(ctx: Context, args: list[bytes]) -> bytes:
    """XGROUP DESTROY: drop a group with its pending entries; the reply is 1, or 0 without it."""
    stream = _existing_stream(ctx, args[2])
    if args[3] not in stream.groups:
        return ZERO
    ctx.emit(kinds.DestroyGroup(ctx.db.index, args[2], args[3]), 1)
    return ONE


def create_consumer(ctx: Context, args: list[bytes]) -> bytes:
    """XGROUP CREATECONSUMER: the reply is 1, or 0 if the consumer exists."""
    _, group = _existing_group(ctx, args)
    if args[4] in group.consumers:
        return ZERO
    ctx.emit(kinds.CreateConsumer(ctx.db.index, args[2], args[3], args[4], ctx.now_ms), 1)
    return ONE


def delete_consumer(ctx: Context, args: list[bytes]) -> bytes:
    """XGROUP DELCONSUMER; replies how many pending entries were discarded."""
    _, group = _existing_group(ctx, args)
    consumer = group.consumers.get(args[4])
    if consumer is None:
        return ZERO
    pending = consumer.pending_count
    ctx.emit(kinds.DeleteConsumer(ctx.db.index, args[2], args[3], args[4]), 1)
    return integer_reply(pending)
