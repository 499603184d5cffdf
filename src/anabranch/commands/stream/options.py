"""Options that several stream commands share: trimming, policies, ID intervals, groups."""

from __future__ import annotations

from typing import Final

from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import id_argument, integer, integer_or_none
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, MIN_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.references import ACKED, DELREF, KEEPREF, Policy
from anabranch.stream.stream import Stream
from anabranch.stream.trimming import TrimRule, limit_default, plan_trim

POLICIES: Final = {b"KEEPREF": KEEPREF, b"DELREF": DELREF, b"ACKED": ACKED}

_LIMIT_NEGATIVE = "ERR The LIMIT argument must be >= 0."
_LIMIT_NOT_APPROXIMATE = "ERR syntax error, LIMIT cannot be used without the special ~ option"
_LIMIT_NO_STRATEGY = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"


def trim_threshold(rule: TrimRule, by_length: bool, args: list[bytes], index: int) -> int:
    """Read ``MAXLEN|MINID [=|~] threshold`` at ``index``; returns the index behind it.

    ``by_length`` says that the word is MAXLEN. The caller has checked that a token follows. ``=``
    and ``~`` are read only if another token follows them.
    """
    if rule.maxlen is not None or rule.minid is not None:
        raise CommandError(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
        )
    index += 1
    mark = args[index]
    if index + 1 < len(args) and mark in (b"=", b"~"):
        rule.approximate = mark == b"~"
        index += 1
    if by_length:
        rule.maxlen = integer(args[index])
        if rule.maxlen < 0:
            raise CommandError("ERR The MAXLEN argument must be >= 0.")
    else:
        rule.minid = id_argument(args[index])
    return index + 1


def check_trim(rule: TrimRule, limit: int | None, node_entries_max: int, *, required: bool) -> None:
    """Check and complete the trimming options when all are read (``limit`` None: not given)."""
    if rule.maxlen is None and rule.minid is None:
        if limit:
            raise CommandError(_LIMIT_NO_STRATEGY)
        if required:
            raise CommandError("ERR syntax error, XTRIM must be called with a trimming strategy")
    if limit is not None:
        if not rule.approximate:
            raise CommandError(_LIMIT_NOT_APPROXIMATE)
        rule.limit = limit
    elif rule.approximate:
        rule.limit = limit_default(node_entries_max)


def limit_argument(raw: bytes) -> int:
    """The value of LIMIT, at least 0: the most entries that one trim removes."""
    limit = integer(raw)
    if limit < 0:
        raise CommandError(_LIMIT_NEGATIVE)
    return limit


def interval_start(raw: bytes) -> int:
    """The low end of an ID interval: ``-``, ``+``, an ID, or ``(`` and an ID."""
    if raw == b"-":
        return MIN_ID
    if raw == b"+":
        return MAX_ID
    if raw[:1] == b"(":
        bound = id_argument(raw[1:])
        if bound == MAX_ID:
            raise CommandError("ERR invalid start ID for the interval")
        return bound + 1
    return id_argument(raw)


def interval_end(raw: bytes) -> int:
    """The high end of an ID interval."""
    if raw == b"+":
        return MAX_ID
    if raw == b"-":
        return MIN_ID
    if raw[:1] == b"(":
        bound = id_argument(raw[1:], MAX_SEQ)
        if bound == MIN_ID:
            raise CommandError("ERR invalid end ID for the interval")
        return bound - 1
    return id_argument(raw, MAX_SEQ)


def ids_block(args: list[bytes], index: int) -> tuple[Policy, list[bytes]]:
    """Read ``[KEEPREF|DELREF|ACKED] IDS numids id ...`` from ``index`` on, in either order."""
    policy: Policy | None = None
    ids: list[bytes] | None = None
    while index < len(args):
        word = args[index].upper()
        if word in POLICIES:
            if policy is not None:
                raise CommandError(texts.SYNTAX)
            policy = POLICIES[word]
            index += 1
        elif word == b"IDS" and index + 1 < len(args):
            count = integer_or_none(args[index + 1])
            if count is None or count < 1:
                raise CommandError("ERR Number of IDs must be a positive integer")
            ids = args[index + 2 : index + 2 + count]
            if len(ids) < count:
                raise CommandError("ERR The `numids` parameter must match the number of arguments")
            index += 2 + count
        else:
            raise CommandError(texts.SYNTAX)
    if ids is None:
        raise CommandError("ERR IDS option is required")
    return policy or KEEPREF, ids


def no_group(key: bytes, group: bytes) -> CommandError:
    """NOGROUP as the pending-entry commands word it."""
    return CommandError(
        b"NOGROUP No such key '%b' or consumer group '%b'" % (texts.shown(key), texts.shown(group))
    )


def group_in(stream: Stream, key: bytes, name: bytes) -> Group:
    """The group of a stream; NOGROUP, as XGROUP and XINFO word it, if there is none."""
    group = stream.groups.get(name)
    if group is None:
        raise CommandError(
            b"NOGROUP No such consumer group '%b' for key name '%b'"
            % (texts.shown(name), texts.shown(key))
        )
    return group


def stream_and_group(ctx: Context, key: bytes, name: bytes) -> tuple[Stream, Group]:
    """The stream and its group; NOGROUP when either is missing. Counts as a read, as in Redis."""
    stream = ctx.read_stream(key)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise no_group(key, name)
    return stream, group


def trim_stream(ctx: Context, key: bytes, stream: Stream | None, rule: TrimRule) -> int:
    """Apply a trimming rule to the stream at ``key``; returns the count of removed entries."""
    if stream is None:  # another region's deadline had passed before this region created the key
        return 0
    plan = plan_trim(stream, rule)
    if plan is None:
        return 0
    before = stream.length
    db = ctx.db.index
    if plan.below:
        ctx.emit(kinds.Trim(db, key, plan.below))
    if plan.ids:
        ctx.emit(
            kinds.Remove(
                db,
                key,
                plan.ids,
                counted=False,
                dereferenced=rule.policy is DELREF,
                trimmed=True,
            )
        )
    return before - stream.length
