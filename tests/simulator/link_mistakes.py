"""Seeded mistakes that break rules of the links between regions.

See :mod:`tests.simulator.faults`, which tries them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from anabranch.oplog.batch import Batch, NewerBatchError
from anabranch.replication import receiving
from anabranch.replication.causal import CausalBuffer
from anabranch.replication.receiving import Receiver
from anabranch.replication.sessions import Sessions

__all__ = ["OF_LINKS"]

Patch = pytest.MonkeyPatch

LONG_BYTES: Final = 250
"""Of a batch; most are shorter."""


def units_applied_in_parts(patch: Patch) -> None:
    head = CausalBuffer._head
    patch.setattr(
        CausalBuffer,
        "_head",
        lambda self, replica_id, vector: (head(self, replica_id, vector)[0], True),
    )


def nothing_granted(patch: Patch) -> None:
    patch.setattr(Receiver, "grant", lambda self, session: None)


def fetches_outlive_their_link(patch: Patch) -> None:
    patch.setattr(Receiver, "end", lambda self, session, now_ms: None)


def long_batches_refused(patch: Patch) -> None:
    decode = receiving.decode_batch

    def decode_short(raw: bytes) -> Batch:
        batch = decode(raw)
        if batch.size > LONG_BYTES:
            raise NewerBatchError(f"{batch.size} bytes where {LONG_BYTES} are allowed")
        return batch

    patch.setattr(receiving, "decode_batch", decode_short)


def silent_links_stay(patch: Patch) -> None:
    patch.setattr(Sessions, "end_silent", lambda self, now_ms: None)


OF_LINKS: Final[tuple[tuple[str, Callable[[Patch], None], int, tuple[str, ...]], ...]] = (
    (
        "a unit is applied before all of it has come",
        units_applied_in_parts,
        10,
        ("delay", "partition", "crash"),
    ),
    (
        "a peer is granted no more than at first",
        nothing_granted,
        10,
        ("limits", "delay", "partition"),
    ),
    (
        "a transfer does not end with its link",
        fetches_outlive_their_link,
        200,
        ("loss", "limits", "partition", "delay"),
    ),
    (
        "a region refuses long batches that another one writes",
        long_batches_refused,
        10,
        ("delay", "partition"),
    ),
    (
        "a silent link is never given up",
        silent_links_stay,
        200,
        ("loss", "partition", "blackout"),
    ),
)
"""Name, how it is built in, how many seeds may be needed, and what has to go wrong."""
