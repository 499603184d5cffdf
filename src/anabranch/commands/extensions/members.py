"""Finds the region that a command names."""

from __future__ import annotations

from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.engine.host import HostRegions
from anabranch.errors import CommandError
from anabranch.keyspace.replica import Replica

_ALONE = (
    "ERR this server is on its own: region-id makes it a region of an Active-Active cluster, "
    "from its start on"
)


def cluster(ctx: Context) -> tuple[Replica, HostRegions]:
    """The replica and the links of this region; CommandError if there are no regions."""
    regions = ctx.server.host.regions
    if regions is None:
        raise CommandError(_ALONE)
    return ctx.replica, regions


def require_level(ctx: Context, level: int, what: str) -> None:
    """Refuse what a member does not understand, or may not: one that has not reported its level."""
    regions = ctx.server.host.regions
    if regions is None:
        return
    behind = [number for number, each in regions.feature_levels().items() if each < level]
    if behind:
        names = [ctx.replica.members[each].name for each in behind if each in ctx.replica.members]
        raise CommandError(
            f"ERR region {', '.join(names) or behind[0]} does not know {what}, or has not been "
            "heard of since this one started: update it, connect it or remove it, then try again"
        )


def member(replica: Replica, raw: bytes) -> int:
    """The number of a member, from its number or its name; CommandError if there is none."""
    word = raw.decode("utf-8", "replace")
    for number, known in replica.members.items():
        if word in {str(number), known.name}:
            return number
    raise CommandError(b"ERR No region is called '%b'" % texts.shown(raw)[:128])


def other(replica: Replica, raw: bytes) -> int:
    """The number of a member that is not this region; CommandError if there is none."""
    number = member(replica, raw)
    if number == replica.region:
        raise CommandError("ERR This is the region you are talking to: name another one")
    return number


def once_other(replica: Replica, raw: bytes) -> int:
    """The number of another region, maybe a removed one, from its number or the name it had."""
    word = raw.decode("utf-8", "replace")
    for number in replica.removed:
        if number not in replica.members and word in {
            str(number),
            replica.former_names.get(number),
        }:
            return number
    return other(replica, raw)
