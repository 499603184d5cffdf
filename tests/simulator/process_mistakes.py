"""Seeded mistakes that break rules of one process: held replies, snapshots, newcomers.

See :mod:`tests.simulator.faults`, which tries them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from anabranch.engine.withheld import Withheld
from anabranch.node import snapshots, write_gate
from anabranch.node.disk_trouble import DiskTrouble
from anabranch.node.durability import Durability, HeldReplies
from anabranch.node.local import RegionLocal
from anabranch.node.snapshots import Snapshots
from anabranch.replication.former_epochs import FormerEpochs
from anabranch.stream.groups.frozen_pending import FrozenPending

__all__ = ["OF_A_PROCESS"]

Patch = pytest.MonkeyPatch


# -- held replies ---------------------------------------------------------------------------------


def no_reply_waits(patch: Patch) -> None:
    patch.setattr(HeldReplies, "hold", lambda self, client, outbox: None)


def written_is_safe(patch: Patch) -> None:
    release = HeldReplies.release
    patch.setattr(HeldReplies, "release", lambda self, position: release(self, 1 << 62))


def earlier_replies_go_out(patch: Patch) -> None:
    patch.setattr(DiskTrouble, "_hold_what_was_made", lambda self: None)


def reads_not_withheld(patch: Patch) -> None:
    patch.setattr(Withheld, "check", lambda *_args: None)
    patch.setattr(Withheld, "check_keys", lambda *_args: None)


def end_is_always_clean(patch: Patch) -> None:
    settle = Durability.sync_all

    def settled(self: Durability) -> None:
        with suppress(OSError):
            settle(self)

    patch.setattr(Durability, "sync_all", settled)


def pending_not_frozen(patch: Patch) -> None:
    patch.setattr(FrozenPending, "keep", lambda *_args: None)


# -- snapshots and newcomers ----------------------------------------------------------------------


def snapshot_not_synced(patch: Patch) -> None:
    finish = snapshots._SnapshotRun._finish

    def finished(self: Any, writes: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self._file), "sync", lambda file: None)
            finish(self, writes)

    patch.setattr(snapshots._SnapshotRun, "_finish", finished)


def log_goes_before_the_snapshot(patch: Patch) -> None:
    begin = Snapshots.begin

    def begun(self: Snapshots, storage: Any, contents: Any) -> None:
        begin(self, storage, contents)
        self._on_finished(contents.position)

    patch.setattr(Snapshots, "begin", begun)


def full_sync_dropped_at_once(patch: Patch) -> None:
    join = RegionLocal.join

    def joined(self: RegionLocal, vector: Any, *, partial: bool) -> None:
        join(self, vector, partial=partial)
        RegionLocal.forget_full_syncs(self, 1 << 62)

    patch.setattr(RegionLocal, "join", joined)


def newcomer_writes_at_once(patch: Patch) -> None:
    patch.setattr(write_gate, "is_newcomer", lambda storage: False)


def newcomer_asks_one_member(patch: Patch) -> None:
    patch.setattr(FormerEpochs, "waits_for", lambda self, now_ms: [])


OF_A_PROCESS: Final[tuple[tuple[str, Callable[[Patch], None], int, tuple[str, ...]], ...]] = (
    # held replies
    ("no reply waits for the log", no_reply_waits, 200, ("power",)),
    ("written effects count as synced", written_is_safe, 200, ("power",)),
    (
        "replies made before the trouble go out",
        earlier_replies_go_out,
        200,
        ("disk", "crash"),
    ),
    (
        "reads are not refused in trouble",
        reads_not_withheld,
        200,
        ("disk", "crash"),
    ),
    (
        "a stop counts as orderly although the disk is full",
        end_is_always_clean,
        100,
        ("disk", "crash"),
    ),
    # snapshots and newcomers
    (
        "a snapshot has its name before it is synced",
        snapshot_not_synced,
        100,
        ("limits", "power", "crash"),
    ),
    (
        "the log goes before the snapshot is there",
        log_goes_before_the_snapshot,
        100,
        ("limits", "crash"),
    ),
    (
        "a full sync is not kept until a snapshot contains it",
        full_sync_dropped_at_once,
        200,
        ("limits", "crash", "partition", "delay"),
    ),
    (
        "a newcomer takes writes at once",
        newcomer_writes_at_once,
        50,
        ("membership",),
    ),
    (
        "a region that begins anew asks one member only",
        newcomer_asks_one_member,
        50,
        ("membership",),
    ),
    (
        "a DUMP in slices shows later acknowledgements",
        pending_not_frozen,
        50,
        ("slices",),
    ),
)
"""Name, how it is built in, how many seeds may be needed, and what has to go wrong."""
