"""Values as opaque payloads: DUMP and RESTORE."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.effects.prepare import rewriting
from anabranch.effects.restoring import value_of
from anabranch.engine import texts
from anabranch.engine.arguments import integer as integer_argument
from anabranch.engine.arguments import options_of
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.rdb.errors import (
    PayloadChecksumError,
    PayloadFormatError,
    PayloadKindError,
    PayloadSizeError,
)
from anabranch.rdb.payload import encode_small_payload, encode_stream_payload
from anabranch.resp.encode import OK, null
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.image_conversion import ImageBuilder
from anabranch.stream.stream import Stream

_BUSY = "BUSYKEY Target key name already exists."
_BAD_CHECKSUM = "ERR DUMP payload version or checksum are wrong"
_BAD_FORMAT = "ERR Bad data format"
_KINDS_HERE = "streams, strings, lists and sets"
_SHOWN_MAX = 128
"""Bytes of a key in the text of an error."""
_BAD_TTL = "ERR Invalid TTL value, must be >= 0"
_BAD_IDLETIME = "ERR Invalid IDLETIME value, must be >= 0"
_BAD_FREQ = "ERR Invalid FREQ value, must be >= 0 and <= 255"
_FREQ_MAX = 255
_MS_MAX = (1 << 63) - 1


def payload_of(value: Value) -> bytes:
    """The payload of a value in the format of DUMP."""
    return b"".join(in_one_go(_payload_steps(value)))


def _payload_steps(value: Value) -> Steps[list[bytes]]:
    """Encode the payload in pieces and short steps; it shows the value as of the first step."""
    if not isinstance(value, Stream):
        return (yield from encode_small_payload(_plain(value)))
    frozen = ImageBuilder(value)
    try:
        return (yield from encode_stream_payload(frozen.image, frozen.nodes(), frozen.pending()))
    finally:
        frozen.release()


def _plain(value: Value) -> bytes | list[bytes] | set[bytes]:
    if isinstance(value, StringValue):
        return value.data
    if isinstance(value, ListValue):
        return list(value.items)
    assert isinstance(value, SetValue)
    return set(value.members)


def dump(ctx: Context, args: list[bytes]) -> bytes | None:
    """DUMP key: the value as a payload that RESTORE takes, null without the key."""
    value = ctx.read(args[1])
    return null(ctx.resp3) if value is None else ctx.in_slices(args, _dump(value))


def _dump(value: Value) -> Steps[list[bytes]]:
    parts = yield from _payload_steps(value)
    parts[0] = b"$%d\r\n%b" % (sum(map(len, parts)), parts[0])
    parts[-1] += b"\r\n"
    return parts


_RESTORE = {b"REPLACE": 0, b"ABSTTL": 0, b"IDLETIME": 1, b"FREQ": 1}


class _RestoreOptions:
    """The options after the payload of a RESTORE."""

    __slots__ = ("absolute", "idle_s", "replace")

    def __init__(self, words: list[bytes]) -> None:
        self.replace = False
        self.absolute = False
        self.idle_s = 0
        eviction_option = b""  # IDLETIME and FREQ belong to different policies
        for name, values in options_of(words, _RESTORE):
            if name == b"REPLACE":
                self.replace = True
            elif name == b"ABSTTL":
                self.absolute = True
            elif eviction_option in (b"", name):
                eviction_option = name
                self._eviction(name, integer_argument(values[0]))
            else:
                raise CommandError(texts.SYNTAX)

    def _eviction(self, word: bytes, value: int) -> None:
        if word == b"IDLETIME":
            if value < 0:
                raise CommandError(_BAD_IDLETIME)
            self.idle_s = value
        elif not 0 <= value <= _FREQ_MAX:  # checked only: the use of keys is not counted
            raise CommandError(_BAD_FREQ)


def restore(ctx: Context, args: list[bytes]) -> bytes | None:
    """Bind a key to the value of a payload."""
    options = _RestoreOptions(args[4:])
    _refuse_taken(ctx, args[1], options)
    if integer_argument(args[2]) < 0:
        raise CommandError(_BAD_TTL)
    return ctx.in_slices(args, _restore(ctx, args, options))


def _refuse_taken(ctx: Context, key: bytes, options: _RestoreOptions) -> Value | None:
    """The value of the key; an error if the key must not be replaced."""
    existing = ctx.lookup(key)
    if existing is not None and not options.replace:
        raise CommandError(_BUSY)
    return existing


def _restore(ctx: Context, args: list[bytes], options: _RestoreOptions) -> Steps[list[bytes]]:
    """Make the value outside the keyspace; the last step binds the key."""
    key = args[1]
    at_ms = integer_argument(args[2])
    settings = ctx.settings
    effect = kinds.Restore(
        ctx.db.index,
        key,
        args[3],
        None,
        ctx.now_ms,
        settings.stream_idmp_duration,
        settings.stream_idmp_maxsize,
    )
    ctx.stats.payloads_checked += 1
    try:
        value = yield from value_of(effect, is_limited=True)
    except PayloadChecksumError:
        raise CommandError(_BAD_CHECKSUM) from None
    except PayloadSizeError as problem:
        raise CommandError(f"{_BAD_FORMAT}: {problem}") from None
    except PayloadKindError as problem:
        raise _not_here(key, problem.kind) from None
    except PayloadFormatError:
        raise CommandError(_BAD_FORMAT) from None
    with rewriting(ctx.effects, value, effect.db, key) as prepare:
        yield from prepare
        reply = _bind(ctx, effect, value, at_ms, options)
    if ctx.effects.mode.rewrites:  # otherwise the key has this value
        ctx.keyspace.deferred_free.defer(value)
    return reply


def _not_here(key: bytes, kind: str) -> CommandError:
    """MIGRATE of another server moves many keys, so the text names the key."""
    text = f"{_BAD_FORMAT}: key '%b' is of type {kind}, and this server has only {_KINDS_HERE}"
    return CommandError(text.encode() % texts.shown(key)[:_SHOWN_MAX])


def _bind(
    ctx: Context, effect: kinds.Restore, value: Value, at_ms: int, options: _RestoreOptions
) -> list[bytes]:
    """The last step of RESTORE: check again that the key is free, and bind it."""
    key = effect.key
    existing = _refuse_taken(ctx, key, options)  # again: time may have passed
    if at_ms and not options.absolute:
        at_ms = min(at_ms + ctx.now_ms, _MS_MAX)
    if at_ms and at_ms <= ctx.now_ms:  # the deadline has passed already
        if existing is not None:
            ctx.emit(kinds.Delete(effect.db, key, False), 1)
        return [OK]
    effect.at_ms = at_ms or None
    effect.incarnation = ctx.db.incarnation_for(key, value)
    ctx.keyspace.prepared = value
    try:
        ctx.emit(effect)
    finally:
        ctx.keyspace.prepared = None
    ctx.db.values[key].accessed_ms = ctx.now_ms - options.idle_s * 1000
    ctx.changes += 1
    return [OK]
