"""The forms of entry IDs in every place a command takes one (specification §1)."""

from __future__ import annotations

import pytest

from tests.support.streams import INVALID_ID, NOW, Streams

MAX = "18446744073709551615"
SMALLER = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
EXHAUSTED = "ERR The stream has exhausted the last possible ID, unable to add more items"
ZERO = "ERR The ID specified in XADD must be greater than 0-0"

FORMS = ["7", "7-7", "7-*", "*", "-", "+", "(7-1", "(-", "(+", "$", ">"]

READ_GREATER = (
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> "
    "option."
)
MEANINGLESS = (
    "ERR The {0} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {0} ID "
    "would just return an empty result set."
)
OK, BAD, OWN = "ok", "bad", "own"

# One column per form:              7   7-7 7-*  *    -    +    (7-1 (-   (+   $    >
POSITIONS = [
    ("XADD s {} f v", "              ok  ok  ok   ok   bad  bad  bad  bad  bad  bad  bad"),
    ("XADD s MINID {} 9-9 f v", "    ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XTRIM s MINID {}", "           ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XRANGE s {} +", "              ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XREVRANGE s + {}", "           ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XPENDING s g {} + 1", "        ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XAUTOCLAIM s g c 0 {}", "      ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XRANGE s - {}", "              ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XREVRANGE s {} -", "           ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XPENDING s g - {} 1", "        ok  ok  bad  bad  ok   ok   ok   bad  bad  bad  bad"),
    ("XREAD STREAMS s {}", "         ok  ok  bad  bad  bad  ok   bad  bad  bad  ok   own"),
    ("XREADGROUP GROUP g c STREAMS s {}",
                           "         ok  ok  bad  bad  bad  own  bad  bad  bad  own  ok"),
    ("XGROUP CREATE s new {}", "     ok  ok  bad  bad  bad  bad  bad  bad  bad  ok   bad"),
    ("XGROUP SETID s g {}", "        ok  ok  bad  bad  ok   ok   bad  bad  bad  ok   bad"),
    ("XSETID s {}", "                ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XSETID s 9 MAXDELETEDID {}", " ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XCLAIM s g c 0 7 LASTID {}", " ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XCLAIM s g c 0 {}", "          ok  ok  own  own  own  own  own  own  own  own  own"),
    ("XACK s g {}", "                ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XDEL s {}", "                  ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XDELEX s IDS 1 {}", "          ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XACKDEL s g IDS 1 {}", "       ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XNACK s g FAIL IDS 1 {}", "    ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
    ("XIDMPRECORD s p i {}", "       ok  ok  bad  bad  bad  bad  bad  bad  bad  bad  bad"),
]  # fmt: skip


def _own_error(template: str, form: str) -> str:
    if template.startswith("XCLAIM"):
        return f"ERR Unrecognized XCLAIM option '{form}'"
    return READ_GREATER if template.startswith("XREAD ") else MEANINGLESS.format(form)


@pytest.mark.parametrize(
    ("template", "form", "outcome"),
    [
        pytest.param(template, form, outcome, id=template.format(form))
        for template, outcomes in POSITIONS
        for form, outcome in zip(FORMS, outcomes.split(), strict=True)
    ],
)
def test_each_position_takes_exactly_its_forms(template: str, form: str, outcome: str) -> None:
    """§1.2."""
    s = Streams()
    if not template.startswith(("XADD", "XSETID")):
        s.fill("s", "7-0", "7-7")
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    line = template.format(f"'{form}'")
    if outcome == OK:
        s.run(line)
    else:
        assert s.fails(line) == (INVALID_ID if outcome == BAD else _own_error(template, form))


def _pending(*ids: str) -> Streams:
    """A stream whose entries are all pending for consumer c of group g."""
    s = Streams()
    s.fill("s", *ids)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >")
    return s


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("XRANGE s 7 +", ["7-0", f"7-{MAX}", "8-0"]),
        ("XRANGE s - 7", ["6-9", "7-0", f"7-{MAX}"]),
        ("XREVRANGE s + 7", ["8-0", f"7-{MAX}", "7-0"]),
        ("XREVRANGE s 7 -", [f"7-{MAX}", "7-0", "6-9"]),
        ("XPENDING s g 7 + 9", ["7-0", f"7-{MAX}", "8-0"]),
        ("XPENDING s g - 7 9", ["6-9", "7-0", f"7-{MAX}"]),
    ],
)
def test_an_incomplete_id_means_the_whole_millisecond_in_an_interval(
    line: str, found: list[str]
) -> None:
    """§1.2: ms-0 at the low end, ms-max at the high end."""
    s = _pending("6-9", "7-0", f"7-{MAX}", "8-0")
    assert [row[0] for row in s.run(line)] == found


def test_an_incomplete_id_means_sequence_zero_everywhere_else() -> None:
    """§1.2."""
    s = _pending("6-9", "7-0", "7-1")
    assert s.run("XREAD STREAMS s 7")[0][1][0][0] == "7-1"
    assert s.run("XREADGROUP GROUP g c STREAMS s 7")[0][1][0][0] == "7-1"
    assert s.run("XAUTOCLAIM s g c 0 7 JUSTID")[1] == ["7-0", "7-1"]
    assert s.run("XCLAIM s g c 0 7 JUSTID") == ["7-0"]
    assert s.run("XACK s g 7") == 1
    assert s.run("XPENDING s g - + 9")[1][0] == "7-1"
    s.run("XGROUP SETID s g 7")
    assert s.group()["last-delivered-id"] == "7-0"
    s.run("XGROUP CREATE s h 7")
    assert s.group(name="h")["last-delivered-id"] == "7-0"
    s.run("XCLAIM s g c 0 7 LASTID 8")
    assert s.group()["last-delivered-id"] == "8-0"
    assert s.run("XDEL s 7") == 1
    s.run("XTRIM s MINID 7")
    assert s.ids("s") == ["7-1"]
    s.run("XSETID s 9 MAXDELETEDID 8")
    assert s.info()["last-generated-id"] == "9-0"
    assert s.info()["max-deleted-entry-id"] == "8-0"
    assert s.run("XADD s 10 f v") == "10-0"


def test_a_dash_alone_in_setid_is_the_smallest_and_a_plus_the_greatest_id() -> None:
    """§1.2 [Q]: XGROUP SETID takes them, CREATE does not."""
    s = Streams()
    s.run("XGROUP CREATE s g 5 MKSTREAM", "XGROUP SETID s g -")
    assert s.group()["last-delivered-id"] == "0-0"
    s.run("XGROUP SETID s g +")
    assert s.group()["last-delivered-id"] == f"{MAX}-{MAX}"


def test_plus_in_xread_is_the_last_entry() -> None:
    """§1.2, §4.2."""
    s = Streams()
    s.count_to("s", 3)
    assert s.run("XREAD STREAMS s +") == [["s", [["3-0", ["f", "v"]]]]]


@pytest.mark.parametrize(
    "raw",
    [
        "''", "-7", "7-", "7-x", "x-7", "7-1-2", "'**'", "'*-1'", "7--5", "-", "7.0", "0x7-1",
        f"{int(MAX) + 1}-0", f"0-{int(MAX) + 1}", "7-1-*", "7--05",
        "0" * 125 + "7-1",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "line", ["XDEL s {}", "XACK s g {}", "XADD s {} f v", "XREAD STREAMS s {}"]
)
def test_what_is_no_id_is_refused(line: str, raw: str) -> None:
    """§1.3."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    assert s.fails(line.format(raw)) == INVALID_ID


@pytest.mark.parametrize(
    "raw", ["7-1", "07-01", "0" * 124 + "7-1", " 7-1", "+7-1", "7-+1", "\t7- 1"]
)
def test_zeros_blanks_and_a_plus_in_front_do_not_matter(raw: str) -> None:
    """§1.3 (recorded)."""
    s = Streams()
    s.fill("s", "7-1")
    assert s.do("XDEL", "s", raw) == 1


@pytest.mark.parametrize("raw", [b"7-1\x00", b"7-1\x002", b"7-1\x00-x"])
def test_an_id_ends_at_a_nul_byte(raw: bytes) -> None:
    """§1.3 [Q] (recorded)."""
    s = Streams()
    s.fill("s", "7-0", "7-1")
    assert s.do("XDEL", "s", raw) == 1
    assert s.ids("s") == ["7-0"]
    assert s.do("XDEL", "s", b"7\x00-1") == 1
    assert s.error("XDEL", "s", b"\x007-1") == INVALID_ID


def test_ids_are_always_shown_in_full() -> None:
    """§1.1."""
    s = Streams()
    assert s.run("XADD s 05 f v") == "5-0"
    assert s.run(f"XADD s {MAX}-00{MAX} f v") == f"{MAX}-{MAX}"
    assert s.info()["last-generated-id"] == f"{MAX}-{MAX}"


@pytest.mark.parametrize("word", ["$", ">", "*"])
def test_signs_are_compared_exactly(word: str) -> None:
    """§1.2."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    for line in ("XREAD STREAMS s", "XREADGROUP GROUP g c STREAMS s"):
        assert s.fails(f"{line} '{word} '") == INVALID_ID
    assert s.fails(f"XADD s '{word} ' f v") == INVALID_ID


def test_keywords_may_be_written_in_any_case() -> None:
    """§1.2."""
    s = Streams()
    s.run("xadd s noMKstream maxlen = 5 keepref 1-0 f v", "XaDd s MaxLen ~ 5 LiMiT 0 1-0 f v")
    s.run("xgroup create s g 0 mkstream entriesread 0", "XGROUP setid s g 0 EntriesRead 0")
    s.run("xreadgroup group g c count 1 noack streams s >", "xread count 1 streams s 0")
    s.run("xtrim s minid = 0 delref", "xdelex s acked ids 1 1-0", "xackdel s g delref ids 1 1-0")
    s.run("xnack s g fail ids 1 1-0 retrycount 1 force", "xpending s g idle 0 - + 1")
    s.run("xclaim s g c 0 1-0 idle 1 time 1 retrycount 1 force justid lastid 0")
    s.run("xautoclaim s g c 0 - count 1 justid", "xinfo STREAM s full count 1")
    s.run("xsetid s 9 entriesadded 9 maxdeletedid 1", "xcfgset s idmp-duration 5 idmp-maxsize 5")


# -- exclusive bounds -------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["XRANGE s {} +", "XREVRANGE s + {}", "XPENDING s g {} + 9"])
def test_nothing_lies_above_the_greatest_id(line: str) -> None:
    """§1.4."""
    s = _pending("7-0")
    error = "ERR invalid start ID for the interval"
    assert s.fails(line.format(f"({MAX}-{MAX}")) == error
    assert s.fails("XAUTOCLAIM s g c 0 " + f"({MAX}-{MAX}") == error


@pytest.mark.parametrize("line", ["XRANGE s - {}", "XREVRANGE s {} -", "XPENDING s g - {} 9"])
def test_nothing_lies_below_the_smallest_id(line: str) -> None:
    """§1.4."""
    s = _pending("7-0")
    assert s.fails(line.format("(0-0")) == "ERR invalid end ID for the interval"
    assert s.run(line.format("(0")) == []
    assert s.fails(line.format("(")) == INVALID_ID


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        ("(5-0", "+", ["5-1", f"5-{MAX}", "6-0"]),
        ("(5", "+", ["5-1", f"5-{MAX}", "6-0"]),
        (f"(5-{MAX}", "+", ["6-0"]),
        ("-", "(5", [f"4-{MAX}", "5-0", "5-1"]),
        ("-", "(5-1", [f"4-{MAX}", "5-0"]),
        ("-", "(5-0", [f"4-{MAX}"]),
        ("-", "(6-0", [f"4-{MAX}", "5-0", "5-1", f"5-{MAX}"]),
        (f"(4-{MAX}", "(5-1", ["5-0"]),
        ("(5-0", "(5-1", []),
    ],
)
def test_an_exclusive_bound_is_the_neighbouring_id(start: str, end: str, found: list[str]) -> None:
    """§1.4: computed on the pair, with carry and borrow."""
    s = _pending(f"4-{MAX}", "5-0", "5-1", f"5-{MAX}", "6-0")
    assert [row[0] for row in s.run(f"XRANGE s {start} {end}")] == found
    assert [row[0] for row in s.run(f"XREVRANGE s {end} {start}")] == found[::-1]
    assert [row[0] for row in s.run(f"XPENDING s g {start} {end} 9")] == found


# -- IDs that XADD makes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "form", "made"),
    [
        ("1-0", "*", f"{NOW}-0"),
        (f"{NOW}-0", "*", f"{NOW}-1"),
        (f"{NOW}-7", "*", f"{NOW}-8"),
        (f"{NOW + 5}-3", "*", f"{NOW + 5}-4"),
        (f"{NOW}-{MAX}", "*", f"{NOW + 1}-0"),
        (f"{NOW + 5}-{MAX}", "*", f"{NOW + 6}-0"),
        ("5-3", "5-*", "5-4"),
        ("5-3", "6-*", "6-0"),
        ("5-3", "05-*", "5-4"),
        ("5-3", "5-4", "5-4"),
        ("5-3", "6", "6-0"),
        ("5-3", f"{MAX}-{MAX}", f"{MAX}-{MAX}"),
    ],
)
def test_xadd_makes_an_id_above_the_last(last: str, form: str, made: str) -> None:
    """§1.5."""
    s = Streams()
    s.fill("s", last)
    assert s.run(f"XADD s {form} f v") == made


@pytest.mark.parametrize(
    ("last", "form", "error"),
    [
        ("5-3", "5-3", SMALLER),
        ("5-3", "5-2", SMALLER),
        ("5-3", "5", SMALLER),
        ("5-3", "4-*", SMALLER),
        (f"5-{MAX}", "5-*", SMALLER),
        ("5-3", "0-0", ZERO),
        ("5-3", "0", ZERO),
        (f"{MAX}-{MAX}", "*", EXHAUSTED),
        (f"{MAX}-{MAX}", f"{MAX}-*", EXHAUSTED),
        (f"{MAX}-{MAX}", "1-1", EXHAUSTED),
        (f"{MAX}-{MAX}", "0-0", ZERO),
    ],
)
def test_xadd_refuses_an_id_not_above_the_last(last: str, form: str, error: str) -> None:
    """§1.5, in this order: 0-0, exhausted, not above."""
    s = Streams()
    s.fill("s", last)
    assert s.fails(f"XADD s {form} f v") == error
    assert s.info()["entries-added"] == 1


def test_automatic_ids_at_the_end_of_a_millisecond_go_on_in_the_next() -> None:
    s = Streams()
    s.fill("s", f"{NOW}-{int(MAX) - 2}")
    found = [s.run("XADD s * f v") for _ in range(4)]
    assert found == [f"{NOW}-{int(MAX) - 1}", f"{NOW}-{MAX}", f"{NOW + 1}-0", f"{NOW + 1}-1"]


def test_automatic_ids_follow_whatever_else_gave_the_stream_its_last_id() -> None:
    s = Streams()
    for key in ("s", "t", "s", "t", "t"):  # each stream counts for itself
        s.run(f"XADD {key} * f v")
    assert s.run("XADD s * f v") == f"{NOW}-2"
    s.run(f"XADD s {NOW}-70 f v")
    assert [s.run("XADD s * f v") for _ in range(2)] == [f"{NOW}-71", f"{NOW}-72"]
    s.run(f"XSETID s {NOW}-90")
    assert [s.run("XADD s * f v") for _ in range(2)] == [f"{NOW}-91", f"{NOW}-92"]
    s.run("COPY s u")
    assert [s.run(f"XADD {key} * f v") for key in ("u", "s", "u")] == [
        f"{NOW}-93", f"{NOW}-93", f"{NOW}-94",
    ]  # fmt: skip
    assert s.run("XADD t * f v") == f"{NOW}-3"


def test_the_first_automatic_sequence_of_millisecond_zero_is_one() -> None:
    """§1.5."""
    assert Streams().run("XADD s 0-* f v") == "0-1"
    assert Streams().run("XADD s 0-1 f v") == "0-1"


def test_the_zero_id_is_refused_before_the_key_is_looked_at() -> None:
    """§1.5."""
    s = Streams()
    assert s.fails("XADD s 0-0 f v") == ZERO
    assert s.run("EXISTS s") == 0
    s.run("SET k v")
    assert s.fails("XADD k 0 f v") == ZERO


def test_the_last_id_survives_deletion_and_trimming() -> None:
    """§1.5: not the last live entry counts."""
    s = Streams()
    s.count_to("s", 9)
    s.run("XDEL s 9-0", "XTRIM s MAXLEN 0")
    assert s.fails("XADD s 9-0 f v") == SMALLER
    assert s.run("XADD s 9-* f v") == "9-1"


def test_automatic_ids_never_go_backwards_when_the_clock_does() -> None:
    """§1.5."""
    s = Streams()
    assert s.run("XADD s * f v") == f"{NOW}-0"
    s.clock.us -= 5_000_000
    assert s.run("XADD s * f v") == f"{NOW}-1"
    s.clock.us += 6_000_000
    assert s.run("XADD s * f v") == f"{NOW + 1000}-0"


def test_the_clock_stands_still_within_a_transaction() -> None:
    """§1.5."""
    s = Streams()
    s.run("MULTI", "XADD s * f v", "XADD s * f v", "XADD t * f v")
    assert s.run("EXEC") == [f"{NOW}-0", f"{NOW}-1", f"{NOW}-0"]


def test_an_entry_may_not_be_larger_than_a_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """§1.5, with a smaller limit than 2^30; the key is not created."""
    from anabranch.commands.stream import add as stream_add

    monkeypatch.setattr(stream_add, "ENTRY_BYTES_MAX", 5000)
    s = Streams()
    assert s.error("XADD", "s", "*", "f", "v" * 5000) == "ERR Elements are too large to be stored"
    assert s.run("EXISTS s") == 0
    s.do("XADD", "s", "*", "f", "v" * 4999)
    assert s.error("XADD", "s", "1-1", "f", "v" * 5000) == SMALLER


def test_the_limit_of_an_entry_is_a_gibibyte() -> None:
    """§1.5."""
    from anabranch.commands.stream import add as stream_add

    assert stream_add.ENTRY_BYTES_MAX == 2**30
