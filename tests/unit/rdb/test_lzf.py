"""LZF: round trips, texts that a real server compressed, and hostile ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb import lzf
from anabranch.rdb.errors import PayloadFormatError
from tests.support.lzf import lzf as compressed

_repetitive = st.lists(st.sampled_from([b"abc", b"abcd", b"x", b"temperature", b"\0" * 40])).map(
    b"".join
)


@given(st.binary(max_size=400) | _repetitive)
def test_what_was_compressed_comes_back(data: bytes) -> None:
    assert lzf.decompress(compressed(data), len(data)) == data


@pytest.mark.parametrize("size", [21, 264, 265, 266, 8192, 8193, 8194, 20_000])
def test_long_runs_and_far_copies(size: int) -> None:
    block = bytes(index * index % 251 for index in range(size))
    for data in (b"x" * size, block + block):
        assert lzf.decompress(compressed(data), len(data)) == data


def test_reads_what_a_server_wrote() -> None:
    """3000 times ``ab``, out of an RDB file: copies that overlap what they write."""
    packed = bytes.fromhex("02616261" + "e0ff01" * 22 + "e0b201" + "016162")
    assert lzf.decompress(packed, 6000) == b"ab" * 3000


@pytest.mark.parametrize(
    ("packed", "length"),
    [
        ("0461", 5),  # literal cut short
        ("20", 3),  # copy without distance
        ("e0", 9),  # long copy without length
        ("0061 2001", 4),  # copy from before the beginning
        ("0061 2000", 3),  # longer than declared
        ("0061 2000", 5),  # shorter than declared
        ("0061", 1 << 40),  # cannot be that long
        ("", 1),
    ],
)
def test_refuses(packed: str, length: int) -> None:
    with pytest.raises(PayloadFormatError):
        lzf.decompress(bytes.fromhex(packed), length)


@given(st.binary(max_size=60), st.integers(0, 600))
def test_noise_is_refused_or_has_the_declared_length(noise: bytes, length: int) -> None:
    with suppress(PayloadFormatError):
        assert len(lzf.decompress(noise, length)) == length
