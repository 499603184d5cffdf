"""What of the log is older than a limit."""

from __future__ import annotations

from anabranch.oplog.log_index import NOTED_EVERY_MS, Ages

MINUTE = NOTED_EVERY_MS
END = 1000


def noted(*minutes: float) -> Ages:
    """A batch of these times each ten bytes."""
    ages = Ages()
    for index, minute in enumerate(minutes):
        ages.record(10 * index, int(minute * MINUTE))
    return ages


def test_all_before_a_position_is_older() -> None:
    ages = noted(1, 2, 3, 4)
    assert ages.older_than(1 * MINUTE, END) == 0
    assert ages.older_than(2 * MINUTE, END) == 0
    assert ages.older_than(3 * MINUTE, END) == 10
    assert ages.older_than(4 * MINUTE, END) == 20


def test_a_log_that_nobody_writes_to_is_old_as_a_whole() -> None:
    ages = noted(1, 1.5)
    assert ages.older_than(int(1.5 * MINUTE), END) == 0
    assert ages.older_than(int(1.5 * MINUTE) + 1, END) == END
    assert Ages().older_than(1, END) == END, "there is nothing in it"


def test_what_comes_late_is_no_older_than_what_came_before_it() -> None:
    ages = noted(5, 1, 1, 7, 1, 9)
    assert ages.older_than(5 * MINUTE, END) == 0
    assert ages.older_than(7 * MINUTE, END) == 0
    assert ages.older_than(8 * MINUTE, END) == 30
    assert noted(5, 1).older_than(2 * MINUTE, END) == 0


def test_few_batches_are_noted() -> None:
    ages = noted(*(step / 10 for step in range(1, 100)))
    assert len(ages._times) == 10
    ages.prune(500)
    assert ages.older_than(9 * MINUTE, END) > 500
    assert len(ages._times) < 10
