"""Lines of a picture: each can be seen, wherever the others are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from anabranch.spark.plots import plotting


def test_a_point_without_neighbours_is_seen_among_many() -> None:
    values = [*range(100), None, 7, None, *range(100)]
    assert plotting._marked(values) == [101]
    assert plotting._marked(values[:60]) == list(range(60))


def test_a_line_below_another_one_is_wider() -> None:
    times = [datetime(2026, 3, 1, 0, minute, tzinfo=UTC) for minute in range(4)]

    def widths(*lines: list[int]) -> list[float]:
        return plotting._widths([plotting.Curve("", times, line, "") for line in lines])

    one = plotting._WIDTH
    assert widths([1, 2, 3, 4], [4, 3, 2, 1]) == [one, one]
    low, middle, top = widths([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 9, 9])
    assert low > middle + 1 > top + 2 == one + 2
    later = [each + timedelta(milliseconds=300) for each in times]  # by another server's clock
    lines = [plotting.Curve("", some, [5, 5, 6, 7], "") for some in (times, later)]
    assert plotting._widths(lines) == [one + plotting._BESIDE, one]
    many = widths(*[[0, 0, 0, 0]] * 21)
    assert many == sorted(set(many), reverse=True)
    assert many[0] < 15
