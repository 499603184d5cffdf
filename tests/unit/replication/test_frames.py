"""Messages as bytes, and bytes as messages or refusals."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.oplog.batch import REPLICA_IDS_MAX
from anabranch.replication import frames
from anabranch.replication.frames import Refusal, StatusRow
from anabranch.replication.framing import FrameType

NUMBERS = st.integers(0, 2**63 - 1)
VECTORS = st.dictionaries(st.integers(0, 2**40 - 1), NUMBERS, max_size=5)
REGIONS = st.integers(1, 255)
ROWS = st.builds(
    frames.StatusRow, REGIONS, st.integers(0, 2**40 - 1), NUMBERS, VECTORS, VECTORS, VECTORS,
    st.integers(0, 9), st.lists(REGIONS, max_size=3),
)  # fmt: skip
MESSAGES = st.one_of(
    st.builds(frames.Sub, VECTORS),
    st.builds(
        frames.StatusRows, st.lists(ROWS, min_size=1, max_size=3), st.floats(0, 1e12),
        st.floats(-1, 1e12), st.floats(0, 1e6), st.integers(0, 2**40),
    ),
    st.builds(frames.Fetch, st.integers(0, 2**40 - 1), NUMBERS, NUMBERS, NUMBERS),
    st.builds(frames.Credit, NUMBERS, st.booleans()),
    st.builds(frames.FullSyncBegin, VECTORS),
    st.builds(frames.Bye, st.integers(0, 99), st.text(max_size=50), NUMBERS),
)  # fmt: skip


def body(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    return frames.body_of(frame[4], frame[5:])


@settings(deadline=None)
@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: frames.Message) -> None:
    assert frames.decode(type(message), body(frames.encode(message))) == message


@settings(deadline=None)
@given(MESSAGES, st.data())
def test_a_flipped_bit_is_found(message: frames.Message, data: st.DataObject) -> None:
    frame = bytearray(frames.encode(message))
    at = data.draw(st.integers(4, len(frame) - 1))
    frame[at] ^= 1 << data.draw(st.integers(0, 7))
    if frame[4] != FrameType.BATCH:  # a batch has a checksum of its own
        with pytest.raises(Refusal, match="damaged"):
            frames.body_of(frame[4], bytes(frame[5:]))


@settings(deadline=None)
@given(st.binary(max_size=60))
@example(b"\x92\xa9\x00\x00\x00\x00\x00\x00\x00\x00\x80")  # a name that is no UTF-8
@example(b"\x92" + b"\x91" * 10_000)
def test_anything_else_is_refused_with_a_sentence(data: bytes) -> None:
    for kind in (frames.Hello, frames.Welcome, frames.StatusRows, frames.Sub, frames.Members):
        with suppress(Refusal):
            assert isinstance(frames.decode(kind, data), kind)


@pytest.mark.parametrize(
    "fields",
    [[{-1: 1}], [{1 << 40: 1}], [{1: -1}], [{1: 1 << 63}], [{"a": 1}], [], [None], {"vector": {}}],
)
def test_a_vector_holds_origins_and_numbers(fields: object) -> None:
    with pytest.raises(Refusal):
        frames.decode(frames.Sub, msgspec.msgpack.encode(fields))


def test_fields_that_are_not_known_yet_are_skipped() -> None:
    later = msgspec.msgpack.encode([{1: 2}, b"", "from later times"])
    assert frames.decode(frames.Sub, later) == frames.Sub({1: 2})


def test_what_earlier_versions_do_not_tell_is_not_compared() -> None:
    earlier = msgspec.msgpack.encode([{1: 2}])
    assert frames.decode(frames.Sub, earlier).fingerprint == b""


@pytest.mark.parametrize(
    "message",
    [
        frames.Sub(dict.fromkeys(range(REPLICA_IDS_MAX + 1), 1)),
        frames.StatusRows([StatusRow(1, 1, 1, {}, {}, {}, 1, [])] * 256, 0.0, -1.0, 0.0, 0),
        frames.StatusRows([StatusRow(1, 1, 1, {}, {}, {}, 1, [1] * 256)], 0.0, -1.0, 0.0, 0),
        frames.Members("c", [frames.MemberRecord(1, "x", "h", 1)] * 256),
        frames.Members("c", [], [(1, 1)] * 256),
        frames.Digests(1, {}, [1] * 1025, b""),
        frames.Digests(1, {}, [], bytes(16 * 1024 + 1)),
        frames.Differing(1, {}, [], [1] * 1025),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_names_no_more_than_there_can_be(message: frames.Message) -> None:
    with pytest.raises(Refusal, match="cannot be read: Expected"):
        frames.decode(type(message), frames.packed(message))
