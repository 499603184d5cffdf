"""Mistakes built into scheduled entries, each a broken promise.

Each is a patch, and the kind of run in which it shows. A mistake that is not found is a hole in
:mod:`tests.simulator.scheduled`, or in what its runs come to. ``python -m tests.simulator.scheduled
--mistakes`` tries all of them, and prints the table in docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from anabranch.effects import kinds
from anabranch.effects.applier import Applier
from anabranch.effects.apply import apply
from anabranch.engine import scheduled
from anabranch.keyspace.timetables import Timetables
from anabranch.oplog import snapshot
from anabranch.region.maintenance import DueEntries
from anabranch.server.cron import next_by_cron
from anabranch.simulator.driver import SimulatedHost

__all__ = ["MISTAKES", "REGIONS"]

Patch = pytest.MonkeyPatch
REGIONS: Final = "three regions"


def _nothing(*_args: Any, **_named: Any) -> None:
    """It is not done."""


def added_too_early(patch: Patch) -> None:
    due = DueEntries._due
    patch.setattr(DueEntries, "_due", lambda self, now_ms: due(self, now_ms + 700))
    add_due = scheduled.add_due

    def earlier(ctx: Any, *args: Any) -> None:
        ctx.set_time(ctx.now_ms + 700)
        add_due(ctx, *args)

    patch.setattr(scheduled, "add_due", earlier)


def added_and_not_noted(patch: Patch) -> None:
    """What is noted of an addition is not in the log."""
    apply_own = Applier._apply_own

    def changed(applier: Applier, effect: kinds.Effect, is_numbered: bool) -> None:
        if type(effect) is kinds.AdvanceScheduled:
            apply(applier.keyspace, effect)
        else:
            apply_own(applier, effect, is_numbered)

    patch.setattr(Applier, "_apply_own", changed)


def snapshot_without_them(patch: Patch) -> None:
    patch.setattr(snapshot, "schedule_rows", lambda _entries: [])


def cancel_is_forgotten(patch: Patch) -> None:
    """What is cancelled is back after a start."""
    apply_own = Applier._apply_own

    def changed(applier: Applier, effect: kinds.Effect, is_numbered: bool) -> None:
        if type(effect) is kinds.AdvanceScheduled and effect.rows[0][3] > applier.now_ms:
            apply(applier.keyspace, effect)
        else:
            apply_own(applier, effect, is_numbered)

    patch.setattr(Applier, "_apply_own", changed)


def every_region_adds(patch: Patch) -> None:
    patch.setattr(DueEntries, "_acts_for", lambda *_args: True)


def nobody_takes_over(patch: Patch) -> None:
    patch.setattr(
        DueEntries,
        "_acts_for",
        lambda self, owner, _now_ms: owner == self._region.keyspace.replica.region,
    )


def both_stay(patch: Patch) -> None:
    patch.setattr(Timetables, "added", _nothing)


def the_one_before_goes(patch: Patch) -> None:
    """Which of two goes depends on the order in which a region hears of them."""

    def added(table: Any, key: bytes, handle: bytes, identity: Any, at_ms: int, new: Any) -> Any:
        occurrence = (key, handle, *identity, at_ms)
        known = table.additions.get(occurrence)
        table.additions[occurrence] = new
        return None if known is None or known.dot == new.dot else known

    patch.setattr(Timetables, "added", added)


def additions_are_forgotten_at_once(patch: Patch) -> None:
    added = Timetables.added

    def changed(table: Any, *args: Any) -> Any:
        goes = added(table, *args)
        table.additions.clear()
        return goes

    patch.setattr(Timetables, "added", changed)


def minutes_are_left_out(patch: Patch) -> None:
    def changed(_host: SimulatedHost, line: bytes, zone: bytes, after_ms: int) -> int | None:
        return next_by_cron(line, zone, after_ms + 60_000)

    patch.setattr(SimulatedHost, "next_by_cron", changed)


def a_minute_again(patch: Patch) -> None:
    def changed(_host: SimulatedHost, _line: bytes, _zone: bytes, after_ms: int) -> int:
        return (after_ms // 20_000 + 1) * 20_000

    patch.setattr(SimulatedHost, "next_by_cron", changed)


def the_latest_counts(patch: Patch) -> None:
    """A key is looked at when the entry is due that was scheduled last."""
    look = Timetables.look

    def changed(table: Any, key: bytes, handle: bytes, at_ms: int) -> None:
        look(table, key, handle, at_ms)
        table.due[table.entries[key, handle].owner][key] = at_ms

    patch.setattr(Timetables, "look", changed)


MISTAKES: Final[dict[str, tuple[str | None, Callable[[Patch], None]]]] = {
    "scheduled entries are added too early": (None, added_too_early),
    "an addition is not noted": (None, added_and_not_noted),
    "a snapshot has no scheduled entries": (None, snapshot_without_them),
    "a cancelled entry is added all the same": (None, cancel_is_forgotten),
    "every region adds a scheduled entry": (REGIONS, every_region_adds),
    "nobody adds what a removed region has scheduled": (REGIONS, nobody_takes_over),
    "of two additions both stay": (REGIONS, both_stay),
    "of two additions each region keeps another one": (REGIONS, the_one_before_goes),
    "additions are forgotten at once": (REGIONS, additions_are_forgotten_at_once),
    "a cron line leaves out minutes": (None, minutes_are_left_out),
    "a cron line comes twice in a minute": (None, a_minute_again),
    "an entry that is due later puts off the others": (None, the_latest_counts),
}
"""By name: the kind of run in which it shows (None: any), and what builds it in."""
