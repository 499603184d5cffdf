"""Notes beside the log: a region that has yet to get what the others have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.node.cluster_notes import CLEAN, EpochFile
from anabranch.node.identity import (
    NoteError,
    addresses_noted,
    forget_newcomer,
    identity_in,
    is_newcomer,
    remember,
    set_back_noted,
    write_newcomer,
    write_set_back,
)
from anabranch.oplog.storage import Storage
from anabranch.simulator.disk import MemoryStorage


def test_a_newcomer_is_one_until_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    write_newcomer(storage)
    assert is_newcomer(storage)

    def fails() -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as trouble:
        trouble.setattr(storage, "sync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            forget_newcomer(storage)
    forget_newcomer(storage)  # the name may be gone by then
    assert not is_newcomer(storage)


DAMAGED = [b"", b"[" * 200_000, b"[]", b"3", b"{}", b"\xff\xfe", bytes(range(256))]


def put(storage: MemoryStorage, name: str, data: bytes) -> None:
    file = storage.create(name)
    file.write(data)
    file.close()


def check_is_refused(read: Callable[[Storage], object], name: str, data: bytes) -> None:
    storage = MemoryStorage()
    put(storage, name, data)
    with pytest.raises(
        NoteError, match=rf"cannot read .*{name}: .*\. Nothing was changed; it notes"
    ):
        read(storage)
    with storage.open(name) as file:
        assert file.read() == data


@pytest.mark.parametrize(
    "data",
    [
        *DAMAGED,
        b'{"reason": "x"}',
        b'{"reason": "x", "agreed": [1]}',
        b'{"reason": 1, "agreed": {}}',
        b'{"reason": "x", "agreed": {"a": 1}}',
        b'{"reason": "x", "agreed": {"1": null}}',
        b'{"reason": "x", "agreed": {"-99999999999999999999999999": 5}}',
    ],
)
def test_a_damaged_note_of_files_that_were_set_back_is_refused(data: bytes) -> None:
    check_is_refused(set_back_noted, "set-back", data)


@pytest.mark.parametrize(
    "data",
    [
        *DAMAGED,
        b'{"region-id": "1", "region-name": "eu", "gossip-port": 1}',
        b'{"region-id": 0, "region-name": "eu", "gossip-port": 1}',
        b'{"region-id": 300, "region-name": "eu", "gossip-port": 1}',
        b'{"region-id": 1, "region-name": "eu", "gossip-port": 99999}',
        b'{"region-id": 1, "region-name": "eu"}',
        b'{"region-id": 1, "region-name": "eu", "gossip-port": 1, "more": 1}',
    ],
)
def test_a_damaged_note_of_a_region_is_refused(data: bytes) -> None:
    check_is_refused(identity_in, "region", data)


@pytest.mark.parametrize("data", [*DAMAGED, b'{"ended": ["clean"], "boot": {}}'])
def test_a_damaged_note_of_an_end_lets_no_epoch_go_on(data: bytes) -> None:
    storage = MemoryStorage()
    EpochFile(storage).write(CLEAN)
    assert EpochFile(storage).may_continue()
    put(storage, "lifetime", data)
    assert not EpochFile(storage).may_continue()


def test_notes_are_read_as_they_were_written() -> None:
    storage = MemoryStorage()
    assert (identity_in(storage), set_back_noted(storage)) == (None, None)
    remember(storage, 7, "eu", 16_379)
    noted = identity_in(storage)
    assert noted is not None
    assert (noted.region_id, noted.region_name, noted.gossip_port) == (7, "eu", 16_379)
    write_set_back(storage, "why", {7: 12, 263: 5})
    assert set_back_noted(storage) == ("why", {7: 12, 263: 5})


def test_a_damaged_note_of_a_region_is_refused_with_the_directive() -> None:
    storage = MemoryStorage()
    put(storage, "region", b'{"region-id": 300, "region-name": "eu", "gossip-port": 1}')
    with pytest.raises(NoteError, match="region-id: argument must be between 0 and 255"):
        identity_in(storage)


@pytest.mark.parametrize("data", [b"", b"\0", bytes(4096)])
def test_blank_notes_need_a_person_only_where_something_could_be_lost(data: bytes) -> None:
    storage = MemoryStorage()
    put(storage, "addresses", data)
    assert addresses_noted(storage) == {}
    check_is_refused(identity_in, "region", data)
    check_is_refused(set_back_noted, "set-back", data)
    put(storage, "lifetime", data)
    assert not EpochFile(storage).may_continue()
