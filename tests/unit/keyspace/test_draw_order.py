"""Drawing from the members of a set that changes."""

from __future__ import annotations

from collections import Counter
from random import Random

from anabranch.keyspace.values import DrawOrder


def test_each_member_is_drawn_equally_often_after_any_changes() -> None:
    chance = Random(1)
    members = {b"%d" % number for number in range(30)}
    order = DrawOrder(members)
    for _ in range(2_000):
        some = [b"%d" % chance.randrange(40) for _ in range(chance.randrange(4))]
        if chance.random() < 0.5:
            order.add([each for each in dict.fromkeys(some) if each not in members])
            members.update(some)
        else:
            order.remove([each for each in dict.fromkeys(some) if each in members])
            members.difference_update(some)
        if members:
            assert order.draw(chance.randrange) in members
    drawn = Counter(order.draw(chance.randrange) for _ in range(len(members) * 1_000))
    assert drawn.keys() == members
    assert all(800 < count < 1_200 for count in drawn.values())


def test_what_was_removed_does_not_pile_up() -> None:
    order = DrawOrder(())
    for number in range(10_000):
        order.add([b"%d" % number])
        order.remove([b"%d" % number])
    assert order.size_bytes < 1_000
