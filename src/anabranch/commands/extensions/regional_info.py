"""AB.INFO, AB.LAG, AB.DIGEST: progress of regions and groups, and whether regions agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from anabranch.commands.stream.options import group_in
from anabranch.engine import texts
from anabranch.engine.context import Context, existing
from anabranch.engine.holding import LeaseState, lease_states, retention_state
from anabranch.errors import CommandError
from anabranch.keyspace.agreement import agreement_digest, preparing
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.keyspace.values import StringValue, Value
from anabranch.resp.encode import ZERO, integer
from anabranch.scheduling import Steps
from anabranch.stream.elements import SET, Elements
from anabranch.stream.entry_id import text
from anabranch.stream.groups.group import Group
from anabranch.stream.numbering import number_of
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.register import amount_text, ranked, read_counts
from anabranch.stream.renumbering import counted
from anabranch.stream.shared import (
    ALL_GROUPS,
    NO_GROUP,
    NOTHING_SHARED,
    STRING,
    Dot,
    Shared,
    Tombstone,
)
from anabranch.stream.stream import Stream
from anabranch.stream.turns import settle_order


def _replica_id(replica_id: int) -> list[int]:
    """A replica ID as region and epoch; with one region both are 0."""
    return [region_of(replica_id), epoch_of(replica_id)]


def _rows(vector: Mapping[int, int]) -> list[list[int]]:
    """``[region, epoch, number]`` of each replica ID, by region."""
    return sorted([*_replica_id(replica_id), number] for replica_id, number in vector.items())


# -- AB.INFO ----------------------------------------------------------------------------------


def info(ctx: Context, args: list[bytes]) -> bytes:
    """AB.INFO [key [GROUP group]]: figures of this region, of a value or a group."""
    if len(args) == 1:
        return ctx.reply(_region(ctx))
    value = ctx.db.values.get(args[1]) if len(args) == 2 else None
    if value is not None and _is_small(value) and ctx.read(args[1]):
        return ctx.reply({"exists": 1, **_small(value)})
    stream = ctx.read_stream(args[1])
    if len(args) > 2:
        if len(args) != 4 or args[2].upper() != b"GROUP":
            raise CommandError(texts.SYNTAX)
        group = group_in(existing(stream), args[1], args[3])
        return ctx.reply(_policed(ctx, args[1], args[3], group))
    is_there = stream is not None
    if stream is None:  # the remembered stream of a deleted key
        stream = existing(ctx.db.remembered.get(args[1]))
    tombstones = ctx.keyspace.tombstones_of(ctx.db.index, args[1])
    return ctx.reply(
        {
            "exists": int(is_there),
            "length": stream.length,
            "sealed": int(stream.is_sealed),
            "last-generated-id": text(stream.last_id),
            "entries-added": stream.entries_added,
            "max-deleted-entry-id": text(stream.max_deleted_id),
            "origins": [_log(stream, replica_id) for replica_id in stream.ranked()],
            "mark-count": len(tombstones),
            "marks": [_tombstone(dot, tombstones[dot]) for dot in sorted(tombstones)],
            "held-back-by": _held_back_by(ctx, tombstones),
            "groups": [_group(stream, name) for name in sorted(stream.groups)],
            "scheduled": ctx.db.timetables.count(args[1]),
            "retention": _retention(stream, ctx.now_ms),
            "ledger-records": len(stream.ledger.records),
            **_hidden(stream.shared, stream.shared.small_kinds),
        }
    )


def _policed(ctx: Context, key: bytes, name: bytes, group: Group) -> dict[str, Any]:
    """What the policies of a group do at present."""
    states = lease_states(ctx.server.leases, ctx.db.index, key, name, group, ctx.now_ms)
    return {
        "name": name,
        "pending": group.pending.count,
        "released": len(group.pending.released),
        "policies": {} if group.policed is None else dict(group.policed.policy.texts),
        "consumers": [_lease_state(each) for each in states],
    }


def _lease_state(state: LeaseState) -> dict[str, Any]:
    return {
        "name": state.consumer,
        "pending": state.pending,
        "connections": state.connections,
        "lease-ends-in": state.ends_in_ms,
    }


def _retention(stream: Stream, now_ms: int) -> dict[str, Any]:
    """What a stream keeps to, and what holds it back; empty if nothing of it is removed."""
    state = retention_state(stream, now_ms)
    if state is None:
        return {}
    needs = [[group, text(entry_id)] for entry_id, group in state.held_back.needs]
    return {
        "policies": dict(state.policies),
        "held-back": state.held_back.entries,
        "needed-by": needs,
    }


def _region(ctx: Context) -> dict[str, Any]:
    replica = ctx.replica
    region, epoch = _replica_id(replica.own)
    of_keys = [ctx.keyspace.tombstones_of(*place) for place in replica.tombstoned]
    packed = sum(database.remembered.marks for database in ctx.keyspace.databases)
    oldest = replica.oldest_tombstone
    hidden = [list(each) for each in sorted(replica.hidden_values)]
    return {
        "region": region,
        "epoch": epoch,
        "members": sorted(replica.members),
        "vector": _rows(replica.vector),
        "stable": _rows(replica.watermark),
        "marked-keys": ctx.keyspace.marked_keys,
        "mark-count": len(replica.flushes) + sum(map(len, of_keys)) + packed,
        "unstable-mark-count": len(replica.unstable_tombstones),
        "oldest-mark": None if oldest is None else [*_replica_id(oldest[0]), oldest[1]],
        "held-back-by": _held_back_by(ctx, [] if oldest is None else [oldest]),
        "held-tags": len(replica.conflicts),
        "held-tag-bytes": replica.conflicts.size,
        **({"hidden-values": hidden} if hidden else {}),
    }


def _is_small(value: Value) -> bool:
    """Whether this is a string, a set or a list that regions share."""
    return not isinstance(value, Stream) and value.shared.has_small


def _hidden(shared: Shared, kinds: Iterable[str]) -> dict[str, Any]:
    """What the value of a key hides."""
    return {f"hidden-{kind}": _contents(shared, kind) for kind in kinds}


def _contents(shared: Shared, kind: str) -> Any:
    if kind == STRING:
        return shared.string
    elements = shared.elements[kind]
    return sorted(elements.puts) if kind == SET else list(elements.items())


def _small(value: Value) -> dict[str, Any]:
    """What regions share of a string, a set or a list, and what it hides."""
    shared = value.shared
    kinds = shared.small_kinds
    if isinstance(value, StringValue):
        facts = _string(shared, value.data)
    else:
        facts = _elements(shared.elements[kinds[0]])
    return {**facts, "mark-count": len(shared.tombstones), **_hidden(shared, kinds[1:])}


def _elements(elements: Elements) -> dict[str, Any]:
    """How many elements a set or a list has, of which regions, and items that were set at once.

    Of those at one place the one that counts is the first.
    """
    origins = Counter(dot[0] for puts in elements.puts.values() for dot, _ in puts)
    at_once = [
        [item for _, item in puts]
        for _, puts in sorted(each for each in elements.puts.items() if len(each[1]) > 1)
        if elements.order is not None
    ]
    return {
        elements.kind: len(elements),
        "origins": [[*_replica_id(each), origins[each]] for each in sorted(origins)],
        "set-at-once": at_once,
    }


def _string(shared: Shared, data: bytes) -> dict[str, Any]:
    """What regions share of a string: all writes, the one that counts first, and increments."""
    writes = [(dot, shared.writes[dot]) for dot in ranked(shared.writes)]
    return {
        "string": data,
        "writes": [[*_replica_id(at[0]), at[1], row.stamp_ms, row.data] for at, row in writes],
        "increments": [
            [*_replica_id(replica_id), row.number, amount_text(row.amount)]
            for replica_id, row in sorted(read_counts(shared.counts).items())
            if row.is_alive
        ],
    }


def _held_back_by(ctx: Context, tombstones: Iterable[Dot]) -> list[int]:
    """The regions whose disks may lack an effect that left one of these tombstones."""
    effects: dict[int, int] = {}
    for replica_id, number in tombstones:
        effects[replica_id] = max(number, effects.get(replica_id, 0))
    regions = ctx.server.host.regions
    return regions.holding_back(effects) if effects and regions is not None else []


def _log(stream: Stream, replica_id: int) -> dict[str, Any]:
    log = stream.logs[replica_id]
    region, epoch = _replica_id(replica_id)
    base = stream.incarnation
    first_position, first_number = base + log.next_position, 0
    if log.tail is not None:
        block = log.blocks[0]
        index = block.first_live()
        first_position = base + block.position(index)
        first_number = number_of(stream, block, index)
    newest_id, newest_number, floor = _ends(stream, log)
    return {
        "region": region,
        "epoch": epoch,
        "live": log.length,
        "first-position": first_position,
        "next-position": base + log.next_position,
        "first-number": first_number,
        "last-number": newest_number,
        "last-id": text(newest_id),
        "floor": floor,
    }


def _ends(stream: Stream, log: RegionLog) -> tuple[int, int, int]:
    """ID and number of the newest entry, live or not, and the floor.

    The floor is the number up to which all entries were deleted with the key; 0: none.
    """
    if stream.shared is not NOTHING_SHARED:
        return log.newest_id, log.newest_number, log.floor
    newest_number = stream.incarnation + log.next_position if log.next_position else 0
    return stream.last_id, newest_number, stream.incarnation


def _tombstone(dot: Dot, tombstone: Tombstone) -> list[Any]:
    """The dot of a tombstone, and the groups whose concurrent creations it beats."""
    if tombstone is ALL_GROUPS:
        what, group = "delete", b""
    elif tombstone is NO_GROUP:
        what, group = "expire", b""
    else:
        assert isinstance(tombstone, bytes)
        what, group = "destroy", tombstone
    return [*_replica_id(dot[0]), dot[1], what, group]


def _group(stream: Stream, name: bytes) -> dict[str, Any]:
    group = stream.groups[name]
    creations = [
        [*_replica_id(replica_id), number, b"$" if start is None else text(start)]
        for (replica_id, number), (_, start, _) in sorted(group.shared.creations.items())
    ]
    acknowledged: dict[int, Ranges] = defaultdict(Ranges)
    for by_replica_id in group.shared.acknowledged.values():
        for replica_id, ranges in by_replica_id.items():
            acknowledged[replica_id].update(ranges)
    runs = [
        [*_replica_id(replica_id), run.low + 1, run.last, max(run.low, run.sent), int(run.closed)]
        for replica_id, some in sorted(group.runs.by_replica_id.items())
        for run in some
    ]
    policed = group.policed
    if policed is not None and policed.order is not None:
        settle_order(stream, group)
    return {
        "name": name,
        "pending": group.pending.count,
        "creations": creations,
        "ack-ranges": sum(map(len, acknowledged.values())),
        "acknowledged": _intervals(acknowledged),
        "delivered": _intervals(group.shared.delivered),
        "runs": runs,
        "policies": {} if policed is None else dict(policed.policy.texts),
        "released": len(group.pending.released),
        "halted-keys": 0 if policed is None else len(policed.halted),
    }


def _intervals(by_replica_id: Mapping[int, Ranges]) -> list[list[int]]:
    """``[region, epoch, first, last]`` of each interval of numbers."""
    return [
        [*_replica_id(replica_id), low + 1, high]
        for replica_id, ranges in sorted(by_replica_id.items())
        for low, high in ranges
    ]


# -- AB.LAG -----------------------------------------------------------------------------------


def lag(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.LAG key [group ...]: the lag of each group, as a whole and by region."""
    return ctx.long_rows(args, _lags(ctx, existing(ctx.read_stream(args[1])), args))


def _lags(ctx: Context, stream: Stream, args: list[bytes]) -> Iterator[dict[str, Any]]:
    """Groups that are destroyed meanwhile are left out unless they were asked for."""
    for name in args[2:] or sorted(stream.groups):
        ctx.require(args[1], stream)
        if len(args) == 2 and name not in stream.groups:
            continue
        group = group_in(stream, args[1], name)
        by_region = _by_region(group.progress.exact_lag(stream.logs).items())
        yield {
            "name": name,
            "lag": sum(by_region.values()),
            "regions": [list(each) for each in sorted(by_region.items())],
        }


def _by_region(counts: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for replica_id, count in counts:
        found[region_of(replica_id)] += count
    return found


# -- AB.DIGEST --------------------------------------------------------------------------------


def digest(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.DIGEST key [key ...]: the digest of each value by which regions compare it."""
    return ctx.in_slices(args, _digest(ctx, args))


def _digest(ctx: Context, args: list[bytes]) -> Steps[list[bytes]]:
    """Digests of full blocks are computed first; all digests are of the time of the last step."""
    for key in args[1:]:
        value = ctx.db.values.get(key)
        if isinstance(value, Stream):
            yield from preparing(value)
    return [ctx.reply([_digest_of(ctx, key) for key in args[1:]])]


def _digest_of(ctx: Context, key: bytes) -> str | None:
    value: Value | None = ctx.read(key)
    if value is None or not _is_small(value):
        value = ctx.read_stream(key)
    if value is None:
        return None
    return f"{agreement_digest(value, ctx.db.deadlines.get(key)):032x}"


# -- AB.EQUALIDS ------------------------------------------------------------------------------


def equal_ids(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.EQUALIDS key: how many entries get another ID if equal IDs are renumbered."""
    stream = ctx.read_stream(args[1])
    return ZERO if stream is None else ctx.in_slices(args, _equal_ids(stream))


def _equal_ids(stream: Stream) -> Steps[list[bytes]]:
    return [integer((yield from counted(stream)))]
