"""IDs that regions make: above all that was seen, and no two replica IDs make the same."""

from __future__ import annotations

from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.stream.entry_id import MODULUS, SEQ_BITS, automatic_id, sequence_in, steps_below

NOW = 1_700_000_000_000
EPOCH_BITS, EPOCHS = 32, 65536

regions = st.integers(1, 255)
epochs = st.integers(0, 3) | st.integers(EPOCHS - 2, EPOCHS + 2)
seconds_ago = st.integers(-1, 1)
sequences = st.builds(  # seen before, by whomever: near the ends of what epochs may use
    lambda epoch, away: max((epoch << EPOCH_BITS) + away, 0),
    st.integers(0, 4) | st.integers(EPOCHS - 4, EPOCHS - 2),
    st.integers(-600, 600),
)


def smallest(region: int, epoch: int, after: int) -> int:
    """The rule, tried out: the region in the low byte, the epoch in the upper half."""
    for high in count(max((after + 1) >> EPOCH_BITS, epoch)):
        low = max(after + 1, high << EPOCH_BITS)
        number = low + (region - low) % MODULUS
        if number >> EPOCH_BITS == high and high % EPOCHS == epoch % EPOCHS:
            return number
    raise AssertionError


@given(regions, epochs, sequences, seconds_ago)
@example(1, 1, (1 << 32) + 1, 0)  # one of ours follows another
@example(1, 1, (2 << 32) - 255, 0)  # the last one of the epoch
def test_the_next_id_is_the_smallest_of_ours_above_the_last(
    region: int, epoch: int, sequence: int, ago: int
) -> None:
    own = epoch << 8 | region
    last = (NOW - 1000 * ago << SEQ_BITS) + sequence
    ms = max(NOW, NOW - 1000 * ago)
    expected = smallest(region, epoch, sequence if ago <= 0 else -1)
    assert automatic_id(own, NOW, last) == (ms << SEQ_BITS) + expected
    assert sequence_in(own, ms, last) == (ms << SEQ_BITS) + expected


@given(regions, epochs, sequences)
def test_an_own_id_is_followed_a_step_above_within_the_epoch(
    region: int, epoch: int, sequence: int
) -> None:
    own = epoch << 8 | region
    sequence += (region - sequence) % MODULUS
    last = (NOW << SEQ_BITS) + sequence
    follows = automatic_id(own, NOW, last) == last + MODULUS
    is_of_epoch = sequence >> EPOCH_BITS == epoch
    assert (sequence < steps_below(own, sequence)) == (is_of_epoch and follows)


@given(regions, regions, st.integers(0, 3), st.integers(0, 3), sequences)
def test_two_origins_never_make_the_same_id(
    region: int, other: int, epoch: int, later: int, sequence: int
) -> None:
    one, two = epoch << 8 | region, later << 8 | other
    last = (NOW << SEQ_BITS) + sequence
    if one != two:
        assert automatic_id(one, NOW, last) != automatic_id(two, NOW, last)
