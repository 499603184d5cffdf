"""Mistakes built into policies that regions share, each a broken rule.

:mod:`tests.simulator.exploring` says in which small world the exploration finds each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from anabranch.effects import acknowledging, apply_homes, kinds, prepare
from anabranch.keyspace.policies import Policies, Subject
from anabranch.node.persistence import Persistence
from anabranch.region.leases import Leasing
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.home import GroupHome, HomeEpoch, TakeWatch
from anabranch.stream.groups.runs import Runs
from anabranch.stream.ranges import Ranges
from anabranch.stream.shared import Shared

__all__ = ["MISTAKES", "nobody_compares", "nothing_pending_is_handed_over"]

Patch = pytest.MonkeyPatch


# -- homes ----------------------------------------------------------------------------------------


def nobody_waits_for_the_disk(patch: Patch) -> None:
    patch.setattr(Persistence, "synced", lambda self: 1 << 60)


def nothing_pending_is_handed_over(patch: Patch) -> None:
    def none_of(place: Any, home: HomeEpoch) -> Iterator[Any]:
        for effect in hand_over_of(place, home):
            effect.rows = []
            yield effect

    hand_over_of = apply_homes.hand_over_of
    patch.setattr("anabranch.region.leases.hand_over_of", none_of)


def a_home_begins_without_a_hand_over(patch: Patch) -> None:
    is_away = Group.is_away

    def is_away_never(self: Group, region: int) -> bool:
        present = self.present_home
        if self.home is not None and self.home.leaving is None and present is not None:
            return present.region != region
        return is_away(self, region)

    patch.setattr(Group, "is_away", is_away_never)


def the_last_epoch_counts(patch: Patch) -> None:
    def raise_to(self: GroupHome, creations: Any, home: HomeEpoch) -> None:
        for dot in creations if home.number else ():
            self.epochs[dot] = home

    patch.setattr(GroupHome, "raise_to", raise_to)


def nobody_compares(patch: Patch) -> None:
    patch.setattr(TakeWatch, "repeated", lambda self, *given: {})


def a_former_home_is_silent(patch: Patch) -> None:
    due = Group.due_hand_over

    def due_unless_forced(self: Group, region: int) -> HomeEpoch | None:
        home = due(self, region)
        return None if home is None or home.forced else home

    patch.setattr(Group, "due_hand_over", due_unless_forced)


def acknowledged_elsewhere_is_not_noted(patch: Patch) -> None:
    note = apply_homes.note_acknowledged

    def noted(group: Group, home: GroupHome, *given: Any) -> None:
        was, home.has_handed_over = home.has_handed_over, True
        note(group, home, *given)
        home.has_handed_over = was

    patch.setattr("anabranch.effects.apply_group.note_acknowledged", noted)


# -- acks all -------------------------------------------------------------------------------------


def pending_entries_are_told(patch: Patch) -> None:
    """The dots of an effect are all that is pending."""
    patch.setattr(
        prepare,
        "dots_of",
        lambda effect, group: [
            (replica_id, entry.number)
            for replica_id, pending in group.pending.lists.items()
            for entry in pending.entries.values()
        ],
    )


def intervals_reach_too_far(patch: Patch) -> None:
    patch.setattr(acknowledging.by_number, "newest_slot_upto", lambda log, number: (0, 0))


def noack_is_not_told(patch: Patch) -> None:
    dots_of = acknowledging.dots_of
    patch.setattr(
        prepare,
        "dots_of",
        lambda effect, group: [] if type(effect) is kinds.Deliver else dots_of(effect, group),
    )


def only_the_first_is_told(patch: Patch) -> None:
    dots_of = acknowledging.dots_of
    patch.setattr(prepare, "dots_of", lambda effect, group: dots_of(effect, group)[:1])


def what_was_held_back_stays_so(patch: Patch) -> None:
    patch.setattr(Leasing, "_tell", lambda self, place: None)


def given_up_is_told_later(patch: Patch) -> None:
    held_back = Runs.held_back

    def without(self: Runs, *given: Any) -> tuple[Ranges, int]:
        given_up, self.discarded = self.discarded, {}
        try:
            return held_back(self, *given)
        finally:
            self.discarded = given_up

    patch.setattr(Runs, "held_back", without)


# -- settings -------------------------------------------------------------------------------------


def the_last_policy_wins(patch: Patch) -> None:
    put = Policies.set

    def put_last(self: Policies, subject: Subject, name: bytes, *given: Any, **more: Any) -> None:
        self.rules.get(subject, {}).pop(name, None)
        put(self, subject, name, *given, **more)

    patch.setattr(Policies, "set", put_last)


def the_last_limits_win(patch: Patch) -> None:
    put = Shared.set_limits

    def put_last(self: Shared, *given: Any) -> bool:
        self.limits = {}
        return put(self, *given)

    patch.setattr(Shared, "set_limits", put_last)


MISTAKES: Final[dict[str, Callable[[Patch], None]]] = {
    "a home is handed over before that is on the disk": nobody_waits_for_the_disk,
    "what is pending is not handed over": nothing_pending_is_handed_over,
    "a home begins without a hand-over": a_home_begins_without_a_hand_over,
    "the home that is told last counts": the_last_epoch_counts,
    "nobody compares what two homes delivered": nobody_compares,
    "a former home says nothing after a forced take": a_former_home_is_silent,
    "what is acknowledged elsewhere is not noted": acknowledged_elsewhere_is_not_noted,
    "all that is pending is told as acknowledged": pending_entries_are_told,
    "acknowledged intervals reach too far": intervals_reach_too_far,
    "what NOACK delivers is not told": noack_is_not_told,
    "of several acknowledged entries one is told": only_the_first_is_told,
    "what was held back stays so with acks all": what_was_held_back_stays_so,
    "what was given up is told later": given_up_is_told_later,
    "the policy that arrives last counts": the_last_policy_wins,
    "the limits of idempotent IDs that arrive last count": the_last_limits_win,
}
