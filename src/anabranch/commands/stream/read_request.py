"""What XREAD, XREADGROUP and AB.READ share: syntax, limits of a reply, frame of the reply."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from anabranch.compiling import mypyc_attr
from anabranch.engine import texts
from anabranch.engine.arguments import integer, keyword, timeout_argument
from anabranch.engine.context import Context
from anabranch.engine.key_extraction import OPTION_WIDTH
from anabranch.errors import CommandError
from anabranch.resp.encode import array_header, bulk, bulk_header, map_header
from anabranch.stream.block import Block
from anabranch.stream.groups.pending_list import Consumer
from anabranch.stream.region_log import Span
from anabranch.stream.stream import Stream

_NAME_FRAME_BYTES = 16
"""About how many bytes a reply has around a stream's name."""


@mypyc_attr(acyclic=True)
class ReadRequest:
    """A parsed XREAD, XREADGROUP or AB.READ.

    ``count`` of -1 is unlimited; None means not given. The defaults are attributes of the class:
    most requests set three attributes, and this is a hot path.
    """

    count = -1
    maxcount: int | None = None
    maxsize: int | None = None
    is_limited = False  # by MAXCOUNT or MAXSIZE
    block_ms: int | None = None
    claim_ms: int | None = None
    noack = False
    notes = False
    is_grouped = False
    group = b""
    consumer = b""
    keys: list[bytes]
    ids: list[bytes]
    visited: list[Consumer]
    """The consumers of the groups that had nothing for an XREADGROUP: all are seen when it runs."""


def parse_read(args: list[bytes], *, grouped: bool, now_ms: int = 0) -> ReadRequest:
    """Read all options and the two lists after STREAMS."""
    request = ReadRequest()
    size = len(args)
    index = 1
    while index < size:
        word = keyword(args[index])
        if word == b"STREAMS" and index + 1 < size:
            _streams(request, args, index + 1)
            break
        if word == b"COUNT" and index + 1 < size:
            count = integer(args[index + 1])
            request.count = count if count > 0 else -1
            index += 2
            continue
        if word == b"GROUP" and grouped and index + 2 < size:
            request.is_grouped = True
            request.group, request.consumer = args[index + 1], args[index + 2]
            index += 3
            continue
        width = OPTION_WIDTH.get(word, 1)
        if index + width > size:
            raise CommandError(texts.SYNTAX)
        if word == b"BLOCK":
            request.block_ms = timeout_argument(args[index + 1], now_ms)
        elif word in (b"GROUP", b"NOACK", b"CLAIM"):  # GROUP of another command
            _group_option(request, word, args, index, grouped=grouped)
        elif word == b"MAXCOUNT":
            request.maxcount = _positive(args[index + 1], "MAXCOUNT")
            request.is_limited = True
        elif word == b"MAXSIZE":
            request.maxsize = _positive(args[index + 1], "MAXSIZE")
            request.is_limited = True
        else:
            raise CommandError(texts.SYNTAX)
        index += width
    else:  # no STREAMS
        raise CommandError(texts.SYNTAX)
    if grouped and not request.is_grouped:
        raise CommandError("ERR Missing GROUP option for XREADGROUP")
    if request.maxcount is not None and request.maxcount < request.count:
        raise CommandError("ERR MAXCOUNT must be greater than or equal to COUNT")
    return request


def is_over(ctx: Context, keys: list[bytes]) -> bool:
    """Whether a reader that has waited need not wait any more: a stream that changed is sealed."""
    if ctx.waiter is None:
        return False
    values = [ctx.db.values.get(keys[at]) for at in ctx.waiter.places(keys)]
    return any(type(value) is Stream and value.is_sealed for value in values)


_PLACES = {
    "xread": "an ID, '+', or '$'",
    "xreadgroup": "an ID or '>'",
    "ab.read": "a cursor or '$'",
}
"""What each command expects for each key."""


def _streams(request: ReadRequest, args: list[bytes], first: int) -> None:
    total = len(args) - first
    if total % 2:
        name = args[0].decode().lower()
        raise CommandError(
            f"ERR Unbalanced '{name}' list of streams: "
            f"for each stream key {_PLACES[name]} must be specified."
        )
    request.keys = args[first : first + total // 2]
    request.ids = args[first + total // 2 :]


def _group_option(
    request: ReadRequest, word: bytes, args: list[bytes], index: int, *, grouped: bool
) -> None:
    if not grouped:
        raise CommandError(
            f"ERR The {word.decode()} option is only supported by XREADGROUP. "
            f"You called {args[0].decode().upper()} instead."
        )
    if word == b"NOACK":
        request.noack = True
    else:
        idle = integer(args[index + 1], "ERR min-idle-time is not an integer or out of range")
        if idle < 0:
            raise CommandError("ERR min-idle-time must be a positive integer")
        request.claim_ms = idle


def _positive(raw: bytes, name: str) -> int:
    value = integer(raw)
    if value <= 0:
        raise CommandError(f"ERR {name} must be a positive integer")
    return value


@mypyc_attr(acyclic=True)
class ReplyBudget:
    """MAXCOUNT and MAXSIZE of one reply.

    MAXSIZE is soft: an entry is left out if the bytes before it reach the limit, but the first
    entry of a reply is always returned.
    """

    def __init__(self, request: ReadRequest) -> None:
        self._left = request.maxcount
        self._maxsize = request.maxsize
        self._produced = 0  # 0 until the first entry is given
        self._name_bytes = 0  # of a stream that has no entry in the reply yet

    @property
    def exhausted(self) -> bool:
        """Whether no further entry fits."""
        if self._left is not None and self._left <= 0:
            return True
        return self._maxsize is not None and self._produced >= self._maxsize

    def begin_stream(self, key: bytes) -> None:
        """Begin the part of a stream in the reply; its name counts when an entry follows."""
        self._name_bytes = len(key) + _NAME_FRAME_BYTES

    def cut(self, block: Block, low: int, high: int, extra: int = 0) -> int:
        """The end of the part of ``[low, high)`` that fits into the reply; counts these entries.

        ``extra`` bytes are added to each entry.
        """
        if self._left is not None:
            high = min(high, low + max(self._left, 0))
        ends = block.end_offsets()
        base = ends[low - 1] if low else 0
        if self._maxsize is not None and low < high:
            if self._produced >= self._maxsize:
                return low
            bound = base + max(self._maxsize - self._produced - self._name_bytes, 1)
            fitting = bisect_left(
                range(low, high), bound, key=lambda index: ends[index] + extra * (index - low + 1)
            )
            high = min(high, low + fitting + 1)
        if low < high:
            self.spend(ends[high - 1] - base + extra * (high - low), high - low)
        return high

    def spend(self, size: int, count: int = 1) -> None:
        """Count entries of ``size`` bytes in all that are added to the reply."""
        self._produced += self._name_bytes + size
        self._name_bytes = 0
        if self._left is not None:
            self._left -= count

    def fitting(self, key: bytes, spans: Iterable[Span]) -> tuple[list[bytes], int]:
        """The bytes and number of entries of these spans that fit.

        Entries with one ID stay together, as they do where COUNT cuts.
        """
        chunks: list[bytes] = []
        count = 0
        last_id = -1
        self.begin_stream(key)
        for block, low, high in spans:
            stop = self.cut(block, low, high)
            if stop <= low and block.ids[low] == last_id:
                stop = low + 1
                self.spend(len(block.fragment(low)))
            if stop > low:
                chunks.append(block.slice(low, stop))
                count += stop - low
                last_id = block.ids[stop - 1]
            if stop < high:
                break
        return chunks, count


def read_head(ctx: Context, key: bytes, count: int) -> bytes:
    """The bytes before the entries in a reply about one stream."""
    return b"%b%b%b\r\n%b" % (
        b"%1\r\n" if ctx.resp3 else b"*1\r\n*2\r\n",
        bulk_header(len(key)),
        key,
        array_header(count),
    )


def read_reply(ctx: Context, served: list[tuple[bytes, list[bytes], int]]) -> bytes:
    """``[[key, [entries]], ...]``, or a map of them in RESP3."""
    if len(served) == 1:  # the usual case, and a hot path
        key, chunks, count = served[0]
        return b"".join([read_head(ctx, key, count), *chunks])
    parts: list[bytes] = []
    if ctx.resp3:
        parts.append(map_header(len(served), resp3=True))
        for key, chunks, count in served:
            parts.append(bulk(key) + array_header(count))
            parts += chunks
    else:
        parts.append(array_header(len(served)))
        for key, chunks, count in served:
            parts.append(b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(key), key, count))
            parts += chunks
    return b"".join(parts)
