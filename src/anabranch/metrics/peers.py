"""Figures of the other regions, as INFO, AB.PEERS and the availability API show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from anabranch.metrics.counters import Counters


class PeerProgress(NamedTuple):
    """How far another region is, by its status row."""

    applied: Mapping[int, int]
    """By replica ID, the number of the last effect."""
    links: list[int]
    """Regions with which it is connected."""
    age_ms: float
    """How long ago this came here."""


class PeerFigures(Struct, frozen=True):
    """What is known of a peer at one moment; ``None`` is unknown."""

    region: int
    name: str
    state: str
    """in_sync, catching_up, alive_via, unreachable, cut (by AB.LINK PAUSE), or removed."""
    cut_ms: float | None
    """For how long this region has cut the link; None if it has not."""
    via: list[int]
    """Regions whose rows show it as connected with them."""
    lag_effects: int | None
    """Own effects that it has not applied, by its status row."""
    lag_bytes: int | None
    lag_seconds: float | None
    """Age of the oldest of them."""
    durable_lag_effects: int | None
    """Own effects it has not on its disk."""
    receive_lag_effects: int | None
    """Its effects that are not applied here."""
    receive_lag_seconds: float | None
    """For how long some of them have been known of."""
    round_trip_ms: float | None
    skew_ms: float | None
    """By how much its clock is ahead of ours."""
    window_used_bytes: int
    """Own bytes sent that it has not granted again."""
    held_count: int
    held_bytes: int
    held_oldest_ms: float
    relayed_for: list[int]
    """Replica IDs that are fetched through it at present."""
    feature_level: int | None
    row_age_ms: float | None
    connected_ms: float | None
    differing_keys: int | None
    """Keys that differed when digests were compared last."""
    in_flight_keys: int | None
    """Keys that could not be compared then, because effects on them were on their way."""
    compared_ms: float | None
    """How long ago that was."""
    refusal: str
    """Why the latest link with it was ended on purpose, and by whom; empty if none was."""
    counters: Counters
