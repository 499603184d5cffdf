"""AB.HOME: in which region a consumer group is delivered (docs/policies.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.commands.extensions.policies import HOMES_LEVEL
from anabranch.commands.stream.options import stream_and_group
from anabranch.effects.acknowledging import GroupPlace
from anabranch.effects.apply_homes import asking, leaving, taken_by
from anabranch.engine import texts
from anabranch.engine.homing import address_of, check_home, cluster, member, region_name
from anabranch.errors import CommandError
from anabranch.resp.encode import OK
from anabranch.stream.entry_id import text
from anabranch.stream.groups.home import HomeEpoch
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.keyspace.values import Value

_ANSWER_MS: Final = 5000
"""How long AB.HOME TAKE waits for the home: it syncs its log before it hands over."""

_NO_ANSWER: Final = (
    b"-NOHOME the home has not handed over within 5 seconds: try again, or use FORCE if it is "
    b"dead; then entries may be delivered twice, and AB.HOME SHOW says which\r\n"
)


def _homed(ctx: Context, args: list[bytes]) -> tuple[GroupPlace, HomeEpoch]:
    """The group of ``key GROUP group``, and its home; CommandError if it has none."""
    if args[3].upper() != b"GROUP":
        raise CommandError(texts.SYNTAX)
    cluster(ctx)
    key, name = args[2], args[4]
    stream, group = stream_and_group(ctx, key, name)
    present = group.present_home
    if present is None:
        raise CommandError(
            "ERR every region delivers this group: AB.POLICY SET key GROUP group home-region "
            "region gives it a home"
        )
    return GroupPlace(ctx.db.index, key, name, stream, group), present


def _waiting_for(ctx: Context, place: GroupPlace) -> list[bytes]:
    """The other regions that have not heard yet that this one has taken the group."""
    home, present = place.group.home, place.group.present_home
    if home is None or home.watch is None or present != home.watch.home:
        return []
    left = ctx.replica.members.keys() - home.watch.closed - {ctx.replica.region}
    return [region_name(ctx, each) for each in sorted(left)]


def home_show(ctx: Context, args: list[bytes]) -> bytes:
    """AB.HOME SHOW key GROUP group."""
    place, present = _homed(ctx, args)
    group, ours = place.group, ctx.replica.region
    state = "other region" if present.region != ours else "here"
    if group.home is not None and group.home.leaving is not None:
        state = "hands over"
    elif present.region == ours and group.is_away(ours):
        state = "waits for a hand-over"
    repeated = [] if group.home is None else sorted(group.home.repeated)
    return ctx.reply(
        {
            "home": region_name(ctx, present.region),
            "region": present.region,
            "address": address_of(ctx, present.region),
            "epoch": present.number,
            "taken": int(present.forced),
            "state": state,
            "waiting-for": _waiting_for(ctx, place),
            "delivered-twice": [text(each) for each in repeated],
        }
    )


def home_move(ctx: Context, args: list[bytes]) -> bytes:
    """AB.HOME MOVE key GROUP group region: in the home itself."""
    place, present = _homed(ctx, args)
    check_home(ctx, place.key, place.name, place.group)
    target = member(ctx.replica, args[5])
    if target == present.region:
        raise CommandError("ERR this region is the home of the group already")
    ctx.replica.require_level(HOMES_LEVEL, "home regions")
    left = _waiting_for(ctx, place)
    if left:
        raise CommandError(
            b"ERR the group was taken, and some regions have not heard of it yet (%b): connect "
            b"them, or remove them from the cluster; AB.HOME TAKE ... FORCE in the next home works"
            % b", ".join(left)
        )
    ctx.emit(leaving(place, HomeEpoch(present.number + 1, target)), 1)
    return OK


class _Here:
    """The condition of a client that waits for a home: it is here, or there is no group."""

    def __init__(self, name: bytes, region: int) -> None:
        self._name = name
        self._region = region

    def __call__(self, value: Value | None) -> bool:
        """Whether running the command again can end the wait."""
        group = value.groups.get(self._name) if type(value) is Stream else None
        return group is None or not group.is_away(self._region)


def home_take(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.HOME TAKE key GROUP group [FORCE]: in the region that is to be the home."""
    place, present = _homed(ctx, args)
    force = len(args) == 6 and args[5].upper() == b"FORCE"
    if len(args) > 5 and not force:
        raise CommandError(texts.SYNTAX)
    ours = ctx.replica.region
    if not place.group.is_away(ours):
        if ctx.waiter is not None:
            return OK
        raise CommandError("ERR this region is the home of the group already")
    if force:
        ctx.emit(taken_by(place, HomeEpoch(present.number + 1, ours, True)), 1)
        return OK
    if ctx.waiter is None:
        if ctx.in_exec:
            raise CommandError(
                "ERR AB.HOME TAKE without FORCE waits for the home: not in MULTI, not in a script"
            )
        ctx.replica.require_level(HOMES_LEVEL, "home regions")
        ctx.emit(asking(place, present, ours), 1)
    ctx.block(
        [place.key],
        args,
        _ANSWER_MS,
        _Here(place.name, ours),
        _NO_ANSWER,
        fails_without_key=True,
    )
    return None
