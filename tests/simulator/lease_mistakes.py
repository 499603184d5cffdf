"""Mistakes built into the policies, each a broken promise: ``python -m tests.simulator.leases``.

Each is a patch, and the lease with which it shows. A mistake that is not found is a hole in
:mod:`tests.simulator.lease_watch`, or in what the runs come to. ``--mistakes`` tries all of them,
and prints the table in docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from anabranch.commands.extensions import renewing
from anabranch.commands.stream import key_order, pending, readgroup
from anabranch.engine import releasing
from anabranch.engine.leases import Hold, Leases
from anabranch.keyspace.policies import Policies
from anabranch.region.leases import Leasing
from anabranch.stream import retention
from anabranch.stream.groups.policy import GroupPolicy, Policed

__all__ = ["MISTAKES", "REGIONS"]

Patch = pytest.MonkeyPatch
LATE_MS: Final = 1000
REGIONS: Final = "three regions"


def _nothing(*_args: Any, **_named: Any) -> None:
    """It is not done."""


def _shifted(ms: Callable[[GroupPolicy], int]) -> Callable[[Patch], None]:
    """A lease that ends earlier or later."""

    def build_in(patch: Patch) -> None:
        lease_end_ms = Hold.lease_end_ms

        def end_ms(hold: Hold, policy: GroupPolicy) -> int | None:
            end = lease_end_ms(hold, policy)
            return None if end is None else end + ms(policy)

        patch.setattr(Hold, "lease_end_ms", end_ms)

    return build_in


# -- leases ---------------------------------------------------------------------------------------


def life_in_place_of_a_connection(patch: Patch) -> None:
    def end_ms(hold: Hold, policy: GroupPolicy) -> int | None:
        return hold.used_ms + policy.lease.ms + 100 if policy.lease.mode else None

    patch.setattr(Hold, "lease_end_ms", end_ms)


def first_connection_takes_the_others_along(patch: Patch) -> None:
    left = Leases.left

    def changed(table: Leases, session_id: int, now_ms: int) -> None:
        for place in table._places.get(session_id, ()):
            for each in table.holds[place].sessions - {session_id}:
                table._places[each].discard(place)
            table.holds[place].sessions = {session_id}
        left(table, session_id, now_ms)

    patch.setattr(Leases, "left", changed)


def end_is_not_noticed(patch: Patch) -> None:
    patch.setattr(Leases, "left", _nothing)


def held_is_idle(patch: Patch) -> None:
    def is_idle(group: Any, entry: Any, claimer: bytes, now: int, least: int) -> bool:
        return entry.consumer is None or now - entry.delivery_ms >= least

    patch.setattr(pending, "_is_idle", is_idle)


def nobody_is_expected(patch: Patch) -> None:
    patch.setattr(Leases, "expect", _nothing)


def all_are_late_after_a_start(patch: Patch) -> None:
    def expect(table: Leases, place: Any, policy: GroupPolicy, now_ms: int) -> None:
        table.holds.setdefault(place, Hold(now_ms - policy.lease.ms))
        table.look(place, now_ms)

    patch.setattr(Leases, "expect", expect)


def looked_at_too_late(patch: Patch) -> None:
    look = Leases.look
    patch.setattr(
        Leases, "look", lambda table, place, at_ms: look(table, place, at_ms + 5 * LATE_MS)
    )


def nobody_is_woken(patch: Patch) -> None:
    patch.setattr(readgroup, "_has_for", lambda stream, group: bool(stream.has_for(group)))


def one_of_several_is_released(patch: Patch) -> None:
    release = Leasing._release

    def changed(leasing: Leasing, whose: Any, entries: Any, policy: str) -> None:
        some = list(entries)
        release(leasing, whose, some[:1], policy)
        for place in list(leasing._region.leases.holds):
            leasing._region.leases.deadlines.pop(place, None)

    patch.setattr(Leasing, "_release", changed)


def plain_reads_get_nothing(patch: Patch) -> None:
    for module in (readgroup, key_order):
        patch.setattr(module, "redeliver", lambda *_args, **_more: [])


def renewing_is_no_life(patch: Patch) -> None:
    patch.setattr(renewing, "use_name", _nothing)


def acknowledging_is_no_life(patch: Patch) -> None:
    patch.setattr(pending, "still_held", lambda ctx, key, name, group, ids: list(ids))


def strangers_are_late(patch: Patch) -> None:
    """Whoever is no holder may not acknowledge."""

    def held(ctx: Any, key: bytes, name: bytes, group: Any, ids: Any) -> list[int]:
        places = ctx.server.leases._places.get(ctx.session.id, ())
        return [
            entry_id
            for entry_id in ids
            if all(
                entry.consumer is None
                or any(place.consumer == entry.consumer.name for place in places)
                for _, entry in group.pending.with_id(entry_id)
            )
        ]

    patch.setattr(pending, "still_held", held)


def waiting_is_life(patch: Patch) -> None:
    """A connection that is blocked shows that its consumer works."""
    lease_end_ms = Hold.lease_end_ms

    def end_ms(hold: Hold, policy: GroupPolicy) -> int | None:
        return None if hold.sessions else lease_end_ms(hold, policy)

    patch.setattr(Hold, "lease_end_ms", end_ms)


def own_time_is_that_of_the_oldest(patch: Patch) -> None:
    """With the first entry all others of the group are released."""
    release = Leasing._release

    def changed(leasing: Leasing, whose: Any, entries: Any, policy: str) -> None:
        some = list(entries)
        everything = [each for _, _, each in whose.group.pending.oldest_first()] if some else []
        release(leasing, whose, everything, policy)

    patch.setattr(Leasing, "_release", changed)


# -- what fails, waits, and is kept ---------------------------------------------------------------


def once_too_often(patch: Patch) -> None:
    patch.setattr(GroupPolicy, "gives_up", lambda policy, count: 0 < policy.deliveries_max < count)


def once_too_few(patch: Patch) -> None:
    patch.setattr(
        GroupPolicy, "gives_up", lambda policy, count: 0 < policy.deliveries_max <= count + 1
    )


def dead_without_a_copy(patch: Patch) -> None:
    patch.setattr(releasing, "_copy", lambda *_args: True)


def copied_and_not_acknowledged(patch: Patch) -> None:
    patch.setattr(releasing, "acknowledge", _nothing)


def copies_are_not_the_same(patch: Patch) -> None:
    """Each region adds a copy under an ID of its own."""
    add_once = releasing.add_once

    def added(ctx: Any, db: int, key: bytes, tag: tuple[bytes, bytes], *more: Any) -> bool:
        own = b"%d" % ctx.keyspace.replica.own
        return add_once(ctx, db, key, (tag[0] + own, tag[1]), *more)

    patch.setattr(releasing, "add_once", added)


def delay_of_the_first_always(patch: Patch) -> None:
    patch.setattr(
        GroupPolicy, "due_ms",
        lambda policy, entry: entry.delivery_ms + policy.backoff[0] if policy.backoff else 0,
    )  # fmt: skip


def no_delay(patch: Patch) -> None:
    patch.setattr(GroupPolicy, "due_ms", lambda policy, entry: 0)


def ripe_entries_are_forgotten(patch: Patch) -> None:
    ripen = Policed.ripen

    def changed(policed: Policed, released: Any, now_ms: int, most: int) -> Any:
        policed.ripe.clear()
        return ripen(policed, released, now_ms, most)

    patch.setattr(Policed, "ripen", changed)


def one_more_than_there_is_room(patch: Patch) -> None:
    within = readgroup.within_room

    def changed(group: Any, request: Any, limit: int) -> int:
        left = within(group, request, limit)
        return left + 1 if left != limit or not left else left

    for module in (readgroup, key_order):
        patch.setattr(module, "within_room", changed)


def life_ends_beside_a_connection(patch: Patch) -> None:
    def end_ms(hold: Hold, policy: GroupPolicy, seen_ms: int) -> int | None:
        return max(hold.used_ms, seen_ms) + policy.consumer_ttl_ms or None

    patch.setattr(Hold, "life_end_ms", end_ms)


def nobody_is_removed(patch: Patch) -> None:
    patch.setattr(Hold, "life_end_ms", _nothing)


def removed_with_what_it_has(patch: Patch) -> None:
    """A consumer that is gone takes its entries along."""

    def release(leasing: Leasing, whose: Any, entries: Any, _policy: str) -> None:
        for entry in list(entries):
            releasing.acknowledge(leasing._region.context, whose, [entry])

    patch.setattr(Leasing, "_release", release)


def given_is_done(patch: Patch) -> None:
    """What was handed out is not kept."""
    needed = retention._needed_from
    patch.setattr(
        retention,
        "_needed_from",
        lambda stream, group, replica_id, _: needed(stream, group, replica_id, False),
    )


def nothing_is_kept(patch: Patch) -> None:
    patch.setattr(retention, "_needed_from", lambda *_args: 1 << 62)


def policies_end_with_the_process(patch: Patch) -> None:
    patch.setattr(Policies, "bind", _nothing)


def time_begins_anew_with_the_process(patch: Patch) -> None:
    """A start puts off what is due."""
    expect = Leasing._expect

    def changed(leasing: Leasing, database: Any, key: bytes) -> Any:
        yield from expect(leasing, database, key)
        for place in list(leasing._region.leases.deadlines):
            leasing._region.leases.deadlines[place] = leasing._region.context.now_ms + 60_000

    patch.setattr(Leasing, "_expect", changed)


MISTAKES: Final[dict[str, tuple[str | None, Callable[[Patch], None]]]] = {
    "a sign of life in place of a connection": ("connection", life_in_place_of_a_connection),
    "one of several connections ends": ("connection", first_connection_takes_the_others_along),
    "a connection that ends is not noticed": ("connection", end_is_not_noticed),
    "no grace": ("connection", _shifted(lambda policy: -policy.lease.ms)),
    "too long a grace": ("connection", _shifted(lambda _: 2 * LATE_MS)),
    "a heartbeat that ends early": ("heartbeat", _shifted(lambda policy: -policy.lease.ms // 2)),
    "a connection in place of a heartbeat": ("heartbeat", waiting_is_life),
    "what is held is idle": ("connection", held_is_idle),
    "nobody is expected after a start": ("connection", nobody_is_expected),
    "all are late after a start": ("heartbeat", all_are_late_after_a_start),
    "a start puts off what is due": ("time", time_begins_anew_with_the_process),
    "looked at too late": ("time", looked_at_too_late),
    "all are released with the oldest": ("time", own_time_is_that_of_the_oldest),
    "nobody is woken": ("time", nobody_is_woken),
    "one of several is released": ("connection", one_of_several_is_released),
    "plain reads are given nothing": ("heartbeat", plain_reads_get_nothing),
    "AB.RENEW is no sign of life": ("heartbeat", renewing_is_no_life),
    "XACK is no sign of life": ("heartbeat", acknowledging_is_no_life),
    "strangers may not acknowledge": ("connection", strangers_are_late),
    "delivered once too often": (None, once_too_often),
    "given up too early": (None, once_too_few),
    "given up without a copy": (None, dead_without_a_copy),
    "copied, and not acknowledged": (None, copied_and_not_acknowledged),
    "each region adds a copy": (REGIONS, copies_are_not_the_same),
    "no delay": (None, no_delay),
    "the first delay for all": (None, delay_of_the_first_always),
    "entries whose delay is over are forgotten": (None, ripe_entries_are_forgotten),
    "one more than max-pending": (None, one_more_than_there_is_room),
    "consumers with a connection are removed": (None, life_ends_beside_a_connection),
    "no consumer is removed": (None, nobody_is_removed),
    "a consumer is removed with its entries": (None, removed_with_what_it_has),
    "what was handed out is not kept": (None, given_is_done),
    "nothing is kept": (None, nothing_is_kept),
    "policies end with the process": (None, policies_end_with_the_process),
}
"""By name, the kind of run in which it shows (None: any), and what builds it in."""
