"""The words in which a query says where it starts, and that they are seen."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.offsets import BY_ID, LogCursor, Vector, previous_id
from anabranch.spark.runtime.logs import log_start


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """With all that is said."""
    caplog.set_level(logging.INFO, "anabranch.spark.runtime.logs")
    return caplog


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse({"subscribe": "s", **given})


def test_a_resumed_query_says_where_and_that_its_start_is_not_used(
    log: pytest.LogCaptureFixture,
) -> None:
    begin = Vector(
        {
            "s": {"1": LogCursor(100, 142, "1718-3"), "2": LogCursor(7, 7)},
            "t": {"": LogCursor(BY_ID, 9, "5-1")},
            "u": {"": LogCursor(BY_ID, 0)},
            "w": {"": LogCursor(BY_ID, 0, previous_id("7-0"))},
            "v": {"1": LogCursor(0, 9)},  # of an entry that is gone no ID is known
        }
    )
    log_start(options(startingOffsets="earliest"), begin, resumed=True)
    log_start(
        options(startingTimestamp="5"),
        begin,
        resumed=True,
        selects=lambda stream, region: (stream, region) == ("s", "1"),
    )
    assert log.messages == [
        "resuming from checkpoint at s/1 behind 1718-3 (position 142), s/2 from its first entry, "
        "t behind 5-1, u from its first entry, v/1 (position 9), w from 7-0; "
        "startingOffsets ignored",
        "resuming from checkpoint at s/1 behind 1718-3 (position 142); startingTimestamp ignored",
    ]


def test_a_new_query_says_where_it_starts_and_why(log: pytest.LogCaptureFixture) -> None:
    begin = Vector({"s": {"1": LogCursor(0, 2, "4-0")}})
    for given in (
        {},
        {"startingOffsets": "group:g"},
        {"startingOffsets": ' {"s": "5"}'},
        {"startingTimestamp": "5"},
    ):
        log_start(options(**given), begin, resumed=False)
    log_start(options(), Vector({}), resumed=False)
    at = "no checkpoint yet: starting at"
    assert log.messages == [
        f"{at} s/1 behind 4-0 (position 2) (startingOffsets=latest)",
        f"{at} s/1 behind 4-0 (position 2) (startingOffsets=group:g)",
        f"{at} s/1 behind 4-0 (position 2) (startingOffsets as given)",
        f"{at} s/1 behind 4-0 (position 2) (startingTimestamp=5)",
        f"{at} the first entries of streams that are not there yet (startingOffsets=latest)",
    ]


def test_many_streams_are_one_line(log: pytest.LogCaptureFixture) -> None:
    begin = Vector({f"s{each:02}": {"": LogCursor(0, 0)} for each in range(20)})
    log_start(options(), begin, resumed=True)
    (line,) = log.messages
    assert "s07 from its first entry and 12 more places; startingOffsets ignored" in line


def test_a_process_where_nobody_set_logging_up_shows_it() -> None:
    program = (
        "from anabranch.spark.reading.offsets import Vector\n"
        "from anabranch.spark.options import ReadOptions\n"
        "from anabranch.spark.runtime.logs import log_start\n"
        "for _ in range(2):\n"
        "    log_start(ReadOptions.parse({'subscribe': 's'}), Vector({}), resumed=True)\n"
    )
    quiet = "import logging; logging.basicConfig(level='WARNING')\n"
    lines = []
    for text in (program, quiet + program):
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        )
        lines.append(done.stderr.splitlines())
    assert [len(each) for each in lines] == [2, 0]
    assert lines[0][0].startswith("anabranch: resuming from checkpoint at ")
