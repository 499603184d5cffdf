"""AB.VERIFY compares keys with another region, AB.REGION REPAIR takes over a key.

Both need a few messages between the regions; the connection waits for them.
"""

from __future__ import annotations

from anabranch.commands.extensions.members import cluster, other
from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import OK
from anabranch.resp.values import Map

_SHOWN_MAX = 100
"""The most differing keys that are listed when all keys were compared."""


def verify(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.VERIFY region [key ...]."""
    replica, regions = cluster(ctx)
    region = other(replica, args[1])
    db = ctx.db.index
    places = [(db, key) for key in args[2:]]
    verdict = ctx.outcome(args, lambda: regions.verify(region, places))
    if verdict is None:
        return None
    if places:
        return ctx.reply([verdict.keys[place] for place in places])
    listed = sorted(verdict.keys.items())
    found = list(verdict.keys.values())
    return ctx.reply(
        Map(
            [
                ("equal", verdict.equal),
                ("differs", found.count("differs")),
                ("in-flight", verdict.in_flight),
                ("keys", [[*place, how] for place, how in listed[:_SHOWN_MAX]]),
            ]
        )
    )


def repair(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.REGION REPAIR key FROM region."""
    replica, regions = cluster(ctx)
    if args[3].lower() != b"from":
        raise CommandError(texts.SYNTAX)
    region = other(replica, args[4])
    place = ctx.db.index, args[2]
    done = ctx.outcome(args, lambda: regions.repair(region, place))
    return None if done is None else OK
