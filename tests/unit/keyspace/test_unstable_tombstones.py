"""The unstable tombstones agree with an ordered dictionary of dots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.keyspace.unstable_tombstones import UnstableTombstones
from anabranch.stream.shared import Dot

DOTS = st.tuples(st.sampled_from([257, 258, 2**39]), st.integers(1, 30))


@given(st.lists(st.one_of(DOTS, st.dictionaries(st.just(257), st.integers(0, 30))), max_size=40))
def test_they_agree_with_a_dictionary(steps: list[Dot | dict[int, int]]) -> None:
    tombstones = UnstableTombstones()
    model: dict[Dot, None] = {}
    newest = dict.fromkeys([257, 258, 2**39], 0)
    for step in steps:
        if isinstance(step, dict):
            covered = [dot for dot in model if dot[1] <= step.get(dot[0], 0)]
            assert tombstones.prune(step) == len(covered)
            for dot in covered:
                del model[dot]
        else:
            newest[step[0]] += step[1]  # numbers of a replica ID ascend
            dot = step[0], newest[step[0]]
            model[dot] = None
            tombstones.add(dot)
        assert len(tombstones) == len(model)
        assert tombstones.oldest == next(iter(model), None)


def test_a_dot_that_comes_late_is_held_once_and_dropped_by_its_number() -> None:
    tombstones = UnstableTombstones()
    for number in (5, 9, 7, 5, 7, 1):
        tombstones.add((257, number))
    assert len(tombstones) == 4
    assert tombstones.prune({257: 7, 258: 99}) == 3
    assert tombstones.oldest == (257, 9)
    assert tombstones.prune({257: 9}) == 1
    assert tombstones.oldest is None
    assert not tombstones


def test_what_is_known_stays_older_than_what_is_found() -> None:
    tombstones = UnstableTombstones()
    tombstones.add((258, 3))
    tombstones.add((257, 8))
    tombstones.renew([(257, 8), (257, 2), (258, 3), (259, 1)])
    assert len(tombstones) == 4
    assert tombstones.oldest == (258, 3)
    tombstones.renew([(259, 1), (257, 8)])
    assert tombstones.oldest == (257, 8)
    tombstones.renew([])
    assert tombstones.oldest is None
