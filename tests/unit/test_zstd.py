"""Frames of zstd: what other programs made is read, and damage never reaches the next frame."""

from __future__ import annotations

import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
import pyzstd
from hypothesis import given
from hypothesis import strategies as st

from anabranch import zstd
from anabranch.zstd import (
    FrameCompressor,
    ZstdError,
    announced_bytes,
    compressed_in_parts,
    expanded,
)

LINE = b"XADD s * temperature 21.5 "
TEXT = LINE * 40

_BLOCKS = "150100d0584144442073202a2074656d70657261747572652032312e35200100ceef6a8e01"
BY_ANOTHER_LIBRARY = {
    "28b52ffd601003" + _BLOCKS: TEXT,
    "28b52ffd641003" + _BLOCKS + "358af9d8": TEXT,  # with a checksum
    "28b52ffda0e09304005400001000000100fbff39c00202001000039f0400": bytes(300_000),
    "28b52ffd2000010000": b"",
}
"""Frames that zstandard 0.25.0 has written, and their contents."""

NEXT = pyzstd.compress(LINE)

contents = st.one_of(
    st.binary(max_size=100),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=60), st.integers(0, 3000)),
)


@pytest.mark.parametrize("frame", BY_ANOTHER_LIBRARY)
def test_frames_of_another_library_are_read(frame: str) -> None:
    whole = bytes.fromhex(frame)
    expected = BY_ANOTHER_LIBRARY[frame]
    assert expanded(whole) == expanded(memoryview(whole)) == zstd.opened(whole) == expected
    assert announced_bytes(whole) == len(expected)


@given(contents, st.sampled_from([-1, 1, 3]))
def test_a_frame_announces_its_contents_and_is_read_by_others(plain: bytes, level: int) -> None:
    frame = FrameCompressor(level).compress(plain)
    assert announced_bytes(frame[: zstd.HEADER_BYTES_MAX]) == len(plain)
    assert pyzstd.decompress(frame) == expanded(frame, len(plain)) == zstd.opened(frame) == plain


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 1 << 20])
def test_every_form_of_a_length_is_understood(size: int) -> None:
    for frame in (pyzstd.compress(bytes(size)), compressed_in_parts([b"", bytes(size)], 1)):
        assert announced_bytes(frame) == pyzstd.get_frame_info(frame).decompressed_size == size


@given(st.lists(contents, min_size=1, max_size=4))
def test_parts_become_one_frame(parts: list[bytes]) -> None:
    assert expanded(compressed_in_parts(parts, 1)) == b"".join(parts)


def verdict(frame: bytes) -> bytes | None:
    """What the library finds that reads one frame and is made anew for each; None if nothing."""
    try:
        size = pyzstd.get_frame_info(frame).decompressed_size
        reader = pyzstd.ZstdDecompressor()
        found = reader.decompress(frame)
    except pyzstd.ZstdError:
        return None
    is_whole = reader.eof and not reader.unused_data and size == len(found)
    return found if is_whole else None


@given(contents, st.sampled_from("cut change add twice empty skip".split()), st.randoms())
def test_a_damaged_frame_is_refused_and_leaves_nothing_behind(
    plain: bytes, damage: str, rng: random.Random
) -> None:
    frame = pyzstd.compress(plain, {pyzstd.CParameter.checksumFlag: rng.randrange(2)})
    at = rng.randrange(len(frame))
    match damage:
        case "cut":
            frame = frame[:at]
        case "change":
            frame = frame[:at] + bytes([rng.randrange(256)]) + frame[at + 1 :]
        case "add":
            frame += rng.randbytes(rng.randrange(1, 20))
        case "twice":
            frame += frame
        case "empty":
            frame += pyzstd.compress(b"")
        case "skip":
            frame += b"\x50\x2a\x4d\x18\x02\0\0\0??"
    try:
        found = expanded(frame)
    except ZstdError:
        found = None
    assert found == verdict(frame)
    assert expanded(NEXT) == zstd.opened(NEXT) == LINE


@pytest.mark.parametrize("cut", [1, 5, 6, 20, 43])
def test_an_own_frame_that_is_cut_off_is_refused_too(cut: int) -> None:
    whole = pyzstd.compress(TEXT)
    with pytest.raises(ZstdError):
        zstd.opened(whole[: min(cut, len(whole) - 1)])
    assert zstd.opened(NEXT) == LINE


def announcing(size: int) -> bytes:
    """A frame that announces so many bytes, and has a block of none."""
    return zstd.MAGIC + b"\xe0" + size.to_bytes(8, "little") + b"\x01\0\0"


@pytest.mark.parametrize(
    ("frame", "most", "why"),
    [
        (b"", 100, "no frame begins here"),
        (b"text that is no frame", 100, "no frame begins here"),
        (zstd.MAGIC, 100, "no frame begins here"),
        (pyzstd.compress(TEXT)[:6], 9999, "does not say how long"),
        (pyzstd.compress(TEXT, {pyzstd.CParameter.contentSizeFlag: 0}), 9999, "does not say how"),
        (zstd.MAGIC + b"\x21\x07\x05\x29\0\0hello", 9999, "needs a dictionary"),
        (pyzstd.compress(TEXT), len(TEXT) - 1, "1040 bytes are announced where 1039 are allowed"),
        (pyzstd.compress(bytes(50 << 20)), 1 << 20, "52428800 bytes are announced where 1048576"),
        (announcing(1 << 40), 1 << 62, "1099511627776 bytes are announced where 524288"),
        (announcing((1 << 64) - 1), 1 << 62, "18446744073709551615 bytes are announced"),
    ],
)
def test_what_cannot_be_taken_is_refused_before_it_is_decompressed(
    frame: bytes, most: int, why: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ZstdError, match=why):
            expanded(frame, most)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("announced", [300, 1039, 1041, 30_000])
def test_a_frame_that_lies_about_its_length_does_not_become_longer(announced: int) -> None:
    whole = pyzstd.compress(TEXT)
    assert whole[4] == 0x60  # a length of two bytes, less 256, follows
    lying = whole[:5] + (announced - 256).to_bytes(2, "little") + whole[7:]
    assert announced_bytes(lying) == announced
    with pytest.raises(ZstdError):
        expanded(lying)
    assert expanded(NEXT) == LINE


def test_threads_do_not_disturb_one_another() -> None:
    compressor = FrameCompressor(1)
    plain = [random.Random(seed).randbytes(1000) * 500 for seed in range(8)]

    def there_and_back(data: bytes) -> bool:
        return all(expanded(compressor.compress(data)) == data for _ in range(10))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(there_and_back, plain))
