"""Idempotent producers: XCFGSET, XIDMPRECORD, and XIDMP, the older form of XCFGSET."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.engine.arguments import id_argument, integer, options_of
from anabranch.engine.context import Context, existing
from anabranch.errors import CommandError
from anabranch.resp.encode import OK
from anabranch.stream.entry_id import SEQ_BITS
from anabranch.stream.producer import DURATION_MAX_S, MAXSIZE_MAX


def _configure(ctx: Context, key: bytes, words: list[bytes], prefix: str) -> bytes:
    """Read ``[DURATION s] [MAXSIZE n]`` with the spelling's prefix, left to right; apply both."""
    stream = existing(ctx.stream(key))
    given: dict[bytes, int] = {}
    of_time, of_size = f"{prefix}DURATION".encode(), f"{prefix}MAXSIZE".encode()
    for option, values in options_of(words, {of_time: 1, of_size: 1}):
        name = option.decode()
        if option in given:
            raise CommandError(f"ERR {name} specified multiple times")
        value = integer(values[0])
        top, unit = (DURATION_MAX_S, "seconds") if option == of_time else (MAXSIZE_MAX, "entries")
        if not 1 <= value <= top:
            raise CommandError(f"ERR {name} must be between 1 and {top} {unit}")
        given[option] = value
    if not given:
        raise CommandError("ERR At least one parameter must be specified")
    producers = stream.producers
    duration = given.get(of_time, producers.duration_s)
    maxsize = given.get(of_size, producers.maxsize)
    if (duration, maxsize) != (producers.duration_s, producers.maxsize):
        ctx.emit(kinds.ConfigureProducers(ctx.db.index, key, duration, maxsize), 1)
    return OK


def xcfgset(ctx: Context, args: list[bytes]) -> bytes:
    """Change a stream's idempotency limits; a change drops the remembered IDs."""
    return _configure(ctx, args[1], args[2:], "IDMP-")


def xidmp_cfgset(ctx: Context, args: list[bytes]) -> bytes:
    """XIDMP: XCFGSET in its older form."""
    return _configure(ctx, args[2], args[3:], "")


def xidmp_cfgget(ctx: Context, args: list[bytes]) -> bytes:
    """A stream's idempotency limits."""
    stream = existing(ctx.read_stream(args[2]))
    values = {b"DURATION": stream.producers.duration_s, b"MAXSIZE": stream.producers.maxsize}
    chosen = [raw.upper() for raw in args[3:]]
    for raw, word in zip(args[3:], chosen, strict=True):
        if word not in values:
            raise CommandError(b"ERR Unknown parameter '%b'" % raw)
    return ctx.reply(
        {word.lower(): value for word, value in values.items() if not chosen or word in chosen}
    )


def xidmprecord(ctx: Context, args: list[bytes]) -> bytes:
    """Attach an idempotent ID to an existing entry (replaying a log)."""
    key, pid, iid = args[1], args[2], args[3]
    entry_id = id_argument(args[4])
    if not pid:
        raise CommandError("ERR producer ID must be non-empty")
    if not iid:
        raise CommandError("ERR idempotent ID must be non-empty")
    stream = existing(ctx.stream(key))
    if stream.find(entry_id) is None:
        raise CommandError("ERR No such message in stream")
    known = stream.producers.find(pid, iid, ctx.now_ms)
    if known == entry_id:
        return OK
    if known is not None:
        raise CommandError("ERR IID already exists for this producer with a different stream ID")
    inserted_ms = min(entry_id >> SEQ_BITS, ctx.now_ms)
    ctx.emit(kinds.Remember(ctx.db.index, key, pid, iid, entry_id, inserted_ms), 1)
    return OK
