"""Shared by the tests of the payload codec: recorded payloads and random images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from anabranch.rdb.kinds import StreamType
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)

FIXTURES = Path(__file__).parent / "fixtures"

_MAX_COUNT = (1 << 63) - 1
_halves = st.one_of(
    st.integers(0, 9), st.integers(0, 2**16), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1])
)
_ids = st.builds(lambda ms, seq: ms << 64 | seq, _halves, _halves)
_entry_ids = _ids.filter(bool)
_counts = st.one_of(st.integers(0, 300), st.integers(0, _MAX_COUNT))
_times = st.integers(0, 2**42)
_numbers = st.integers(-(2**64), 2**64).map(lambda number: b"%d" % number)
_texts = st.one_of(
    st.binary(max_size=5),
    _numbers,
    st.sampled_from([b"", b"f", b"-", b"-0", b"007", b"1.5", b"x" * 63, b"y" * 64, b"z" * 4096]),
)
_names = st.one_of(st.sampled_from([b"a", b"b", b"12", b""]), st.binary(max_size=4))
_name_lists = st.lists(_names, unique=True, max_size=3).map(sorted)  # Redis keeps them sorted
_pairs = st.lists(st.tuples(st.sampled_from([b"f", b"g", b"1"]) | _texts, _texts), min_size=1)


def _records(name: str) -> list[dict[str, Any]]:
    with (FIXTURES / name).open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def recorded_streams() -> list[dict[str, Any]]:
    """Payloads of real servers, with what XINFO STREAM FULL said after RESTORE."""
    return _records("streams.jsonl")


@pytest.fixture(scope="session")
def recorded_values() -> list[dict[str, Any]]:
    """Strings, lists and sets out of real RDB files."""
    return _records("values.jsonl")


@pytest.fixture(scope="session")
def stream_images() -> Callable[[StreamType], SearchStrategy[StreamImage]]:
    """Random consistent images that a given type can hold without loss."""
    return _images


@st.composite
def _images(draw: DrawFn, stream_type: StreamType) -> StreamImage:
    ids = sorted(draw(st.lists(_entry_ids, unique=True, max_size=12)))
    nodes = []
    left = list(ids)
    while left:
        size = draw(st.integers(1, len(left)))
        shape = draw(st.none() | _pairs)
        entries = []
        for entry_id in left[:size]:
            pairs = draw(_pairs) if shape is None or draw(st.booleans()) else shape
            entries.append((entry_id, [text for pair in pairs for text in pair]))
        nodes.append(NodeImage(entries, size + draw(st.integers(0, 3))))
        left = left[size:]
    image = StreamImage(nodes, len(ids))
    image.first_id = ids[0] if ids else 0
    image.last_id = max(draw(_ids), ids[-1] if ids else 0)
    image.entries_added = len(ids)
    if stream_type.has_counters:
        image.entries_added = min(len(ids) + draw(_counts), _MAX_COUNT)
        image.max_deleted_id = draw(_ids)
    image.groups = [draw(_groups(name, stream_type)) for name in draw(_name_lists)]
    if stream_type.has_producers:
        image.idmp_duration = draw(st.integers(1, 86_400))
        image.idmp_maxsize = draw(st.integers(5, 10_000))
        image.iids_added = draw(_counts)
        image.iids_duplicates = draw(_counts)
        image.producers = [ProducerImage(pid, draw(_iids)) for pid in draw(_name_lists) if pid]
    return image


_iids = st.lists(
    st.tuples(_names.filter(bool), _ids), min_size=1, max_size=5, unique_by=lambda item: item[0]
)


@st.composite
def _groups(draw: DrawFn, name: bytes, stream_type: StreamType) -> GroupImage:
    consumers = []
    for consumer in draw(_name_lists):
        seen = draw(_times)
        active = draw(st.just(-1) | _times) if stream_type.has_active_time else seen
        consumers.append(ConsumerImage(consumer, seen, active))
    owners: list[bytes | None] = [consumer.name for consumer in consumers]
    if stream_type.has_nacked:
        owners.append(None)
    pending = []
    if owners:
        for entry_id in sorted(draw(st.lists(_ids, unique=True, max_size=6))):
            owner = draw(st.sampled_from(owners))
            pending.append(PendingImage(entry_id, draw(_times), draw(_counts), owner))
    nacked = draw(st.permutations([item.entry_id for item in pending if item.consumer is None]))
    read = draw(st.none() | _counts) if stream_type.has_counters else None
    last_id = draw(_ids)
    estimate = not stream_type.has_counters
    return GroupImage(name, last_id, read, pending, consumers, list(nacked), estimate)
