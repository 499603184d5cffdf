"""Pending entries of several regions with one ID, in an order that does not depend on arrival."""

from __future__ import annotations

import pytest

from anabranch.keyspace.replica import replica_id_of
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.frozen_pending import FrozenEntries
from anabranch.stream.groups.group import group_alone
from anabranch.stream.groups.pending_list import first_of, ranked

LOGS = [replica_id_of(1, 0), replica_id_of(1, 1), replica_id_of(2, 0)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_equal_ids_are_in_the_order_of_regions_and_epochs(order: tuple[int, ...]) -> None:
    group = group_alone(0, 0)
    for log in order:
        consumer = group.consumer(b"%d" % log, 0)
        group.pending.assign(LOGS[log], 7, consumer, 0, 1)
    frozen = FrozenEntries(ranked(group.pending.lists), MIN_ID, MAX_ID)
    for found in (
        group.pending.between(MIN_ID, MAX_ID),
        first_of(group.pending.lists, MIN_ID, MAX_ID, 1),
        [entry for piece in frozen.pieces() for entry in piece],
    ):
        assert [entry.consumer.name for entry in found if entry.consumer] == [b"0", b"1", b"2"]
