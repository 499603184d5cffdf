"""What is asked of each pin of constraints.txt; the package index is asked by `.ci/run`."""

from __future__ import annotations

import pytest

from tests.house.pins import REPOSITORY, admits, fits, pins, problem

Files = list[dict[str, str | None]]


def of(*files: tuple[str, str | None]) -> Files:
    return [{"filename": name, "requires-python": requires} for name, requires in files]


def test_every_line_of_the_constraints_is_a_pin() -> None:
    text = (REPOSITORY / "constraints.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(pins(text)) == len(lines) > 100


@pytest.mark.parametrize(
    ("requires", "is_admitted"),
    [
        (None, True),
        (">=3.11.5", False),
        (">=3.11", True),
        (">=3.8,<4.0", True),
        (">=2.7, !=3.0.*, !=3.1.*", True),
        ("!=3.11.*", False),
        ("<3.11", False),
        ("~=3.10", True),
        (">3.11.0", False),
    ],
)
def test_requirements_are_read(requires: str | None, is_admitted: bool) -> None:
    assert admits(requires) == is_admitted


@pytest.mark.parametrize(
    ("name", "it_fits"),
    [
        ("a-1.0.tar.gz", True),
        ("a-1.0-py3-none-any.whl", True),
        ("a-1.0-py2.py3-none-any.whl", True),
        ("a-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1.0-cp39-abi3-manylinux_2_34_x86_64.whl", True),
        ("a-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("a-1.0-cp311-cp311-win_amd64.whl", False),
        ("a-1.0-cp311-cp311-musllinux_1_2_x86_64.whl", False),
    ],
)
def test_only_files_for_this_machine_and_python_fit(name: str, it_fits: bool) -> None:
    assert fits(name, "x86_64") == it_fits


def test_a_version_that_needs_a_newer_python_is_named() -> None:
    files = of(("a_b-13.1-py3-none-any.whl", ">=3.11.5"), ("a_b-13.1.tar.gz", ">=3.11.5"))
    assert problem(("A.b", "13.1"), lambda _: files) == (
        "A.b==13.1: nothing for Python 3.11.0 on x86_64 (requires-python >=3.11.5)"
    )


def test_a_version_that_is_not_there_is_named() -> None:
    files = of(("a-13.10-py3-none-any.whl", None))
    assert problem(("a", "13.1"), lambda _: files) == "a==13.1: the package index has no such file"


def test_wheels_of_one_machine_alone_are_not_enough() -> None:
    files = of(("a-1-cp311-cp311-manylinux_2_17_x86_64.whl", None))
    assert "on aarch64" in str(problem(("a", "1"), lambda _: files))
