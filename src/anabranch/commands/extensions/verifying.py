"""AB.VERIFY compares keys with another region, AB.REGION REPAIR takes over a key.

Both need a few messages between the regions; the connection waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from anabranch.commands.extensions.members import cluster, other
from anabranch.commands.request import texts
from anabranch.errors import CommandError
from anabranch.resp.encode import OK
from anabranch.resp.values import Map

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.commands.execution.context import Context
    from anabranch.keyspace.inquiry import Inquiry
    from anabranch.keyspace.values import Value

__all__ = ["repair", "verify"]

_SHOWN_MAX = 100
"""The most differing keys that are listed when all keys were compared."""

_I = TypeVar("_I", bound="Inquiry")


def verify(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.VERIFY region [key ...]."""
    replica, regions = cluster(ctx)
    region = other(replica, args[1])
    db = ctx.db.index
    places = [(db, key) for key in args[2:]]
    verdict = _outcome(ctx, args, lambda: regions.verify(region, places))
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
    done = _outcome(ctx, args, lambda: regions.repair(region, place))
    return None if done is None else OK


def _outcome(ctx: Context, args: list[bytes], begin: Callable[[], _I]) -> _I | None:
    """The result of an inquiry; None as long as the connection has to wait.

    CommandError if the inquiry has failed.
    """
    if ctx.waiter is None:
        inquiry = begin()
        if not inquiry.is_done:
            ctx.block([], args, 0, _never, OK)
            assert ctx.session.waiter is not None
            ctx.waits.inquiries[ctx.session.waiter] = inquiry
            return None
    else:
        inquiry = ctx.waits.inquiries[ctx.waiter]  # type: ignore[assignment]  # begun by this command
        if not inquiry.is_done:
            return None
    if inquiry.problem:
        raise CommandError(f"TRYAGAIN {inquiry.problem}")
    return inquiry


def _never(_value: Value | None) -> bool:
    """A change of a key does not end the wait."""
    return False
