"""Values as opaque payloads: DUMP and RESTORE."""

from __future__ import annotations

from anabranch.commands import texts
from anabranch.commands.arguments import integer as integer_argument
from anabranch.commands.context import Context
from anabranch.commands.spec import Command, KeySpec
from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue, StringValue, Value
from anabranch.rdb.errors import PayloadChecksumError, PayloadFormatError
from anabranch.rdb.payload import decode_payload, encode_payload
from anabranch.resp.encode import OK, bulk, null
from anabranch.stream.imaging import image_of
from anabranch.stream.stream import Stream

__all__ = ["COMMANDS", "payload_of"]

_BUSY = "BUSYKEY Target key name already exists."
_BAD_CHECKSUM = "ERR DUMP payload version or checksum are wrong"
_BAD_FORMAT = "ERR Bad data format"
_BAD_TTL = "ERR Invalid TTL value, must be >= 0"
_BAD_IDLETIME = "ERR Invalid IDLETIME value, must be >= 0"
_BAD_FREQ = "ERR Invalid FREQ value, must be >= 0 and <= 255"
_FREQ_MAX = 255
_MS_MAX = (1 << 63) - 1


def payload_of(value: Value) -> bytes:
    """A value as DUMP writes it."""
    if isinstance(value, Stream):
        return encode_payload(image_of(value))
    if isinstance(value, StringValue):
        return encode_payload(value.data)
    if isinstance(value, ListValue):
        return encode_payload(list(value.items))
    return encode_payload(value.members)


def dump(ctx: Context, args: list[bytes]) -> bytes:
    """The payload of a key."""
    value = ctx.read(args[1])
    return null(ctx.resp3) if value is None else bulk(payload_of(value))


class _Options:
    """What stands behind the payload of a RESTORE."""

    __slots__ = ("absolute", "idle_s", "replace")

    def __init__(self, words: list[bytes]) -> None:
        self.replace = False
        self.absolute = False
        self.idle_s = 0
        eviction_option = b""  # IDLETIME and FREQ belong to different policies
        index = 0
        while index < len(words):
            word = words[index].upper()
            index += 1
            if word == b"REPLACE":
                self.replace = True
            elif word == b"ABSTTL":
                self.absolute = True
            elif (
                word in (b"IDLETIME", b"FREQ")
                and index < len(words)
                and eviction_option in (b"", word)
            ):
                eviction_option = word
                self._eviction(word, integer_argument(words[index]))
                index += 1
            else:
                raise CommandError(texts.SYNTAX)

    def _eviction(self, word: bytes, value: int) -> None:
        if word == b"IDLETIME":
            if value < 0:
                raise CommandError(_BAD_IDLETIME)
            self.idle_s = value
        elif not 0 <= value <= _FREQ_MAX:  # checked, but nobody counts how often keys are used
            raise CommandError(_BAD_FREQ)


def restore(ctx: Context, args: list[bytes]) -> bytes:
    """Bind a key to the value of a payload."""
    key, payload = args[1], args[3]
    options = _Options(args[4:])
    existing = ctx.lookup(key)
    if existing is not None and not options.replace:
        raise CommandError(_BUSY)
    at_ms = integer_argument(args[2])
    if at_ms < 0:
        raise CommandError(_BAD_TTL)
    try:
        decode_payload(payload)
    except PayloadChecksumError:
        raise CommandError(_BAD_CHECKSUM) from None
    except PayloadFormatError:
        raise CommandError(_BAD_FORMAT) from None
    db = ctx.db.index
    if at_ms and not options.absolute:
        at_ms = min(at_ms + ctx.now_ms, _MS_MAX)
    if at_ms and at_ms <= ctx.now_ms:  # born dead
        if existing is not None:
            ctx.emit(kinds.Delete(db, key, False))
            ctx.changes += 1
        return OK
    settings = ctx.settings
    ctx.emit(
        kinds.Restore(
            db,
            key,
            payload,
            at_ms or None,
            ctx.now_ms,
            settings.stream_idmp_duration,
            settings.stream_idmp_maxsize,
            ctx.keyspace.incarnations.above(existing),
        )
    )
    ctx.db.values[key].accessed_ms = ctx.now_ms - options.idle_s * 1000
    ctx.changes += 1
    return OK


COMMANDS: list[Command] = [
    Command(
        "dump",
        dump,
        arity=2,
        flags="readonly",
        categories="keyspace read slow",
        keys=(KeySpec("RO access"),),
        since="2.6.0",
        summary="Gives the value of a key as a payload for RESTORE.",
        complexity="O(N), N being the size of the value.",
        syntax="key",
        tips=("nondeterministic_output",),
    ),
    Command(
        "restore",
        restore,
        arity=-4,
        flags="write denyoom",
        categories="keyspace write slow dangerous",
        keys=(KeySpec("OW update"),),
        since="2.6.0",
        summary="Makes a key of a payload that DUMP gave, here or on another server.",
        complexity="O(N), N being the size of the payload.",
        syntax="key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        history=(
            ("3.0.0", "Takes REPLACE."),
            ("5.0.0", "Takes ABSTTL, IDLETIME and FREQ."),
        ),
    ),
]
