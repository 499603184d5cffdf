"""XCFGSET, XIDMP and XIDMPRECORD (idempotency page §4, §6)."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness
from tests.support.streams import (
    BOTH_PROTOCOLS,
    INVALID_ID,
    NO_SUCH_KEY,
    NOT_INTEGER,
    NOW,
    SYNTAX,
    WRONGTYPE,
    Streams,
)

DURATION_RANGE = "ERR IDMP-DURATION must be between 1 and 86400 seconds"
MAXSIZE_RANGE = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"
AT_LEAST_ONE = "ERR At least one parameter must be specified"


def _stream() -> Streams:
    """Producer p has used i, and tried twice."""
    s = Streams()
    s.run("XADD s IDMP p i * f v", "XADD s IDMP p i * f v")
    return s


def _settings(s: Streams) -> tuple[int, int]:
    return s.info()["idmp-duration"], s.info()["idmp-maxsize"]


# -- XCFGSET ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("", AT_LEAST_ONE),
        ("IDMP-DURATION", SYNTAX),
        ("IDMP-MAXSIZE", SYNTAX),
        ("WHAT 5", SYNTAX),
        ("DURATION 5", SYNTAX),  # recorded
        ("MAXSIZE 5", SYNTAX),
        ("IDMP-DURATION 5 WHAT", SYNTAX),
        ("IDMP-DURATION 5 IDMP-MAXSIZE", SYNTAX),
        ("IDMP-DURATION 5 IDMP-DURATION 5", "ERR IDMP-DURATION specified multiple times"),
        ("IDMP-MAXSIZE 5 IDMP-MAXSIZE 5", "ERR IDMP-MAXSIZE specified multiple times"),
        ("IDMP-DURATION x", NOT_INTEGER),
        ("IDMP-DURATION 000", NOT_INTEGER),
        ("IDMP-DURATION 3.14", NOT_INTEGER),
        ("IDMP-DURATION 120-5", NOT_INTEGER),
        ("IDMP-MAXSIZE x", NOT_INTEGER),
        ("IDMP-DURATION 0", DURATION_RANGE),
        ("IDMP-DURATION -1", DURATION_RANGE),
        ("IDMP-DURATION 86401", DURATION_RANGE),
        ("IDMP-MAXSIZE 0", MAXSIZE_RANGE),
        ("IDMP-MAXSIZE 10001", MAXSIZE_RANGE),
        ("IDMP-MAXSIZE -9223372036854775808", MAXSIZE_RANGE),
        # left to right
        ("IDMP-DURATION 0 IDMP-MAXSIZE x", DURATION_RANGE),
        ("IDMP-MAXSIZE x IDMP-DURATION 0", NOT_INTEGER),
        ("IDMP-DURATION 5 IDMP-MAXSIZE 0", MAXSIZE_RANGE),
        ("IDMP-DURATION 5 WHAT 5 IDMP-MAXSIZE x", SYNTAX),
    ],
)
def test_a_wrong_xcfgset_is_refused_and_changes_nothing(rest: str, error: str) -> None:
    """§4: the key first, then left to right."""
    s = _stream()
    s.run("SET k v")
    assert s.fails(f"XCFGSET s {rest}") == error
    assert _settings(s) == (100, 100)
    assert s.info()["iids-tracked"] == 1
    assert s.fails(f"XCFGSET none {rest}") == NO_SUCH_KEY
    assert s.fails(f"XCFGSET k {rest}") == WRONGTYPE


@pytest.mark.parametrize(
    ("rest", "after"),
    [
        ("IDMP-DURATION 1", (1, 100)),
        ("IDMP-DURATION 86400", (86400, 100)),
        ("IDMP-MAXSIZE 1", (100, 1)),
        ("IDMP-MAXSIZE 10000", (100, 10000)),
        ("IDMP-MAXSIZE 7 IDMP-DURATION 8", (8, 7)),
        ("idmp-duration 8 Idmp-MaxSize 7", (8, 7)),
    ],
)
def test_a_change_is_stored_and_forgets_every_id(rest: str, after: tuple[int, int]) -> None:
    """§4: the lifetime counters go on."""
    s = _stream()
    s.run(f"XCFGSET s {rest}")
    assert _settings(s) == after
    info = s.info()
    assert (info["pids-tracked"], info["iids-tracked"]) == (0, 0)
    assert (info["iids-added"], info["iids-duplicates"]) == (1, 1)
    s.run("XADD s IDMP p i * f v")
    assert s.info()["length"] == 2


@pytest.mark.parametrize("rest", ["IDMP-DURATION 100", "IDMP-MAXSIZE 100 IDMP-DURATION 100"])
def test_equal_values_change_nothing(rest: str) -> None:
    """§4: every publisher may send its settings at start-up."""
    s = _stream()
    s.run(f"XCFGSET s {rest}", "XADD s IDMP p i * f v")
    assert s.info()["length"] == 1


def test_ids_are_forgotten_after_the_clock_was_set_back() -> None:
    """A round is due a second after the last one, whatever the clock said then."""
    harness = Harness()
    harness.advance(3_600_000)
    harness.advance(-3_600_000)
    harness.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    for _ in range(102):
        harness.advance(1000)
    reply = harness.do("XINFO", "STREAM", "s")
    info = dict(zip(reply[::2], reply[1::2], strict=True))
    assert info[b"iids-tracked"] == 0


def test_other_streams_keep_their_settings() -> None:
    """§4: it changes one stream."""
    s = _stream()
    s.run("XADD t IDMP p i * f v", "XCFGSET t IDMP-DURATION 5")
    assert _settings(s) == (100, 100)
    assert s.info()["iids-tracked"] == 1


def test_a_new_duration_holds_from_then_on() -> None:
    """§4, §5."""
    s = _stream()
    s.run("XCFGSET s IDMP-DURATION 1")
    first = s.run("XADD s IDMP p i * f v")
    assert s.run("XADD s IDMP p i * f v") == first
    s.advance(1000)
    assert s.run("XADD s IDMP p i * f v") != first


# -- XIDMP, the first spelling ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XIDMP CFGSET none", NO_SUCH_KEY),
        ("XIDMP CFGSET k", WRONGTYPE),
        ("XIDMP CFGSET s", AT_LEAST_ONE),
        ("XIDMP CFGSET s DURATION", SYNTAX),
        ("XIDMP CFGSET s WHAT 5", SYNTAX),
        ("XIDMP CFGSET s IDMP-DURATION 5", SYNTAX),
        ("XIDMP CFGSET s DURATION 5 DURATION 5", "ERR DURATION specified multiple times"),
        ("XIDMP CFGSET s MAXSIZE 5 MAXSIZE 5", "ERR MAXSIZE specified multiple times"),
        ("XIDMP CFGSET s DURATION x", NOT_INTEGER),
        ("XIDMP CFGSET s DURATION 86401", "ERR DURATION must be between 1 and 86400 seconds"),
        ("XIDMP CFGSET s MAXSIZE 10001", "ERR MAXSIZE must be between 1 and 10000 entries"),
        ("XIDMP CFGGET none", NO_SUCH_KEY),
        ("XIDMP CFGGET k", WRONGTYPE),
        ("XIDMP CFGGET s what", "ERR Unknown parameter 'what'"),
        ("XIDMP CFGGET s DURATION IDMP-MAXSIZE", "ERR Unknown parameter 'IDMP-MAXSIZE'"),
    ],
)
def test_the_refusals_of_xidmp_use_its_own_names(line: str, error: str) -> None:
    """§4."""
    s = _stream()
    s.run("SET k v")
    assert s.fails(line) == error


def test_xidmp_cfgset_is_xcfgset() -> None:
    """§4: with the final clearing rule."""
    s = _stream()
    assert s.shows("XIDMP CFGSET s DURATION 100 MAXSIZE 100") == "+OK"
    assert s.info()["iids-tracked"] == 1
    assert s.shows("xidmp cfgset s maxsize 7 duration 8") == "+OK"
    assert _settings(s) == (8, 7)
    assert s.info()["iids-tracked"] == 0


@BOTH_PROTOCOLS
@pytest.mark.parametrize(
    ("selectors", "resp2_shape", "resp3_shape"),
    [
        ("", "['duration', 8, 'maxsize', 7]", "{'duration': 8, 'maxsize': 7}"),
        ("MAXSIZE DURATION", "['duration', 8, 'maxsize', 7]", "{'duration': 8, 'maxsize': 7}"),
        ("duration", "['duration', 8]", "{'duration': 8}"),
        ("MaxSize", "['maxsize', 7]", "{'maxsize': 7}"),
    ],
)
def test_xidmp_cfgget_shows_the_settings(
    selectors: str, resp2_shape: str, resp3_shape: str, resp3: bool
) -> None:
    """§4."""
    s = _stream()
    s.run("XCFGSET s IDMP-DURATION 8 IDMP-MAXSIZE 7")
    shape = resp3_shape if resp3 else resp2_shape
    assert s.shows(f"XIDMP CFGGET s {selectors}", s.connect(resp3=resp3)) == shape


# -- XIDMPRECORD ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XIDMPRECORD none '' '' bad", INVALID_ID),
        ("XIDMPRECORD k p j -", INVALID_ID),
        ("XIDMPRECORD k p j +", INVALID_ID),
        ("XIDMPRECORD k p j *", INVALID_ID),
        ("XIDMPRECORD none '' '' 1-0", "ERR producer ID must be non-empty"),
        ("XIDMPRECORD none p '' 1-0", "ERR idempotent ID must be non-empty"),
        ("XIDMPRECORD none p j 1-0", NO_SUCH_KEY),
        ("XIDMPRECORD k p j 1-0", WRONGTYPE),
        ("XIDMPRECORD s p i 9-9", "ERR No such message in stream"),
        ("XIDMPRECORD s p j 1-0", "ERR No such message in stream"),
        (f"XIDMPRECORD s p i {NOW}-1",
         "ERR IID already exists for this producer with a different stream ID"),
    ],
)  # fmt: skip
def test_a_wrong_xidmprecord_is_refused(line: str, error: str) -> None:
    """§6, in this order."""
    s = _stream()
    s.run("XADD s * f v", "SET k v")
    assert s.fails(line) == error
    assert s.info()["iids-added"] == 1


def test_an_id_is_attached_to_an_existing_entry() -> None:
    """§6: counts as added, the newest of its producer."""
    s = _stream()
    s.run("XADD s * f v", f"XIDMPRECORD s p j {NOW}-1")
    assert s.run("XADD s IDMP p j * f v") == f"{NOW}-1"
    info = s.info()
    assert (info["iids-tracked"], info["iids-added"], info["iids-duplicates"]) == (2, 2, 2)


def test_an_id_may_be_attached_to_a_bare_millisecond() -> None:
    """§6."""
    s = _stream()
    s.run(f"XIDMPRECORD s q j {NOW}")
    assert s.run("XADD s IDMP q j * f v") == f"{NOW}-0"


def test_attaching_the_same_twice_changes_nothing() -> None:
    """§6."""
    s = _stream()
    assert s.changes_of(f"XIDMPRECORD s p i {NOW}-0") == 0
    assert s.info()["iids-added"] == 1


def test_an_attached_id_obeys_the_capacity() -> None:
    """§6."""
    s = _stream()
    s.run("XCFGSET s IDMP-MAXSIZE 1", "XADD s IDMP p a * f v", f"XIDMPRECORD s p b {NOW}-0")
    assert s.info()["iids-tracked"] == 1
    assert s.run("XADD s IDMP p b * f v") == f"{NOW}-0"


def test_an_id_attached_to_a_deleted_entry_is_refused() -> None:
    """§6: the entry must be live."""
    s = _stream()
    s.run("XADD s * f v", f"XDEL s {NOW}-1")
    assert s.fails(f"XIDMPRECORD s p j {NOW}-1") == "ERR No such message in stream"


def test_an_attached_id_is_as_old_as_its_entry() -> None:
    """§6 [R]: not older than now; IDs of the future count from now."""
    s = _stream()
    s.run("XADD s 9999999999999-0 f v")
    s.advance(60_000)
    s.run(f"XIDMPRECORD s q old {NOW}-0", "XIDMPRECORD s q future 9999999999999-0")
    s.advance(41_000)
    assert s.info()["iids-tracked"] == 1
    assert s.run("XADD s IDMP q future * f v") == "9999999999999-0"
    s.advance(60_000)
    assert s.info()["iids-tracked"] == 0
