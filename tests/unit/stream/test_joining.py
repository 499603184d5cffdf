"""Tables by dots that two regions join: what one of them has seen and dropped is dropped."""

from __future__ import annotations

import pytest

from anabranch.stream.joining import join_dots


@pytest.mark.parametrize(
    ("seen_there", "is_kept"),
    [({}, True), ({1: 4}, True), ({1: 5}, False), ({1: 6}, False), ({2: 9}, True)],
)
def test_what_the_other_side_has_seen_and_not_kept_is_dropped(
    seen_there: dict[int, int], is_kept: bool
) -> None:
    assert join_dots({(1, 5): "ours"}, {}, {1: 5}, seen_there) == (
        {(1, 5): "ours"} if is_kept else {}
    )


@pytest.mark.parametrize(
    ("seen_here", "is_new"),
    [({}, True), ({1: 4}, True), ({1: 5}, False), ({1: 6}, False), ({2: 9}, True)],
)
def test_what_this_side_has_seen_and_dropped_does_not_come_back(
    seen_here: dict[int, int], is_new: bool
) -> None:
    assert join_dots({}, {(1, 5): "theirs"}, seen_here, {1: 5}) == (
        {(1, 5): "theirs"} if is_new else {}
    )


def test_the_first_effect_of_a_region_is_new_to_who_knows_nothing_of_it() -> None:
    assert join_dots({}, {(2, 1): "theirs"}, {1: 5}, {2: 1}) == {(2, 1): "theirs"}
    assert join_dots({(2, 1): "ours"}, {}, {2: 1}, {1: 5}) == {(2, 1): "ours"}


def test_what_both_have_stays_as_it_is_here() -> None:
    assert join_dots({(1, 5): "ours"}, {(1, 5): "theirs"}, {1: 5}, {1: 5}) == {(1, 5): "ours"}
