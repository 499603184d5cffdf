"""Vectors, and what rows allow to call stable."""

from __future__ import annotations

from anabranch.keyspace.replica import Member
from anabranch.keyspace.version_vectors import covers, maximum
from anabranch.replication.frames import StatusRow
from anabranch.replication.membership import Membership
from anabranch.replication.status_table import StatusTable
from tests.support.counted_region import CountedRegion
from tests.support.replication_world import World


def row(
    region: int,
    durable: dict[int, int],
    have: dict[int, int] | None = None,
    *,
    version: int = 1,
    epoch: int = 0,
) -> StatusRow:
    have = durable if have is None else have
    return StatusRow(region, epoch << 8 | region, version, have, durable, have, 1, [])


class Knowledge:
    """Region 1 of three, which has applied and synced what ``vector`` says."""

    def __init__(self, vector: dict[int, int]) -> None:
        self.local = CountedRegion(World(), 1)
        self.local.vector = self.local.durable = vector
        self.local.replica.members = {number: Member("", "", 0) for number in (1, 2, 3)}
        self.membership = Membership(self.local)
        self.table = StatusTable()

    def hears(self, *rows: StatusRow) -> Knowledge:
        for each in rows:
            self.table.update(each, 0.0)
            self.membership.learn([each.replica_id, *each.have])
        return self

    def watermark(self) -> dict[int, int]:
        return self.table.watermark(self.local.vector, self.local.durable, self.membership)

    def holding_back(self, effects: dict[int, int]) -> list[int]:
        self.watermark()
        return self.table.holding_back(effects, self.local.durable, self.membership)


def test_a_vector_covers_what_it_reaches() -> None:
    assert covers({1: 2}, {1: 2})
    assert covers({1: 2}, {2: 0})
    assert not covers({1: 2}, {1: 2, 2: 1})
    assert maximum({1: 2, 2: 1}, {1: 1, 3: 4}) == {1: 2, 2: 1, 3: 4}


def test_what_all_have_on_disk_is_stable() -> None:
    known = Knowledge({1: 5, 2: 4}).hears(row(2, {1: 3, 2: 4}), row(3, {1: 4, 2: 1}))
    assert known.watermark() == {1: 3, 2: 1}


def test_nothing_is_stable_while_a_member_was_not_heard_of() -> None:
    assert Knowledge({1: 5}).hears(row(2, {1: 5})).watermark() == {}


def test_what_is_here_but_not_on_the_disk_is_not_stable() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 5}), row(3, {1: 5}))
    known.local.durable = {1: 2}
    assert known.watermark() == {1: 2}


def test_a_row_does_not_count_before_all_that_its_region_holds_is_applied_here() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 5}), row(3, {1: 5}, {1: 5, 2: 1}))
    assert known.watermark() == {}
    known.local.vector = {1: 5, 2: 1}
    assert known.watermark() == {1: 5}


def test_an_earlier_row_that_counted_counts_on() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 4}), row(3, {1: 5}))
    assert known.watermark() == {1: 4}
    known.hears(row(2, {1: 5}, {1: 5, 3: 1}, version=2))
    assert known.watermark() == {1: 4}


def test_a_new_epoch_silences_all_whose_disk_does_not_hold_its_beginning() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 5}), row(3, {1: 5}))
    assert known.watermark() == {1: 5}
    known.membership.learn([3 | 1 << 8])
    assert known.watermark() == {}
    opened = {1: 5, 259: 1}
    known.local.vector = known.local.durable = opened
    known.hears(row(3, opened, version=1, epoch=1))
    assert known.watermark() == {}
    known.hears(row(2, opened, version=2))
    assert known.watermark() == opened


def test_an_older_row_changes_nothing() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 5}, version=7), row(2, {1: 1}, version=6))
    assert known.table.rows[2].version == 7
    known.hears(row(2, {1: 2}, version=1, epoch=1), row(2, {1: 5}, version=9))
    assert known.table.rows[2].replica_id == 258


def test_a_removed_region_is_waited_for_until_all_have_its_removal_on_disk() -> None:
    known = Knowledge({1: 6}).hears(row(2, {1: 6}), row(3, {1: 2}))
    del known.local.replica.members[3]
    known.local.replica.removed = {3: 0}
    known.local.vector = {1: 7}
    known.membership.notice_removals()
    assert known.watermark() == {1: 2}
    known.hears(row(2, {1: 7}, version=2))
    assert known.watermark() == {1: 2}
    known.local.durable = {1: 7}
    assert known.watermark() == {1: 7}


def test_a_removed_region_is_waited_for_until_what_others_accepted_from_it_is_here() -> None:
    known = Knowledge({1: 6}).hears(row(2, {1: 6}), row(3, {1: 2}))
    del known.local.replica.members[3]
    known.local.replica.removed = {3: 0}
    known.local.vector = known.local.durable = {1: 7}
    known.membership.notice_removals()
    assert known.watermark() == {1: 2}
    known.hears(row(2, {1: 7}, {1: 7, 3: 4}, version=2))
    assert known.watermark() == {1: 2}
    known.local.vector = known.local.durable = {1: 7, 3: 4}
    known.watermark()
    assert known.watermark() == {1: 7}


def test_an_epoch_that_a_region_opened_after_its_removal_is_not_waited_for() -> None:
    known = Knowledge({1: 6}).hears(row(2, {1: 6}), row(3, {1: 2}, {3: 9}))
    del known.local.replica.members[3]
    known.local.replica.removed = {3: 0}
    known.local.vector = {1: 7}
    known.membership.notice_removals()
    known.membership.learn([3 | 1 << 8])  # it dialled before it knew
    assert known.watermark() == {}, "region 2 may still accept effects of its former epoch"
    assert known.holding_back({1: 6}) == [1, 2]
    known.local.durable = {1: 7}
    known.hears(row(2, {1: 7}, version=3))
    known.watermark()
    assert known.watermark() == {1: 7}
    assert known.holding_back({1: 6}) == []


def test_a_region_alone_is_all_members() -> None:
    known = Knowledge({1: 5})
    known.local.replica.members = {1: Member("", "", 0)}
    assert known.watermark() == {1: 5}


def test_who_holds_back_is_who_may_lack_something_on_the_disk() -> None:
    known = Knowledge({1: 5, 2: 4}).hears(row(2, {1: 3, 2: 4}), row(3, {1: 5, 2: 1}))
    assert known.holding_back({1: 3, 2: 1}) == []
    assert known.holding_back({1: 4}) == [2]
    assert known.holding_back({1: 4, 2: 2}) == [2, 3]
    known.local.durable = {1: 5}
    assert known.holding_back({2: 1}) == [1]


def test_who_was_not_heard_of_holds_back_and_who_has_more_than_we_have_applied() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 5}, {1: 5, 3: 1}))
    assert known.holding_back({1: 1}) == [2, 3]


def test_a_removed_region_is_held_back_by_who_lacks_its_removal() -> None:
    known = Knowledge({1: 5}).hears(row(2, {1: 4}), row(3, {1: 3}))
    known.local.replica.removed[3] = 0
    del known.local.replica.members[3]
    known.membership.notice_removals()
    assert known.holding_back({1: 3}) == []
    assert known.holding_back({1: 4}) == [2]
    known.hears(row(2, {1: 5}, version=2))
    assert known.holding_back({1: 4}) == []
