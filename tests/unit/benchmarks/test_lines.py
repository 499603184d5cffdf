"""The JSON of results: the same values as ever, a line for each measurement."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shared.lines import to_lines
from tests.support.servers import REPOSITORY

RESULTS = sorted((REPOSITORY / "benchmarks" / "results").rglob("*.json"))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), values))
def test_lines_are_read_as_the_values_that_were_written(value):
    assert json.loads(to_lines(value)) == value


def test_a_measurement_has_one_line():
    rows = [{"name": "XADD", "cpu_us": {"median": 2.5, "runs": [2, 3]}}, {"name": "PING"}]
    assert to_lines({"format": 1, "rows": rows, "parts": [{"rows": rows[1:], "problem": ""}]}) == (
        "{\n"
        ' "format": 1,\n'
        ' "rows": [\n'
        '  {"name": "XADD", "cpu_us": {"median": 2.5, "runs": [2, 3]}},\n'
        '  {"name": "PING"}\n'
        " ],\n"
        ' "parts": [\n'
        '  {"rows": [\n'
        '   {"name": "PING"}\n'
        '  ], "problem": ""}\n'
        " ]\n"
        "}\n"
    )


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_results_are_written_as_programs_write_them(path):
    text = path.read_text("utf-8")
    assert to_lines(json.loads(text)) == text
