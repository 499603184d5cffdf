"""Some random crashes, and mistakes that they have to find; more: ``python -m tests.crashes``."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crashes.__main__ import MISTAKES, crashes_until_found, run_crashes
from tests.crashes.tracker import Tracker, Violation

QUICK = ("reads are not refused", "replies made before the trouble go out")

FOUND_WITHIN = 1000
"""Crashes. About one run of ten crashes in eight finds the rarer of the two."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_nobody_was_told_what_a_crash_takes_back() -> None:
    reached = run_crashes(100)
    for what in ("read refused", "read answered in trouble", "crash in trouble", "power failure"):
        assert reached[what], f"this was to be tested: {what}"


def test_what_was_made_when_a_sync_failed_is_not_told() -> None:
    """With appendfsync everysec a reply needs no sync, but a reader must not be told of a loss."""
    assert run_crashes(100, seed=261216)["crash after a failed sync"] >= 5


@pytest.mark.parametrize("name", QUICK)
def test_a_mistake_is_found(name: str) -> None:
    assert crashes_until_found(MISTAKES[name], FOUND_WITHIN)


@pytest.mark.long
def test_1000_crashes_and_all_mistakes() -> None:
    run_crashes(1000, seed=1000)
    for name, build_in in MISTAKES.items():
        assert crashes_until_found(build_in, 5000), name


def test_the_model_notices_what_is_missing_and_what_is_back() -> None:
    tracker = Tracker(0)
    for words in (("SET", "t0", "a"), ("SET", "t0", "b"), ("DEL", "t0")):
        tracker.sent(words)
    tracker.was_answered(("SET", "t0", "a"), b"OK")
    tracker.check({"t0": "a"})
    tracker.was_told(("GET", "t0"), b"b", 1)
    tracker.check({"t0": "b"})
    with pytest.raises(Violation, match="somebody was told of more"):
        tracker.check({"t0": "a"})
    tracker.was_told(("GET", "t0"), None, 1)
    tracker.check({})
    with pytest.raises(Violation, match="somebody was told of more"):
        tracker.check({"t0": "b"})
    with pytest.raises(Violation, match="with none of"):
        tracker.check({"t0": "c"})
    with pytest.raises(Violation, match="which never was so"):
        tracker.was_told(("GET", "t0"), b"c", 1)
