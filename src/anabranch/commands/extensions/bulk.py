"""AB.OFFSETS, AB.EXPORT, AB.IMPORT, AB.LEDGER: streams by position, many entries at a time.

For readers that use a stream as a table (the Spark source), and for writers that add whole batches
exactly once (the Spark sink). An export consists of whole blocks with their arrays, so it copies
memory and reads no single entry. docs/bulk.md has the formats of the payloads.

A position counts the entries that a region ever added to a key, from the stream's incarnation on.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

import msgspec

from anabranch import zstd
from anabranch.commands.extensions.bulk_rows import added, content_of, rows_of
from anabranch.commands.stream.options import check_trim, trim_stream, trim_threshold
from anabranch.effects import kinds
from anabranch.effects.codec import SENT_ARGUMENT_BYTES_MAX
from anabranch.engine import texts
from anabranch.engine.arguments import integer, options_of
from anabranch.engine.context import Context, existing
from anabranch.errors import CommandError
from anabranch.keyspace.last_positions import ends_of
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.keyspace.values import Value
from anabranch.scheduling import Steps
from anabranch.sharing import share
from anabranch.stream import by_position
from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, SEQ_BITS, text
from anabranch.stream.frozen import little
from anabranch.stream.groups.group import LOCAL_REPLICA_ID
from anabranch.stream.offloading import frame_of
from anabranch.stream.packed_ids import WORD_BYTES, PackedIds
from anabranch.stream.producer import Accepted
from anabranch.stream.region_log import RegionLog, fragments_bytes
from anabranch.stream.rows import CheckedRows
from anabranch.stream.stream import Stream
from anabranch.stream.trimming import TrimRule

# -- FROM vector LIMIT n --------------------------------------------------------------------------
#
# How far a reader may read that takes so many entries at once.
#
# The vector is JSON, ``[{"region": position, ...}, ...]`` with an object for each stream:
# everything below these positions was read. The limit is shared among all regions of all streams
# in proportion to their live entries from there on, so that none of them keeps a reader from the
# others.

_NO_VECTOR: Final = (
    'ERR Invalid vector: it is JSON, [{"region": position, ...}, ...] with an object for each key'
)

_decode: Final = msgspec.json.Decoder(list[dict[str, int]]).decode

Logs = Mapping[bytes, tuple[int, RegionLog]]
"""The logs of a stream by the names of their regions, and where their positions begin."""


class Reach(NamedTuple):
    """The position up to which a reader may read in one log, and the entries that it finds."""

    until: int
    """The position behind the last entry to read."""
    until_id: int
    """The ID of the newest live entry below `until`; 0 if there is none."""
    left: int
    """Live entries from the reader's position on."""
    kept: int
    """Live entries below the position up to which others were trimmed."""
    before_id: int
    """The ID of the newest live entry below the reader's position; 0 if there is none."""


class Limit:
    """A vector, and the most entries between it and the answer."""

    def __init__(self, vector: bytes, entries: int) -> None:
        """Raises :class:`CommandError` for an invalid vector, and for a limit of 0."""
        try:
            self._cursors = _decode(vector)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CommandError(_NO_VECTOR) from None
        if entries < 1:
            raise CommandError("ERR LIMIT must be a positive integer")
        self._entries = entries

    def reaches(self, streams: Sequence[Logs]) -> list[dict[bytes, Reach]]:
        """For each stream and region the position up to which a reader may read.

        In a log that the vector does not name, the reader begins at the first entry. A reader
        beyond the end of a log finds no entries.
        """
        if len(streams) != len(self._cursors):
            raise CommandError(_NO_VECTOR)
        starts: dict[tuple[int, bytes], int] = {}
        left: dict[tuple[int, bytes], int] = {}
        for index, logs in enumerate(streams):
            for name, (base, log) in logs.items():
                position = self._cursors[index].get(name.decode(), 0) - base
                starts[index, name] = position = min(max(position, 0), log.next_position)
                left[index, name] = log.length - by_position.live_below(log, position)
        shares = share(left, self._entries)
        found: list[dict[bytes, Reach]] = []
        for index, logs in enumerate(streams):
            found.append({})
            for name, (base, log) in logs.items():
                start, there = starts[index, name], left[index, name]
                until = by_position.position_after_live(log, start, shares[index, name])
                below = by_position.live_below(log, max(log.trimmed, start)) - (log.length - there)
                before, until_id = (
                    by_position.id_below(log, start),
                    by_position.id_below(log, until),
                )
                found[-1][name] = Reach(base + until, until_id, there, below, before)
        return found


EXPORT_BYTES_DEFAULT: Final = 1 << 20
"""The most bytes that one AB.EXPORT copies at once: about a millisecond."""

EXPORT_BYTES_MAX: Final = 8 << 20
"""The limit of MAXBYTES: compressing that much takes about 20 ms."""

IMPORT_ROWS_MAX: Final = 10_000
"""The most rows of one AB.IMPORT: checked in slices, added at once in about 5 ms."""


_VERSION: Final = 2
_NONE, _ZSTD, _NODES = 0, 1, 2
_CODECS: Final = {b"NONE": _NONE, b"ZSTD": _ZSTD, b"NODES": _NODES}
_HEADER: Final = struct.Struct("<BBHIQ")
_CHUNK: Final = struct.Struct("<IBBBBQQQQ")
_PACKED, _PLAIN, _NODE = 0, 1, 2
_HAS_POSITIONS: Final = 1
_SWAP: Final = sys.byteorder != "little"

_compressor: Final = zstd.FrameCompressor(1)

_NEXT, _LIVE = 3, 5
"""Where a row of AB.OFFSETS has these."""

_GONE: Final = -1
"""The number of live entries in a row about a stream that does not exist any more."""

_TOO_MANY_ROWS: Final = (
    f"ERR the payload has more than {IMPORT_ROWS_MAX} rows: bring it in several commands"
)
_TOO_LONG: Final = (
    f"ERR the payload has more than {SENT_ARGUMENT_BYTES_MAX} bytes, which other regions do not "
    "take at once: bring it in several commands"
)
_NO_CODEC: Final = "ERR unknown codec, it is NONE, NODES or ZSTD"
_EXHAUSTED: Final = "ERR The stream has exhausted the last possible ID, unable to add more items"


# -- where streams stand ----------------------------------------------------------------------


def offsets(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.OFFSETS [BLOCK ms AFTER total] [FROM vector LIMIT n] STREAMS key [key ...]."""
    at = 1
    block_ms: int | None = None
    after = 0
    if args[at].upper() == b"BLOCK" and len(args) > at + 3:
        block_ms = integer(args[at + 1])
        if block_ms < 0:
            raise CommandError("ERR timeout is negative")
        if args[at + 2].upper() != b"AFTER":
            raise CommandError(texts.SYNTAX)
        after = integer(args[at + 3])
        at += 4
    limit: Limit | None = None
    if at + 3 < len(args) and args[at].upper() == b"FROM":
        if args[at + 2].upper() != b"LIMIT":
            raise CommandError(texts.SYNTAX)
        limit = Limit(args[at + 1], integer(args[at + 3]))
        at += 4
    if at + 1 >= len(args) or args[at].upper() != b"STREAMS":
        raise CommandError(texts.SYNTAX)
    keys = args[at + 1 :]
    total = 0
    rows: list[list[list[object]] | None] = []
    streams = [_stream_of(ctx, key, is_known=limit is not None) for key in keys]
    for key, stream in zip(keys, streams, strict=True):
        if stream is None:
            regions = _former_rows(ctx, key)
        else:
            regions = [_region_row(stream, replica_id) for replica_id in sorted(stream.logs)]
        total += sum(cast("int", row[_NEXT]) for row in regions)
        rows.append(regions or None)
    if limit is not None:
        _bound(streams, rows, limit)
    reply = ctx.reply(rows)
    if block_ms is None or total != after or ctx.in_exec:
        return reply
    if ctx.waiter is not None:
        ctx.waiter.timeout_reply = reply
    ctx.block(keys, args, block_ms, _any_change, reply)
    return None


def _stream_of(ctx: Context, key: bytes, *, is_known: bool = False) -> Stream | None:
    """The stream of a key, None if it is gone; another value may be there since.

    `is_known`: the reader has seen the stream, also if the server has forgotten it.
    """
    try:
        return ctx.read_stream(key)
    except CommandError:
        if not (is_known or _former_rows(ctx, key)):
            raise
        return None


def _any_change(_value: Value | None) -> bool:
    return True


def _region_row(stream: Stream, replica_id: int) -> list[object]:
    log = stream.logs[replica_id]
    base = stream.incarnation
    first = log.next_position
    if log.tail is not None:
        block = log.blocks[0]
        first = block.position(block.first_live())
    last_id = stream.last_id if replica_id == LOCAL_REPLICA_ID else log.newest_id
    return [
        _name_of(replica_id),
        base + log.base,
        base + first,
        base + log.next_position,
        text(last_id),
        log.length,
        base + max(log.trimmed, log.base),
        base + log.known_from,
    ]


def _former_rows(ctx: Context, key: bytes) -> list[list[object]]:
    """What is remembered of a key that does not exist: where each region's log ended."""
    known = ctx.db.remembered.get(key)
    ends = ctx.db.last_positions.of(key) if known is None else ends_of(known)
    return [
        [_name_of(replica_id), position, position, position, b"0-0", _GONE, position, known_from]
        for replica_id, position, known_from, _ in sorted(ends)
    ]


def _bound(
    streams: Sequence[Stream | None], rows: Sequence[list[list[Any]] | None], limit: Limit
) -> None:
    """Add to each row how far a reader may read, and how many entries it finds."""
    logs = [
        {}
        if stream is None
        else {_name_of(each): (stream.incarnation, log) for each, log in stream.logs.items()}
        for stream in streams
    ]
    for some, found in zip(rows, limit.reaches(logs), strict=True):
        for row in some or ():
            if row[_LIVE] == _GONE:
                row += [row[_NEXT], b"0-0", 0, 0, b"0-0"]
                continue
            reach = found[row[0]]
            below = row[4] if reach.until == row[3] else text(reach.until_id)
            row += [reach.until, below, reach.left, reach.kept, text(reach.before_id)]


def _name_of(replica_id: int) -> bytes:
    """A region's number, with its epoch if that is not the first: ``1``, ``1.2``."""
    if replica_id == LOCAL_REPLICA_ID:
        return b""
    epoch = epoch_of(replica_id)
    return b"%d.%d" % (region_of(replica_id), epoch) if epoch else b"%d" % replica_id


def _log_of(stream: Stream, name: bytes) -> RegionLog | None:
    for replica_id, log in stream.logs.items():
        if _name_of(replica_id) == name:
            return log
    return None


# -- reading ----------------------------------------------------------------------------------


def export(ctx: Context, args: list[bytes]) -> bytes:
    """AB.EXPORT key region from to [MAXBYTES n] [CODEC none|nodes|zstd]."""
    low, high = integer(args[3]), integer(args[4])
    bytes_max, codec = _export_options(args)
    stream = existing(_stream_of(ctx, args[1]))
    log = _log_of(stream, args[2])
    base = stream.incarnation
    pack = _CHUNK.pack
    parts: list[bytes | array[int]] = [b"", b""]
    size = length = chunks = 0  # bytes of fragments, and those that are sent
    reached = low
    if log is not None:
        reached = max(low, min(high, base + log.next_position))
        for block, first, stop in by_position.spans(log, low - base, high - base):
            if size >= bytes_max and chunks:
                reached = base + block.position(first)
                break
            chunks += 1
            packed = block.packed
            if codec == _NODES and packed is not None and _is_whole(block, stop - first):
                frame = frame_of(packed)
                size += fragments_bytes(block.weight, stop)
                length += len(frame)
                position = base + block.first_position
                parts += (pack(stop, _NODE, 0, 0, 0, 0, position, 0, len(frame)), frame)
                continue
            ids = block.ids
            if (
                type(ids) is PackedIds
                and stop - first == len(ends := block.ends)
                and block.positions is None
                and not _SWAP
            ):  # a whole block, which is the usual case: without calls
                data = block.data
                width = ends.itemsize
                size += len(data)
                length += stop * (WORD_BYTES + width) + len(data)
                position = base + block.first_position
                parts += (
                    pack(stop, _PACKED, width, 0, 0, ids.base_ms, position, 0, len(data)),
                    ids.words,
                    ends,
                    data,
                )
                continue
            chunk = _chunk(block, first, stop, base)
            size += len(chunk[-1])
            length += sum(map(len, chunk[1:]))
            parts += chunk
    return _payload(parts, length + chunks * _CHUNK.size, codec, chunks, max(reached, 0))


def _payload(
    parts: list[bytes | array[int]], length: int, codec: int, chunks: int, reached: int
) -> bytes:
    """The reply with these parts, of which the first two are still empty, compressed if asked."""
    if codec == _ZSTD:
        smaller = _compressor.compress(b"".join(parts))
        if len(smaller) < length:
            parts[2:] = [smaller]
            length = len(smaller)
        else:
            codec = _NONE
    parts[0] = b"$%d\r\n" % (_HEADER.size + length)
    parts[1] = _HEADER.pack(_VERSION, int(codec == _ZSTD), 0, chunks, reached)
    parts.append(b"\r\n")
    return b"".join(parts)


def _is_whole(block: Block, count: int) -> bool:
    """Whether so many entries are all that the compressed form contains, in its byte order."""
    return count == block.count and block.positions is None and not _SWAP


def _export_options(args: list[bytes]) -> tuple[int, int]:
    """The limit in bytes, and the number of the codec."""
    bytes_max, codec = EXPORT_BYTES_DEFAULT, _NONE
    for name, values in options_of(args[5:], {b"MAXBYTES": 1, b"CODEC": 1}):
        if name == b"MAXBYTES":
            bytes_max = min(integer(values[0]), EXPORT_BYTES_MAX)
        else:
            found = _CODECS.get(values[0].upper())
            if found is None:
                raise CommandError(_NO_CODEC)
            codec = found
    return bytes_max, codec


def _chunk(block: Block, low: int, high: int, base: int) -> list[bytes]:
    """Header, arrays and fragments of one run of entries, in the form of the block."""
    ids = block.ids
    if isinstance(ids, PackedIds):
        form, base_ms = _PACKED, ids.base_ms
        arrays = [ids.words[low * WORD_BYTES : high * WORD_BYTES]]
    else:
        form, base_ms = _PLAIN, 0
        some = ids[low:high]
        arrays = [
            little(array("Q", [entry_id >> SEQ_BITS for entry_id in some])),
            little(array("Q", [entry_id & MAX_SEQ for entry_id in some])),
        ]
    flags = 0
    if block.positions is not None:
        flags = _HAS_POSITIONS
        start = base + block.first_position
        positions = [start + offset for offset in block.positions[low:high]]
        arrays.append(little(array("Q", positions)))
    ends = block.end_offsets()
    if not isinstance(ends, array):
        ends = array("Q", ends)
    data = block.slice(low, high)
    arrays.append(little(ends[low:high]))
    header = _CHUNK.pack(
        high - low,
        form,
        ends.itemsize,
        flags,
        0,
        base_ms,
        base + block.position(low),
        ends[low - 1] if low else 0,
        len(data),
    )
    return [header, *arrays, data]


# -- writing ----------------------------------------------------------------------------------


class _ProducerOption:
    """PRODUCER pid BATCH b EXPECT n [CRC c]."""

    def __init__(self, pid: bytes, batch: int, expected: int, crc: int | None) -> None:
        self.pid = pid
        self.batch = batch
        self.expected = expected
        self.crc = crc

    def fits(self, known: Accepted) -> bool:
        """Whether the batch continues the record of the producer."""
        return self.expected == known.rows and self.crc in (None, known.crc)


def import_(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.IMPORT key [PRODUCER pid BATCH b EXPECT n [CRC c]] [MAXLEN | MINID ...] payload."""
    return ctx.in_slices(args, _import(ctx, args))


def _import(ctx: Context, args: list[bytes]) -> Steps[list[bytes]]:
    """Check the rows; the last step adds them."""
    payload = args[-1]
    producer, rule = _import_options(ctx, args)
    ends, data = content_of(payload)
    if len(ends) > IMPORT_ROWS_MAX:
        raise CommandError(_TOO_MANY_ROWS)
    if len(data) > ctx.effects.added_bytes_max:
        raise CommandError(_TOO_LONG)
    rows = yield from rows_of(ends, data)
    return [_add(ctx, args[1], producer, rule, rows, data)]


def _add(
    ctx: Context,
    key: bytes,
    producer: _ProducerOption | None,
    rule: TrimRule,
    rows: list[CheckedRows],
    data: bytes,
) -> bytes:
    """Add rows, unless they are not the next ones of the producer."""
    stream = ctx.stream(key)
    known = None
    if producer is not None:
        known = _standing(stream, producer)
        if producer.batch < known.batch:
            return ctx.reply([-1, known.rows, known.crc])
        if not producer.fits(known):
            return ctx.reply([0, known.rows, known.crc])
    if not rows:
        return ctx.reply([1, known.rows if known else 0, known.crc if known else 0])
    if stream is None:
        stream = ctx.create_stream(key)
    count = sum(map(len, rows))
    if stream.is_sealed:
        raise CommandError(texts.SEALED)
    ids = ctx.ids.consecutive(stream.last_id, count)
    if ids[-1] > MAX_ID:
        raise CommandError(_EXHAUSTED)
    limits = _limits(ctx)
    begin = 0
    for some in rows:
        tail = stream.local.tail
        newest = (limits[0], 0) if tail is None else (tail.slots, tail.weight)
        end = begin + len(some)
        ctx.emit(added(some, ctx.db.index, key, ids[begin:end], newest, limits))
        begin = end
    ctx.changes += count
    crc = 0
    if producer is not None and known is not None:
        count += known.rows
        crc = crc32(data, known.crc)
        ctx.emit(
            kinds.Accept(ctx.db.index, key, producer.pid, producer.batch, count, crc, ctx.now_ms)
        )
    if rule.maxlen is not None or rule.minid is not None:
        trim_stream(ctx, key, ctx.stream(key), rule)
    return ctx.reply([1, count, crc, text(ids[0]), text(ids[-1])])


def _import_options(ctx: Context, args: list[bytes]) -> tuple[_ProducerOption | None, TrimRule]:
    producer = None
    rule = TrimRule()
    at = 2
    last = len(args) - 1  # the payload, even if it looks like an option
    while at < last:
        word = args[at].upper()
        if word == b"PRODUCER" and producer is None and at + 5 < last:
            if args[at + 2].upper() != b"BATCH" or args[at + 4].upper() != b"EXPECT":
                raise CommandError(texts.SYNTAX)
            if not args[at + 1]:
                raise CommandError("ERR producer ID must be non-empty")
            crc = None
            numbers = [integer(args[at + 3]), integer(args[at + 5])]
            if at + 7 < last and args[at + 6].upper() == b"CRC":
                crc = integer(args[at + 7])
                numbers.append(crc)
            if min(numbers) < 0:
                raise CommandError("ERR value is out of range, must be positive")
            producer = _ProducerOption(args[at + 1], numbers[0], numbers[1], crc)
            at += 2 * len(numbers) + 2
        elif word in (b"MAXLEN", b"MINID") and at + 1 < last:
            at = trim_threshold(rule, word == b"MAXLEN", args, at)
        else:
            raise CommandError(texts.SYNTAX)
    check_trim(rule, None, ctx.settings.stream_node_max_entries, required=False)
    return producer, rule


def _standing(stream: Stream | None, producer: _ProducerOption) -> Accepted:
    """The record of a producer, compared with the batch that it sends."""
    record = None if stream is None else stream.ledger.records.get(producer.pid)
    if record is None or record.batch < producer.batch:
        return Accepted(producer.batch, 0, 0, 0)
    return record


def _limits(ctx: Context) -> tuple[int, int]:
    """The limits of a node: entries and weight."""
    settings = ctx.settings
    return settings.stream_node_max_entries or 1 << 62, settings.stream_node_max_bytes or 1 << 62


def ledger(ctx: Context, args: list[bytes]) -> bytes:
    """AB.LEDGER key: what each producer of batches has had accepted."""
    stream = existing(ctx.read_stream(args[1]))
    return ctx.reply([[pid, *record] for pid, record in stream.ledger.records.items()])
