"""Glob patterns against a matcher that tries everything."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.errors import CommandError
from anabranch.pattern import _compile_short, _Pieces, _pieces, compile_glob, covers


def _signed(char: int) -> int:
    return char - 256 if char > 127 else char


def _one_of(pattern: bytes, char: int) -> tuple[bool, int]:
    """Whether a class matches a character, and how much of the pattern it takes."""
    index = 1
    negated = pattern[1:2] == b"^"
    index += negated
    matched = False
    while index < len(pattern) and pattern[index] != ord("]"):
        if pattern[index] == ord("\\") and index + 1 < len(pattern):
            index += 1
            matched |= pattern[index] == char
            index += 1
        elif pattern[index + 1 : index + 2] == b"-" and index + 2 < len(pattern):
            low, high = sorted((_signed(pattern[index]), _signed(pattern[index + 2])))
            matched |= low <= _signed(char) <= high
            index += 3
        else:
            matched |= pattern[index] == char
            index += 1
    return matched != negated, min(index + 1, len(pattern))


def _naive(pattern: bytes, text: bytes) -> bool:
    """Redis's rules, exponential where they are."""
    return _tries(pattern, text) if text else not pattern


def _tries(pattern: bytes, text: bytes) -> bool:
    if not pattern:
        return not text
    if pattern[:1] == b"*":
        return any(_tries(pattern[1:], text[skip:]) for skip in range(len(text) + 1))
    if not text:
        return False
    if pattern[:1] == b"?":
        return _tries(pattern[1:], text[1:])
    if pattern[:1] == b"[":
        matched, size = _one_of(pattern, text[0])
        return matched and _tries(pattern[size:], text[1:])
    if pattern[:1] == b"\\" and len(pattern) > 1:
        pattern = pattern[1:]
    return pattern[0] == text[0] and _tries(pattern[1:], text[1:])


patterns = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"*", b"?", b"[ab]", b"[^a]", b"[a-c]", b"[c-a]", b"[", b"]",
                     b"^", b"-", b"\\", b"\\*", b"[\\]]", b"[]", b"[^]", b"[a-", b"\xff", b"\n",
                     b"[b-"]),
    max_size=8,
).map(b"".join)  # fmt: skip
texts = st.lists(st.sampled_from(b"abc]-^\\*\xff\n["), max_size=7).map(bytes)


@settings(max_examples=1500, deadline=None)
@given(pattern=patterns, text=texts)
@example(pattern=b"a*b*c", text=b"abcbcbc")
@example(pattern=b"*[^a]*", text=b"aaab")
@example(pattern=b"[a-", text=b"a")
@example(pattern=b"[a-]", text=b"]")
@example(pattern=b"a\\", text=b"a\\")
@example(pattern=b"[^]", text=b"]")
def test_a_pattern_matches_what_the_naive_matcher_matches(pattern: bytes, text: bytes) -> None:
    expected = _naive(pattern, text)
    assert compile_glob(pattern)(text) == expected
    assert _Pieces(_pieces(pattern, False)).matches(text) == expected


@settings(max_examples=300, deadline=None)
@given(
    start=st.lists(st.sampled_from([b"a", b"b", b"*", b"?", b"[ab]", b"\\"]), max_size=3).map(
        b"".join
    ),
    other=patterns,
    text=texts,
)
def test_what_a_covered_pattern_matches_the_other_one_matches_too(
    start: bytes, other: bytes, text: bytes
) -> None:
    for pattern in (start, start + b"*"):
        if covers(pattern, other) and _naive(other, text):
            assert _naive(pattern, text)


@settings(max_examples=300, deadline=None)
@given(
    pattern=st.lists(st.sampled_from([b"a", b"B", b"*", b"?", b"[aB]", b"[^A]", b"[a-c]"]),
                     max_size=6).map(b"".join),
    text=st.lists(st.sampled_from(b"aAbBcC"), max_size=6).map(bytes),
)  # fmt: skip
def test_case_may_be_ignored(pattern: bytes, text: bytes) -> None:
    lowered = _naive(pattern.lower(), text.lower())
    assert compile_glob(pattern, ignore_case=True)(text) == lowered


@pytest.mark.parametrize("pattern", [b"*a" * 50 + b"b", b"*" * 100 + b"b", b"*[^b]" * 40 + b"b"])
def test_a_hostile_pattern_takes_no_time(pattern: bytes) -> None:
    """An exponential matcher would not end."""
    assert not compile_glob(pattern)(b"a" * 5000)


def test_a_pattern_that_is_too_long_is_refused() -> None:
    assert compile_glob(b"a" * 4096)(b"a" * 4096)
    with pytest.raises(CommandError, match="pattern is too long: 4096 bytes are allowed"):
        compile_glob(b"*" * 4097)


@pytest.mark.parametrize(
    "pattern",
    [
        b"*[ab]?" * 682,
        b"[^a]" * 1024,
        b"*" + b"?" * 4094 + b"b",
        b"[\x80-\x7f]" * 819,
        b"a*" * 2048,
    ],
)
def test_work_is_in_proportion_to_the_data(pattern: bytes) -> None:
    """Twice the data costs about twice the time, whatever the pattern."""
    matches = compile_glob(pattern)
    data = b"a" * 10_000

    def best(size: int) -> float:
        times = []
        for _ in range(5):
            started = time.process_time()
            matches(data[:size])
            times.append(time.process_time() - started)
        return min(times)

    assert best(10_000) < 8 * best(5_000) + 0.001


@pytest.mark.parametrize("pattern", [b"orders", b"orders:*", b"\xff*", b"1-2:*"])
def test_names_and_beginnings_need_no_regular_expression(
    pattern: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user or a subscriber may name 100,000 of them."""
    monkeypatch.setattr("anabranch.pattern.re", None)
    _compile_short.cache_clear()
    matches = compile_glob(pattern)
    for text in (pattern, pattern[:-1], pattern[:-1] + b"\n", b"", b"*", b"ORDERS"):
        assert matches(text) == _naive(pattern, text)
