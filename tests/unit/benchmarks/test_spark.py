"""What the benchmark of Spark sends, and which measurements a run makes."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from benchmarks.shared.figures import Figure
from benchmarks.shared.goals import Goal
from benchmarks.shared.program import Measurement, Program, command
from benchmarks.shared.report import Page
from benchmarks.spark import data
from benchmarks.spark.catalogue import catalogue
from tests.support.streams import Streams


def test_every_measurement_has_a_name_of_its_own() -> None:
    names = [each.name for each in catalogue()]
    assert len(set(names)) == len(names) == 18


def test_a_payload_is_the_rows_that_xadd_gets() -> None:
    server = Streams()
    assert server.do("AB.IMPORT", "imported", data.payload(100))[:2] == [1, 100]
    for row in data.rows()[:100]:
        server.do("XADD", "added", "*", *row)
    fields = [
        [each[1] for each in server.do("XRANGE", key, "-", "+")] for key in ("imported", "added")
    ]
    assert fields[0] == fields[1]
    assert fields[0][0] == list(data.rows()[0])


def test_what_fails_is_told_and_the_rest_is_measured(tmp_path: Path) -> None:
    made = []

    def measure(*, quick: bool) -> list[Figure]:
        made.append(quick)
        return [Figure("a ratio", 2.0, "x")]

    def fail(*, quick: bool) -> list[Figure]:
        raise RuntimeError("there is no server")

    program = command(
        Program(
            Page("page", "A title", "An account."),
            lambda: [
                Measurement("bad", fail),
                Measurement("good", measure),
                Measurement("long", measure, is_extra=True),
            ],
            {"a ratio": Goal(1.5, is_lowest=True)},
        ),
        "Measure.",
    )
    runner = CliRunner()
    result = runner.invoke(program, ["--quick", "--out", str(tmp_path)])
    assert (result.exit_code, made) == (1, [True])
    page = (tmp_path / "page.md").read_text()
    assert "| a ratio | 2 x | ≥ 1.50 | pass |" in page
    assert "| bad | - | | not measured | there is no server |" in page
    assert runner.invoke(program, ["--only", "LONG"]).exit_code == 0
    assert made == [True, False]
    assert runner.invoke(program, ["--only", "nothing"]).exit_code == 2
    assert runner.invoke(program, ["--list"]).output.split() == ["bad", "good", "long"]
