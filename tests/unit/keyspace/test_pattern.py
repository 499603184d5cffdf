"""Glob patterns against a matcher that tries everything."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.keyspace.pattern import compile_glob


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
            low, high = sorted((pattern[index], pattern[index + 2]))
            matched |= low <= char <= high
            index += 3
        else:
            matched |= pattern[index] == char
            index += 1
    return matched != negated, min(index + 1, len(pattern))


def _naive(pattern: bytes, text: bytes) -> bool:
    """Redis's rules, exponential where they are."""
    if not pattern:
        return not text
    if pattern[:1] == b"*":
        return any(_naive(pattern[1:], text[skip:]) for skip in range(len(text) + 1))
    if not text:
        return False
    if pattern[:1] == b"?":
        return _naive(pattern[1:], text[1:])
    if pattern[:1] == b"[":
        matched, size = _one_of(pattern, text[0])
        return matched and _naive(pattern[size:], text[1:])
    if pattern[:1] == b"\\" and len(pattern) > 1:
        pattern = pattern[1:]
    return pattern[0] == text[0] and _naive(pattern[1:], text[1:])


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
    assert (compile_glob(pattern).fullmatch(text) is not None) == _naive(pattern, text)


@settings(max_examples=300, deadline=None)
@given(
    pattern=st.lists(st.sampled_from([b"a", b"B", b"*", b"?", b"[aB]", b"[^A]", b"[a-c]"]),
                     max_size=6).map(b"".join),
    text=st.lists(st.sampled_from(b"aAbBcC"), max_size=6).map(bytes),
)  # fmt: skip
def test_case_may_be_ignored(pattern: bytes, text: bytes) -> None:
    lowered = _naive(pattern.lower(), text.lower())
    assert (compile_glob(pattern, ignore_case=True).fullmatch(text) is not None) == lowered


@pytest.mark.parametrize("pattern", [b"*a" * 50 + b"b", b"*" * 100 + b"b", b"*[^b]" * 40 + b"b"])
def test_a_hostile_pattern_takes_no_time(pattern: bytes) -> None:
    """An exponential matcher would not end."""
    assert compile_glob(pattern).fullmatch(b"a" * 5000) is None
