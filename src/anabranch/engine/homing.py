"""What commands ask of regions: which there are, and whether this one may deliver a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.engine import texts
from anabranch.errors import CommandError

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.engine.host import HostRegions
    from anabranch.keyspace.replica import Replica
    from anabranch.stream.groups.group import Group

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


def member(replica: Replica, raw: bytes) -> int:
    """The number of a member, from its number or its name; CommandError if there is none."""
    word = raw.decode("utf-8", "replace")
    for number, known in replica.members.items():
        if word in {str(number), known.name}:
            return number
    raise CommandError(b"ERR No region is called '%b'" % texts.shown(raw)[:128])


def check_home(ctx: Context, key: bytes, name: bytes, group: Group) -> None:
    """HOMED, with the name and the address of the home, if this region must not deliver."""
    policies = ctx.db.policies
    if policies.is_rebinding:
        policies.bind_group(key, name, group)
    if group.policed is None or not group.is_away(ctx.replica.region):
        return
    present = group.present_home
    assert present is not None
    is_here = present.region == ctx.replica.region
    raise CommandError(
        b"HOMED %b %b consumer group '%b' of '%b' is %b"
        % (
            region_name(ctx, present.region),
            address_of(ctx, present.region) or b"-",
            texts.shown(name),
            texts.shown(key),
            b"being handed over" if is_here else b"delivered in that region only",
        )
    )


def address_of(ctx: Context, number: int) -> bytes:
    """The gossip address of a region; empty if it is not known."""
    regions = ctx.server.host.regions
    return b"" if regions is None else regions.address(number).encode()


def region_name(ctx: Context, number: int) -> bytes:
    """The name of a region, also of a removed one; its number if it has none."""
    member = ctx.replica.members.get(number)
    name = ctx.replica.former_names.get(number, "") if member is None else member.name
    return (name or str(number)).encode()
