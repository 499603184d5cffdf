"""The fast request parser against the careful one, on arbitrary bytes with arbitrary cuts."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.resp.inline import UnbalancedQuotes, split_words
from anabranch.resp.limits import AUTHENTICATED, INLINE_MAX, UNAUTHENTICATED, RequestLimits
from anabranch.resp.parser import (
    ARGUMENTS_PIECE_BYTES,
    CarefulParser,
    RequestParser,
    ordinary_requests,
)

Outcome = tuple[list[list[bytes]], bytes | None]


def request(*args: bytes) -> bytes:
    """A request as clients send it."""
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args)


def run(parser: RequestParser | CarefulParser, chunks: list[bytes]) -> Outcome:
    """All requests of these chunks, and the error that ended them, if one did."""
    requests = []
    for chunk in chunks:
        requests += parser.feed(chunk)
        if parser.error is not None:
            break
    return requests, parser.error


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces; none is empty."""
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[low:high] for low, high in pairwise(bounds)]


payloads = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([
        b"", b"XADD", b"*", b"+", b"(5-0", b"\r\n", b"*0\r\n", b"$-1\r\n", b"\r\n+x", b"\r\n*12345",
        b"*123456", b"a\r\n(b\r\n", b"=", b"~", b"%", b"x" * 300, b"\r\n>",
    ]),
)  # fmt: skip
requests = st.lists(payloads, min_size=1, max_size=5).map(lambda args: request(*args))
inlines = st.sampled_from([
    b"PING\r\n", b"PING\n", b"\r\n", b"\n", b"  \n", b"SET a 'b c'\r\n", b'ECHO "\\x41\\n"\n',
    b"ECHO 'x\n", b'"a"b\n', b"#f\r\n", b"#t\r\n", b"_\r\n", b":1\r\n", b",1.5\r\n", b"-ERR x\r\n",
    b"+OK\r\n", b"(12\r\n", b"$3\r\nfoo\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"%1\r\n", b"~0\r\n",
    b"|1\r\n", b">1\r\n", b"!3\r\nabc\r\n", b"=7\r\ntxt:abc\r\n",
    b"POST / HTTP/1.1\r\n", b"Host: x\r\n",
])  # fmt: skip
corrupt = st.sampled_from([
    b"*0\r\n", b"*-1\r\n", b"*x\r\n", b"*\r\n", b"*1\n$1\r\na\r\n", b"*01\r\n$1\r\na\r\n",
    b"*+1\r\n$1\r\na\r\n", b"* 1\r\n$1\r\na\r\n", b"*1 \r\n$1\r\na\r\n", b"*-0\r\n",
    b"*1\r\n:1\r\n", b"*1\r\n+OK\r\n", b"*1\r\n*1\r\n$1\r\na\r\n", b"*1\r\n_\r\n", b"*1\r\n#f\r\n",
    b"*1\r\n$-1\r\n", b"*1\r\n$x\r\n", b"*1\r\n$\r\n", b"*1\r\n$01\r\na\r\n", b"*1\r\n$-0\r\n\r\n",
    b"*1\r\n$+1\r\na\r\n", b"*1\r\n$1\na\r\n", b"*1\r\n$1\r\nabc", b"*2\r\n$1\r\na\r\n", b"*1\r\n",
    b"*1\r\n$5\r\nab", b"*99999\r\n", b"*2147483648\r\n", b"*1\r\n$536870913\r\n", b"*1\r\n(1\r\n",
    b"*1\r\n!3\r\nabc\r\n", b"*1\r\n=5\r\ntxt:a\r\n", b"*1\r\n%0\r\n",
    b"*1\r\n~0\r\n", b"*1\r\n,1\r\n",
    b"*1\r\n$999999999999999999999\r\n", b"*123456789012345678901234567890\r\n", b"*1\r\n-E\r\n",
    b"*2\r\n$4\r\nECHO\r\n:12\r\n", b"*1\r\n>0\r\n", b"*1\r\n|0\r\n", b"*", b"$",
    b"\r", b"*1\r\n\r\n",
])  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A request with one byte changed, added or missing."""
    data = draw(requests)
    place = draw(st.integers(0, len(data) - 1))
    byte = draw(st.sampled_from([b"", b"0", b"9", b"-", b"*", b"$", b"\r", b"\n", b"\0", b"x"]))
    return data[:place] + byte + data[place + draw(st.integers(0, 1)) :]


conversations = st.lists(
    st.one_of(requests, requests, requests, inlines, corrupt, damaged(), st.binary(max_size=8)),
    min_size=1,
    max_size=6,
).map(b"".join).filter(len)  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(data=conversations, places=st.lists(st.integers(0, 2000), max_size=6))
@example(data=request(b"PING") + b"#f\r\n", places=[])
@example(data=request(b"PING") + b"$0\r\n\r\n", places=[])
@example(data=request(b"a") + b"*1\r\n$1\r\n", places=[])
@example(data=request(b"XRANGE", b"s", b"-", b"+"), places=[25])
def test_both_parsers_agree_however_the_bytes_arrive(data: bytes, places: list[int]) -> None:
    expected = run(CarefulParser(AUTHENTICATED), [data])
    assert run(RequestParser(), cut(data, places)) == expected
    assert run(CarefulParser(AUTHENTICATED), cut(data, places)) == expected


@settings(max_examples=150, deadline=None)
@given(data=conversations)
def test_both_parsers_agree_wherever_the_bytes_are_cut(data: bytes) -> None:
    """In two, at every byte; and byte by byte."""
    expected = run(CarefulParser(AUTHENTICATED), [data])
    for place in range(1, len(data)):
        assert run(RequestParser(), [data[:place], data[place:]]) == expected
    single = [data[index : index + 1] for index in range(len(data))]
    assert run(RequestParser(), single) == expected
    assert run(CarefulParser(AUTHENTICATED), single) == expected


@settings(max_examples=500, deadline=None)
@given(data=conversations, places=st.lists(st.integers(0, 2000), max_size=6))
@example(data=request(*[b"a"] * 300, b"b" * 99_999, b"c" * 100_000, b""), places=[900, 1500])
def test_arguments_that_are_taken_at_once_are_those_that_are_taken_one_by_one(
    data: bytes, places: list[int]
) -> None:
    """Below a million bytes a limit makes the careful parser look at each argument alone."""
    one_by_one = RequestLimits(AUTHENTICATED.arguments_max, 999_999)
    expected = run(CarefulParser(one_by_one), [data])
    assert run(CarefulParser(AUTHENTICATED), cut(data, places)) == expected


@settings(max_examples=500, deadline=None)
@given(data=conversations)
@example(data=b"*1\r\n$0\r\n\r\n*2\r\n$1\r\na\r\n$0\r\n")
def test_what_machine_code_parses_and_leaves_is_what_the_careful_parser_finds(data: bytes) -> None:
    """The function that the compiled form uses, in both forms."""
    first, rest = ordinary_requests(data)
    more, error = run(CarefulParser(AUTHENTICATED), [rest] if rest else [])
    assert (first + more, error) == run(CarefulParser(AUTHENTICATED), [data])


@settings(max_examples=100, deadline=None)
@given(data=st.lists(requests, min_size=1, max_size=5).map(b"".join))
def test_machine_code_parses_all_well_formed_requests_itself(data: bytes) -> None:
    found, rest = ordinary_requests(data)
    assert rest == b""
    assert b"".join(request(*args) for args in found) == data


@settings(max_examples=300, deadline=None)
@given(
    data=st.lists(requests, min_size=1, max_size=5).map(b"".join), places=st.lists(st.integers())
)
def test_requests_come_out_as_they_were_put_in(data: bytes, places: list[int]) -> None:
    """An independent reading of well-formed requests; nothing is left over."""
    parser = RequestParser()
    found, error = run(parser, cut(data, places))
    assert error is None
    assert b"".join(request(*args) for args in found) == data
    assert parser.buffered == 0


@settings(max_examples=200, deadline=None)
@given(data=conversations, places=st.lists(st.integers(0, 2000), max_size=6))
def test_strict_limits_are_the_same_for_both(data: bytes, places: list[int]) -> None:
    expected = run(CarefulParser(UNAUTHENTICATED), [data])
    assert run(RequestParser(UNAUTHENTICATED), cut(data, places)) == expected


# -- the rules --------------------------------------------------------------------------------

ERRORS = [
    (b"*x\r\n", b"invalid multibulk length"),
    (b"*\r\n", b"invalid multibulk length"),
    (b"*2147483648\r\n", b"invalid multibulk length"),
    (b"*99999999999999999999\r\n", b"invalid multibulk length"),
    (b"*1" + b"0" * INLINE_MAX, b"too big mbulk count string"),
    (b"*1\r\n:1\r\n", b"expected '$', got ':'"),
    (b"*1\r\nx", b"expected '$', got 'x'"),
    (b"*1\r\n$x\r\n", b"invalid bulk length"),
    (b"*1\r\n$-1\r\n", b"invalid bulk length"),
    (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
    (b"*1\r\n$1" + b"0" * INLINE_MAX, b"too big bulk count string"),
    (b"x" * (INLINE_MAX + 1), b"too big inline request"),
    (b"ECHO 'x\r\n", b"unbalanced quotes in request"),
    (b'ECHO "x\r\n', b"unbalanced quotes in request"),
]
PARSERS = pytest.mark.parametrize("make", [RequestParser, CarefulParser])


@PARSERS
@pytest.mark.parametrize(("data", "text"), ERRORS, ids=[text.decode() for _, text in ERRORS])
def test_what_is_wrong_is_said_after_the_requests_before_it(
    make: type[RequestParser | CarefulParser], data: bytes, text: bytes
) -> None:
    for before in ([], [[b"PING"], [b"ECHO", b"x"]]):
        parser = make(AUTHENTICATED)
        sent = b"".join(request(*args) for args in before) + data
        assert run(parser, [sent]) == (before, b"ERR Protocol error: " + text)
        assert parser.feed(request(b"PING")) == []


@PARSERS
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"*11\r\n", b"ERR Protocol error: unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", b"ERR Protocol error: unauthenticated bulk length"),
    ],
)
def test_strangers_may_not_make_us_allocate(
    make: type[RequestParser | CarefulParser], data: bytes, text: bytes
) -> None:
    assert run(make(UNAUTHENTICATED), [data]) == ([], text)
    assert run(make(AUTHENTICATED), [data]) == ([], None)
    fine = request(*[b"x" * 16384] * 10)
    assert len(run(make(UNAUTHENTICATED), [fine])[0]) == 1


def test_new_limits_hold_for_what_has_arrived_already() -> None:
    """AUTH and a large request in one packet: the header is looked at again."""
    parser = RequestParser(UNAUTHENTICATED)
    large = request(*[b"x"] * 20)
    assert run(parser, [request(b"AUTH", b"p") + large + request(b"PING")])[0] == [[b"AUTH", b"p"]]
    assert parser.set_limits(AUTHENTICATED) == [[b"x"] * 20, [b"PING"]]
    assert parser.error is None
    assert parser.feed(request(b"PING")) == [[b"PING"]]


def test_other_mistakes_are_not_forgiven_by_new_limits() -> None:
    parser = RequestParser(UNAUTHENTICATED)
    parser.feed(b"*x\r\n")
    assert parser.set_limits(AUTHENTICATED) == []
    assert parser.error == b"ERR Protocol error: invalid multibulk length"


@pytest.mark.parametrize("limit", [1_000_000, 999, AUTHENTICATED.bulk_bytes_max])
def test_the_length_limit_is_a_setting(limit: int) -> None:
    """proto-max-bulk-len; below 16 KiB it is 16 KiB, as strangers may send that much."""
    parser = RequestParser(RequestLimits(AUTHENTICATED.arguments_max, limit))
    assert parser.feed(b"*1\r\n$%d\r\n" % max(limit, 0)) == []
    assert parser.error is None
    parser = RequestParser(RequestLimits(AUTHENTICATED.arguments_max, limit))
    parser.feed(b"*1\r\n$%d\r\n" % (max(limit, 16384) + 1))
    assert parser.error == b"ERR Protocol error: invalid bulk length"


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1\r\n", b"Host: localhost\r\n", b"post\n"])
def test_browsers_are_turned_away_without_a_word(line: bytes) -> None:
    assert run(RequestParser(), [line + request(b"PING")]) == ([], b"")


@pytest.mark.parametrize("data", [b"*0\r\n", b"*-1\r\n", b"*-99\r\n", b"\r\n", b"  \r\n", b"\n"])
def test_empty_requests_are_no_requests(data: bytes) -> None:
    assert run(RequestParser(), [data + request(b"PING") + data]) == ([[b"PING"]], None)


@pytest.mark.parametrize("header", [b"*2147483647\r\n", b"*1\r\n$536870912\r\n", b"*1000000\r\n"])
def test_a_hostile_header_costs_nothing(header: bytes) -> None:
    """What a header declares is not allocated."""
    parser = RequestParser()
    assert parser.feed(header) == []
    assert parser.error is None
    assert parser.buffered < 1000


def test_unfinished_requests_are_accounted_for() -> None:
    """What a client makes us keep shows in ``buffered``."""
    parser = RequestParser()
    parser.feed(b"*3\r\n$100000\r\n" + b"x" * 100_000 + b"\r\n$100000\r\n" + b"y" * 50_000)
    assert 150_000 <= parser.buffered <= 151_000
    parser.feed(b"y" * 50_000 + b"\r\n$1\r\nz\r\n")
    assert parser.buffered == 0


def test_what_an_argument_lacks_is_known_once_its_length_is() -> None:
    parser = RequestParser()
    for data, awaited in (
        (b"*2\r\n$4\r\nECHO\r\n$100000", 0),
        (b"\r\n", 100_002),
        (b"x" * 99_999, 3),
        (b"x\r", 1),
    ):
        assert parser.feed(data) == []
        assert parser.awaited == awaited
    assert parser.feed(b"\n") == [[b"ECHO", b"x" * 100_000]]
    assert parser.awaited == 0


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("step", [1021, 65_536, 65_537, 99_990])
def test_large_arguments_come_whole_wherever_they_are_cut(size: int, step: int) -> None:
    payload = bytes(range(251)) * (size // 251 + 1)
    requests = [[b"MSET", b"a", payload[:size], b"b", payload[3 : size + 3]], [b"PING"]]
    data = b"".join(request(*each) for each in requests)
    for first in (1, 20, size, size + 25, size + 27, size + 28, size + 29, 2 * size):
        pieces = [data[:first], *(data[at : at + step] for at in range(first, len(data), step))]
        assert run(RequestParser(), pieces) == (requests, None)


def test_a_piece_of_many_arguments_never_ends_their_request() -> None:
    """Behind it may be requests that take longer to parse."""
    data = b"*5000\r\n" + b"$0\r\n\r\n" * 5000
    parser = RequestParser()
    assert parser.feed(data[:20]) == []
    at = 20
    while (piece := parser.awaited - 1) > 0:
        assert piece < ARGUMENTS_PIECE_BYTES
        assert parser.feed(data[at : at + piece]) == []
        at += piece
    assert parser.feed(data[at:]) == [[b""] * 5000]


def test_a_large_argument_is_handed_out_without_a_copy() -> None:
    data = request(b"SET", b"k", b"x" * (1 << 24))
    parser = RequestParser()
    tracemalloc.start()
    for at in range(0, 1 << 24, 1 << 16):
        assert parser.feed(data[at : at + (1 << 16)]) == []
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    assert len(parser.feed(data[1 << 24 :])[0][2]) == 1 << 24
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - held < 1 << 20


def test_a_large_request_in_small_chunks_takes_linear_time() -> None:
    """Sixteen megabytes in 4096 pieces; a quadratic parser would take minutes."""
    payload = b"x" * (1 << 24)
    data = request(b"SET", b"k", payload)
    pieces = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    assert run(RequestParser(), pieces) == ([[b"SET", b"k", payload]], None)


# -- inline words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"", []),
        (b" \t\v\f\r", []),
        (b"a", [b"a"]),
        (b"  a\tb  c ", [b"a", b"b", b"c"]),
        (b'"a b" c', [b"a b", b"c"]),
        (b"'a b' c", [b"a b", b"c"]),
        (b"\"\" ''", [b"", b""]),
        (rb'"\x41\xfF\n\r\t\b\a\\\"\q"', [b'A\xff\n\r\t\b\a\\"q']),
        (rb'"\xZZ"', [b"xZZ"]),
        (rb"'\n\' \ '", [rb"\n' \ "]),
        (b'pre"quoted part"', [b"prequoted part"]),
        (b"caf\xc3\xa9", [b"caf\xc3\xa9"]),
    ],
)
def test_inline_words(line: bytes, found: list[bytes]) -> None:
    assert split_words(line) == found


@pytest.mark.parametrize("line", [b'"a', b"'a", b'"a"b', b"'a'b", b'"a\\"', b"a 'b", b'"\\'])
def test_unbalanced_quotes(line: bytes) -> None:
    with pytest.raises(UnbalancedQuotes):
        split_words(line)
