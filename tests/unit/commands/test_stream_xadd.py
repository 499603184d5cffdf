"""XADD: options, refusals, order of checks (specification §3.1)."""

from __future__ import annotations

import itertools

import pytest

from tests.support.streams import INVALID_ID, NOT_INTEGER, NOW, WRONGTYPE, Streams

ARITY = "ERR wrong number of arguments for 'xadd' command"
TWO_STRATEGIES = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
LIMIT_ALONE = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
LIMIT_EXACT = "ERR syntax error, LIMIT cannot be used without the special ~ option"
IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times"
IDMP_NOT_AUTO = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        # the fields
        ("XADD s * f", ARITY),
        ("XADD s * f v g", ARITY),
        ("XADD s 1-1 f v g", ARITY),
        ("XADD s NOMKSTREAM * f", ARITY),
        ("XADD s MAXLEN 5 * f", ARITY),
        ("XADD s MAXLEN 5 1-1", ARITY),
        ("XADD s NOMKSTREAM KEEPREF NOMKSTREAM", ARITY),
        ("XADD s IDMP p i *", ARITY),
        ("XADD s NOMKSTREAM IDMP p i", ARITY),
        ("XADD s KEEPREF IDMPAUTO p", ARITY),
        ("XADD s 0-0 f", ARITY),
        # MAXLEN, MINID, LIMIT
        ("XADD s MAXLEN -1 * f v", "ERR The MAXLEN argument must be >= 0."),
        ("XADD s MAXLEN = -1 * f v", "ERR The MAXLEN argument must be >= 0."),
        ("XADD s MAXLEN ~ -1 * f v", "ERR The MAXLEN argument must be >= 0."),
        ("XADD s MAXLEN x * f v", NOT_INTEGER),
        ("XADD s MAXLEN = x * f v", NOT_INTEGER),
        ("XADD s MAXLEN * f v", NOT_INTEGER),
        ("XADD s MINID x * f v", INVALID_ID),
        ("XADD s MAXLEN 5 MAXLEN 5 * f v", TWO_STRATEGIES),
        ("XADD s MINID 5 MINID 5 * f v", TWO_STRATEGIES),
        ("XADD s MAXLEN 5 MINID 5 * f v", TWO_STRATEGIES),
        ("XADD s MINID 5 MAXLEN = 5 * f v", TWO_STRATEGIES),
        ("XADD s LIMIT -1 * f v", "ERR The LIMIT argument must be >= 0."),
        ("XADD s MAXLEN ~ 5 LIMIT -1 * f v", "ERR The LIMIT argument must be >= 0."),
        ("XADD s MAXLEN ~ 5 LIMIT x * f v", NOT_INTEGER),
        ("XADD s LIMIT 5 * f v", LIMIT_ALONE),
        ("XADD s LIMIT 0 * f v", LIMIT_EXACT),
        ("XADD s MAXLEN 5 LIMIT 5 * f v", LIMIT_EXACT),
        ("XADD s MAXLEN = 5 LIMIT 0 * f v", LIMIT_EXACT),
        ("XADD s LIMIT 5 MINID 5 * f v", LIMIT_EXACT),
        # a word that is no option here is the ID
        ("XADD s KEEPREF DELREF * f v", INVALID_ID),
        ("XADD s KEEPREF KEEPREF * f v", INVALID_ID),
        ("XADD s ACKED MAXLEN 5 DELREF * f v", INVALID_ID),
        ("XADD s WHAT * f v", INVALID_ID),
        ("XADD s * f v MAXLEN", ARITY),
        ("XADD s = 5 * f v", INVALID_ID),
        ("XADD s ~ 5 * f v", INVALID_ID),
        ("XADD s NOMKSTREAM NOMKSTREAM MAXLEN", INVALID_ID),
        ("XADD s NOMKSTREAM NOMKSTREAM LIMIT", INVALID_ID),
        ("XADD s NOMKSTREAM NOMKSTREAM MINID", INVALID_ID),
        ("XADD s NOMKSTREAM NOMKSTREAM IDMPAUTO", INVALID_ID),
        ("XADD s NOMKSTREAM NOMKSTREAM IDMP", INVALID_ID),
        ("XADD s NOMKSTREAM NOMKSTREAM IDMP p", INVALID_ID),
        ("XADD s MINID = 6 LIMIT 5 IDMP p i 1-0 f v", IDMP_NOT_AUTO),
        # IDMP
        ("XADD s IDMP p i IDMP p i * f v", IDMP_TWICE),
        ("XADD s IDMP p i IDMPAUTO p * f v", IDMP_TWICE),
        ("XADD s IDMPAUTO p IDMP p i * f v", IDMP_TWICE),
        ("XADD s IDMPAUTO p IDMPAUTO p * f v", IDMP_TWICE),
        ("XADD s IDMP p i 1-1 f v", IDMP_NOT_AUTO),
        ("XADD s IDMP p i 1-* f v", IDMP_NOT_AUTO),
        ("XADD s IDMPAUTO p 1 f v", IDMP_NOT_AUTO),
        ("XADD s IDMP '' i * f v", "ERR syntax error, IDMP requires a non-empty producer ID"),
        ("XADD s IDMP p '' * f v", "ERR syntax error, IDMP requires a non-empty idempotent ID"),
        ("XADD s IDMPAUTO '' * f v", "ERR syntax error, IDMPAUTO requires a non-empty producer ID"),
        ("XADD s IDMP p1 * f v", INVALID_ID),
    ],
)
def test_a_wrong_request_is_refused(line: str, error: str) -> None:
    """§3.1."""
    s = Streams()
    assert s.fails(line) == error
    assert s.run("EXISTS s") == 0


def test_options_may_come_in_any_order() -> None:
    """§3.1."""
    options = ["NOMKSTREAM", "DELREF", "IDMP p {}", "MAXLEN ~ 1", "LIMIT 0"]
    s = Streams()
    s.fill("s", "1-0")
    for number, order in enumerate(itertools.permutations(options)):
        line = " ".join(order).format(f"i{number}")
        assert s.run(f"XADD s {line} * f v") == f"{NOW}-{number}"
    assert s.info()["length"] == 1


def test_what_follows_the_id_is_fields_whatever_it_looks_like() -> None:
    """§3.1."""
    s = Streams()
    s.run("XADD s 1-1 MAXLEN 0 NOMKSTREAM KEEPREF * '' '' f")
    assert s.run("XRANGE s - +") == [
        ["1-1", ["MAXLEN", "0", "NOMKSTREAM", "KEEPREF", "*", "", "", "f"]]
    ]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 1000])
@pytest.mark.parametrize("fields", [1, 2, 3, 4, 20])
def test_fields_of_any_number_and_length_come_back(fields: int, size: int) -> None:
    s = Streams()
    words = [f"{index}".ljust(index % 3, "f") for index in range(2 * fields - 1)] + ["x" * size]
    s.do("XADD", "s", "1-1", *words)
    s.do("XADD", "s", "*", *words)
    assert s.run("XRANGE s - +") == [["1-1", words], [f"{NOW}-0", words]]


def test_fields_are_binary_safe_and_may_repeat() -> None:
    """§3.1."""
    s = Streams()
    pairs = [b"\r\n$1", b"\x00\xff", b"f", b"1", b"f", b"2", b"", b"x" * 70_000]
    s.do("XADD", "s", "1-1", *pairs)
    assert s.do("XRANGE", "s", "-", "+") == [[b"1-1", pairs]]


@pytest.mark.parametrize("sign", ["", "= ", "~ "])
@pytest.mark.parametrize("strategy", ["MAXLEN 0", "MINID 9"])
def test_trimming_may_remove_the_entry_just_added(strategy: str, sign: str) -> None:
    """§3.1: the ID is returned nevertheless."""
    word, threshold = strategy.split()
    s = Streams()
    assert s.run(f"XADD s {word} {sign}{threshold} 5-0 f v") == "5-0"
    assert s.run("XLEN s") == 0
    assert s.info()["last-generated-id"] == "5-0"
    assert s.info()["entries-added"] == 1


def test_nomkstream_does_not_create_the_key() -> None:
    """§3.1."""
    s = Streams()
    assert s.run("XADD s NOMKSTREAM * f v") is None
    assert s.run("EXISTS s") == 0
    s.fill("s", "1-0")
    assert s.run("XADD s NOMKSTREAM 2-0 f v") == "2-0"


def test_nomkstream_comes_after_the_checks_of_arguments_and_type() -> None:
    """§3.1: order."""
    s = Streams()
    assert s.fails("XADD s NOMKSTREAM 0-0 f v").endswith("must be greater than 0-0")
    assert s.fails("XADD s NOMKSTREAM bad f v") == INVALID_ID
    s.run("SET k v")
    assert s.fails("XADD k NOMKSTREAM * f v") == WRONGTYPE


@pytest.mark.parametrize("sign", ["=", "~"])
def test_a_sign_counts_only_with_two_tokens_behind_the_strategy(sign: str) -> None:
    """§3.1: otherwise it is the threshold itself."""
    s = Streams()
    assert s.fails(f"XADD s NOMKSTREAM NOMKSTREAM MAXLEN {sign}") == NOT_INTEGER
    assert s.fails(f"XADD s NOMKSTREAM NOMKSTREAM MINID {sign}") == INVALID_ID


def test_minid_takes_a_bare_millisecond() -> None:
    """§1.2."""
    s = Streams()
    s.fill("s", "1-0", "2-0", "2-5")
    s.run("XADD s MINID 2 3-0 f v")
    assert s.ids("s") == ["2-0", "2-5", "3-0"]


def test_a_failed_append_leaves_no_key_and_no_producer_behind() -> None:
    """§3.1 [Q], idempotency §5 (#15840): better than Redis."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM", "XSETID s 18446744073709551615-18446744073709551615")
    assert s.fails("XADD s IDMP p i * f v").startswith("ERR The stream has exhausted")
    assert s.info()["pids-tracked"] == 0
