"""The benchmark of growth and latency measures real servers, and the floor plays real windows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.scaling import budget, chart
from benchmarks.scaling.catalogue import catalogue
from benchmarks.scaling.sizes import dimensions, request
from benchmarks.scaling.stage import FREE_GROWTH, Dimension, Operation, Sample
from benchmarks.shared.goals import judge
from benchmarks.versus_redis.floor import Floor
from benchmarks.versus_redis.load import Request, windows
from benchmarks.versus_redis.workloads import sensor_id

needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server is not installed"
)


def test_every_measurement_has_a_name_of_its_own():
    names = [one.name for one in catalogue()]
    assert len(names) == len(set(names)) == 9


def test_both_servers_get_the_same_requests_and_each_round_gets_others():
    for dimension in dimensions():
        for operation in dimension.operations:
            first, again = (operation.ask(Sample(1, 1000, 50)) for _ in range(2))
            assert first == again, operation.name
    read = next(one for one in dimensions()[0].operations if one.name == "XRANGE COUNT 1")
    assert read.ask(Sample(1, 1000, 50)) != read.ask(Sample(2, 1000, 50))


@needs_redis
def test_a_dimension_gives_growth_with_its_points_and_a_goal(tmp_path: Path):
    def fill(size: int) -> list[Request]:
        return [request("XADD", "s", f"{index + 1}-0", "f", "v") for index in range(size)]

    def read_all(sample: Sample) -> list[Request]:
        return [request("XRANGE", "s", "-", "+")] * 16

    grown = Dimension("entries", (), (4, 400), fill, (Operation("XRANGE of all", read_all),))
    (figure,) = grown.measure(quick=True)
    assert figure.name == "XRANGE of all, 4 to 400 entries"
    assert figure.points is not None
    assert figure.points.sizes == [4, 400]
    assert set(figure.points.values) == {"anabranch", "redis"}
    few, many = figure.points.values["redis"]
    assert many > 3 * few  # a hundred times as many entries in a reply
    (verdict,) = judge([figure], {})
    assert verdict.goal is not None
    assert verdict.goal.limit >= FREE_GROWTH

    source = tmp_path / "scaling.json"
    part = {
        "verdicts": [
            {
                "figure": {
                    "name": figure.name,
                    "points": {"sizes": figure.points.sizes, "values": figure.points.values},
                }
            }
        ]
    }
    machine = {"python": "CPython 3", "cpu": "a cpu", "cores": 2}
    source.write_text(
        json.dumps({"parts": [part], "version": "1.2.3", "made_at": "today", "machine": machine})
    )
    chart.draw(source, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_the_floor_answers_each_window_with_as_many_bytes_and_lines():
    script = windows([request("PING")] * 40, 16)
    counted = [type(one)(one.payload, one.replies, one.replies) for one in script]
    with Floor() as floor:
        cpu, wall = floor.play(counted, [7 * one.replies for one in script])
    assert 0 < cpu < wall


def test_the_ten_million_come_once_each_and_reads_stay_among_them() -> None:
    parts = list(budget.parts(budget.PART + 3))
    assert [len(part) for part in parts] == [budget.PART, 3]
    ids = [one.payload.split(b"\r\n")[6] for part in parts for one in part]
    assert ids == [sensor_id(index).encode() for index in range(budget.PART + 3)]
    for name, ask in budget.READ.items():
        asked = ask([1000, 2000, 3000, 4000])
        assert asked
        count = int(name.split()[2])
        assert all(one.lines == 8 * count + (5 if "XREAD" in name else 1) for one in asked), name
    assert set(budget.READ) < set(budget.GOALS[budget.WITHIN])
    assert set(budget.GOALS[budget.WITHIN]) == set(budget.GOALS[budget.BEYOND])
