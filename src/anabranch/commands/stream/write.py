"""Removing entries and setting counters: XTRIM, XDEL, XDELEX, XACKDEL, XSETID; and XLEN."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anabranch.commands.stream.options import (
    POLICIES,
    check_trim,
    ids_block,
    limit_argument,
    trim_stream,
    trim_threshold,
)
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import id_argument, id_list, id_list_steps, integer, options_of
from anabranch.engine.context import Context, existing
from anabranch.engine.holding import still_held
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, ZERO
from anabranch.resp.encode import integer as integer_reply
from anabranch.scheduling import Steps
from anabranch.stream.located import LOCATED_AT_ONCE, LocatedEntries
from anabranch.stream.references import ACKED, DELREF, KEEPREF, Policy, References
from anabranch.stream.region_log import Share
from anabranch.stream.stream import Stream
from anabranch.stream.trimming import TrimRule


def xtrim(ctx: Context, args: list[bytes]) -> bytes:
    """Remove the oldest entries by length or ID."""
    rule = TrimRule()
    limit: int | None = None
    policy: Policy | None = None
    index = 2
    last = len(args) - 1
    while index <= last:
        word = args[index].upper()
        if word in (b"MAXLEN", b"MINID") and index < last:
            index = trim_threshold(rule, word == b"MAXLEN", args, index)
        elif word == b"LIMIT" and index < last:
            limit = limit_argument(args[index + 1])
            index += 2
        elif word in POLICIES and policy is None:
            policy = POLICIES[word]
            index += 1
        else:
            raise CommandError(texts.SYNTAX)
    check_trim(rule, limit, ctx.settings.stream_node_max_entries, required=True)
    rule.policy = policy or KEEPREF
    stream = ctx.stream(args[1])
    if stream is None:
        return ZERO
    removed = trim_stream(ctx, args[1], stream, rule)
    ctx.changes += removed
    return integer_reply(removed)


def xdel(ctx: Context, args: list[bytes]) -> bytes | None:
    """XDEL: delete entries by ID; the reply is the count of those that existed."""
    stream = ctx.stream(args[1])
    if stream is None:
        return ZERO
    if len(args) > LOCATED_AT_ONCE:
        return ctx.in_slices(args, _xdel(ctx, args))
    ids = id_list(args[2:])
    if len(ids) == 1:  # the usual form: the entry is looked up once
        shares = [(region, block, [at], ids) for region, block, at in stream.find_all(ids[0])]
        return _delete(ctx, args[1], stream, ids if shares else [], shares)
    return _delete(ctx, args[1], stream, stream.live_among(list(dict.fromkeys(ids))), None)


def _xdel(ctx: Context, args: list[bytes]) -> Steps[list[bytes]]:
    ids = yield from id_list_steps(args[2:])
    found = yield from _located(ctx, args[1], ids)
    if found is None:
        return [ZERO]
    stream, located = found
    return [_delete(ctx, args[1], stream, list(located.live), located.shares)]


def _delete(
    ctx: Context, key: bytes, stream: Stream, doomed: list[int], shares: list[Share] | None
) -> bytes:
    if not doomed:
        return ZERO
    before = stream.length
    _remove(ctx, key, doomed, KEEPREF, shares)
    removed = before - stream.length  # several regions may have used one ID
    ctx.changes += removed
    return integer_reply(removed)


def _located(
    ctx: Context, key: bytes, ids: list[int]
) -> Steps[tuple[Stream, LocatedEntries] | None]:
    """The stream of a key, and where its entries with these IDs are; None without a stream.

    It is known at the moment of the last step, so what follows is done at once.
    """
    distinct = list(dict.fromkeys(ids))
    while (stream := ctx.stream(key)) is not None:
        located = LocatedEntries(stream, distinct)
        yield from located.steps()
        if ctx.stream(key) is stream:  # and not deleted, or replaced, meanwhile
            located.update()
            return stream, located
    return None


def _remove(
    ctx: Context, key: bytes, ids: list[int], policy: Policy, shares: list[Share] | None
) -> None:
    """Emit the explicit deletion of live entries; ``shares`` say where they are, if it is known."""
    if ids:
        effect = kinds.Remove(
            ctx.db.index,
            key,
            ids,
            counted=True,
            dereferenced=policy is DELREF,
            trimmed=False,
        )
        if shares is not None:
            effect.located = shares
        ctx.emit(effect)


def _shares(located: LocatedEntries | None, ids: Iterable[int]) -> list[Share] | None:
    return None if located is None else located.among(ids)


_Found = tuple[Stream, LocatedEntries | None]


def xdelex(ctx: Context, args: list[bytes]) -> bytes | None:
    """Delete entries by ID under a reference policy; one code per ID (1, -1 or 2)."""
    return _each(ctx, args, 2)


def xackdel(ctx: Context, args: list[bytes]) -> bytes | None:
    """Acknowledge and delete under a reference policy; one code per ID (1, -1 or 2)."""
    return _each(ctx, args, 3)


def _each(ctx: Context, args: list[bytes], at: int) -> bytes | None:
    """Act on the entries with the IDs of a block at ``at``; a group may be named in front of it."""
    stream = ctx.stream(args[1])
    policy, raw_ids = ids_block(args, at)
    if stream is None or (at > 2 and args[2] not in stream.groups):
        return ctx.reply([-1] * len(raw_ids))
    if len(raw_ids) > LOCATED_AT_ONCE:
        return ctx.in_slices(args, _each_located(ctx, args, at))
    return _act(ctx, args, at, policy, id_list(raw_ids), (stream, None))


def _each_located(ctx: Context, args: list[bytes], at: int) -> Steps[list[bytes]]:
    policy, raw_ids = ids_block(args, at)
    ids = yield from id_list_steps(raw_ids)
    found = yield from _located(ctx, args[1], ids)
    if found is None or (at > 2 and args[2] not in found[0].groups):
        return [ctx.reply([-1] * len(ids))]
    return [_act(ctx, args, at, policy, ids, found)]


def _act(
    ctx: Context, args: list[bytes], at: int, policy: Policy, ids: list[int], found: _Found
) -> bytes:
    """Delete entries, or acknowledge them first in the group that is named."""
    if at > 2:
        return _acknowledge_each(ctx, args, policy, ids, found)
    return _delete_each(ctx, args, policy, ids, found)


def _is_live(stream: Stream, located: LocatedEntries | None) -> Callable[[int], bool]:
    """A function that tells whether a live entry has an ID."""
    if located is not None:
        return located.live.__contains__
    return lambda entry_id: stream.find(entry_id) is not None


def _delete_each(
    ctx: Context, args: list[bytes], policy: Policy, ids: list[int], found: _Found
) -> bytes:
    key = args[1]
    stream, located = found
    is_live = _is_live(stream, located)
    references = References(stream) if policy is ACKED else None
    doomed: dict[int, None] = {}
    ghosts: dict[int, None] = {}
    codes = []
    for entry_id in ids:
        if references is not None and references.holds(entry_id):
            codes.append(2)
        elif entry_id not in doomed and is_live(entry_id):
            doomed[entry_id] = None
            codes.append(1)
        else:
            codes.append(-1)
            if policy is DELREF and entry_id not in doomed:
                ghosts[entry_id] = None
    purged = [
        entry_id
        for entry_id in ghosts
        if any(group.pending.find(entry_id) is not None for group in stream.groups.values())
    ]
    _remove(ctx, key, list(doomed), policy, _shares(located, doomed))
    if purged:
        ctx.emit(kinds.Dereference(ctx.db.index, key, purged))
    ctx.changes += len(doomed) + len(purged)
    return ctx.reply(codes)


def _acknowledge_each(
    ctx: Context, args: list[bytes], policy: Policy, ids: list[int], found: _Found
) -> bytes:
    key, name = args[1], args[2]
    stream, located = found
    is_live = _is_live(stream, located)
    group = stream.groups[name]
    acked = group.pending.among(ids)
    if group.policed is not None:
        acked = still_held(ctx, key, name, group, acked)
    if acked:
        ctx.emit(kinds.Acknowledge(ctx.db.index, key, name, acked))
    references = References(stream) if policy is ACKED else None
    outcome: dict[int, int] = {}
    doomed = []
    ghosts = []
    for entry_id in acked:
        if references is not None and references.holds(entry_id):
            outcome[entry_id] = 2
            continue
        outcome[entry_id] = 1
        if is_live(entry_id):
            doomed.append(entry_id)
        elif policy is DELREF:
            ghosts.append(entry_id)
    _remove(ctx, key, doomed, policy, _shares(located, doomed))
    if ghosts:
        ctx.emit(kinds.Dereference(ctx.db.index, key, ghosts))
    ctx.changes += len(acked)
    return ctx.reply([outcome.pop(entry_id, -1) for entry_id in ids])


def xsetid(ctx: Context, args: list[bytes]) -> bytes:
    """Set last-generated-id and, optionally, the counters."""
    last_id = id_argument(args[2])
    entries_added: int | None = None
    max_deleted: int | None = None
    for name, values in options_of(args[3:], {b"ENTRIESADDED": 1, b"MAXDELETEDID": 1}):
        if name == b"ENTRIESADDED":
            entries_added = integer(values[0])
            if entries_added < 0:
                raise CommandError("ERR entries_added must be positive")
        else:
            max_deleted = id_argument(values[0])
            if last_id < max_deleted:
                raise CommandError(
                    "ERR The ID specified in XSETID is smaller than the provided "
                    "max_deleted_entry_id"
                )
    stream = existing(ctx.stream(args[1]))
    _check_last_id(stream, last_id, entries_added)
    ctx.ids.check_counters(stream, last_id, entries_added, max_deleted or 0)
    ctx.emit(kinds.SetLastId(ctx.db.index, args[1], last_id, entries_added, max_deleted or None), 1)
    return OK


def _check_last_id(stream: Stream, last_id: int, entries_added: int | None) -> None:
    if last_id < stream.max_deleted_id:
        raise CommandError(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
        )
    if not stream.length:
        return
    if last_id < stream.last_live_id:
        raise CommandError(
            "ERR The ID specified in XSETID is smaller than the target stream top item"
        )
    if entries_added is not None and entries_added < stream.length:
        raise CommandError(
            "ERR The entries_added specified in XSETID is smaller than the target stream length"
        )


def xlen(ctx: Context, args: list[bytes]) -> bytes:
    """Live entries; 0 for a missing key."""
    stream = ctx.read_stream(args[1])
    return ZERO if stream is None else integer_reply(stream.length)
