"""Artificial events with the irregularities of real ones, equal for a seed on every machine.

Few keys have most events; there are fewer events at night, and bursts of single keys; the clock of
each site has an error; events arrive out of order, some of them twice; a column has arbitrary
bytes.

Everything is integer arithmetic over numbered draws of SplitMix64, so the result depends neither on
the version of numpy nor on how a processor rounds.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SITES: Final = ("eu", "us", "ap")
"""Where events come from; a site has the share of `_SHARES` and the clock of `_SKEWS_MS`."""

_SHARES: Final = (50, 80, 100)  # percent, summed up
_SKEWS_MS: Final = (0, -1_500, 2_000)
_TRANSIT_MS: Final = 500  # greatest delay until an event is collected
_AGAIN_MS: Final = 4_000  # greatest time until an event arrives again

LATENESS_MS: Final = max(_SKEWS_MS) - min(_SKEWS_MS) + _TRANSIT_MS + _AGAIN_MS
"""No event's time lies further behind the latest time that arrived before it, all sites together:
a watermark with this delay loses none."""

START_MS: Final = 1_709_164_800_000  # 2024-02-29, midnight UTC
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 1_440 * _MINUTE_MS
# Events of an hour, in parts of a thousand of the busiest one.
_RHYTHM: Final = (
    *(180, 120, 80, 60, 60, 90, 200, 420, 650, 780, 850, 900),
    *(980, 940, 880, 860, 880, 940, 1000, 990, 900, 720, 480, 300),
)
_BURSTS_A_DAY: Final = 12
_BURST_MS: Final = 2_000
_BURST_PERCENT: Final = 5
_PAYLOAD_MAX: Final = 16  # bytes
_REPEATED: Final = 100  # one event in so many comes twice
_STEP: Final = 0x9E3779B97F4A7C15  # the constants of SplitMix64
_MIXERS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

_Draws = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The description of the events."""

    rows: int = 1_000_000
    """With repetitions, which are one in a hundred."""
    seed: int = 1
    keys: int = 1_000
    days: int = 1


def events(shape: Shape) -> pa.Table:
    """Events in the order in which they arrive; about 200 bytes of memory for each meanwhile.

    Columns: `event` (its number: what comes twice has the same), `at` (by the clock of its site),
    `site`, `key`, `amount` (cents, from 1 to 65,536, mostly little), `payload` (0 to 16 bytes).
    """
    repeats = shape.rows // _REPEATED
    once = shape.rows - repeats
    draws = _Source(shape.seed)
    happened, key = _times_and_keys(draws, shape, once)
    site = np.searchsorted(_SHARES, draws.below(100, once), side="right")
    arrived = happened + draws.below(_TRANSIT_MS + 1, once)
    repeated = draws.below(once, repeats)
    again = arrived[repeated] + 1 + draws.below(_AGAIN_MS, repeats)
    number = np.concatenate([np.arange(once), repeated])
    # Of two events that arrive at once, the one that was drawn first is first.
    order = number[np.argsort(np.concatenate([arrived, again]), kind="stable")]
    at = START_MS + happened + np.asarray(_SKEWS_MS)[site]
    amount = _amounts(draws, once)
    payload = _payloads(draws, once)
    names = pa.array([f"k{each}" for each in range(shape.keys)])
    return pa.table(
        {
            "event": order,
            "at": pa.array(at[order], pa.timestamp("ms", "UTC")),
            "site": pa.array(SITES).take(pa.array(site[order])),
            "key": names.take(pa.array(key[order])),
            "amount": amount[order],
            "payload": payload.take(pa.array(order)),
        }
    )


def digest(table: pa.Table) -> str:
    """SHA-256 of all values, whatever file they were or will be in."""
    found = hashlib.sha256()
    for name in ("event", "at", "amount"):
        found.update(table[name].cast(pa.int64()).to_numpy().astype("<i8").tobytes())
    for name in ("site", "key", "payload"):
        values = table[name].cast(pa.large_binary())
        found.update(pc.binary_length(values).to_numpy().astype("<i8").tobytes())
        found.update(pc.binary_join(pa.array([values.to_pylist()]), b"")[0].as_buffer())
    return found.hexdigest()


def _times_and_keys(draws: _Source, shape: Shape, count: int) -> tuple[_Numbers, _Numbers]:
    """The true time of each event (ms since the start), and its key."""
    hours = np.asarray(_RHYTHM, np.int64)
    into = np.arange(60)
    day = (hours[:, None] * (60 - into) + np.roll(hours, -1)[:, None] * into).ravel()
    upto = np.cumsum(np.tile(day, shape.days))
    minute = np.searchsorted(upto, draws.below(int(upto[-1]), count), side="right")
    when = minute * _MINUTE_MS + draws.below(_MINUTE_MS, count)
    # Zipf: the key of rank r has the share 1 / r.
    weights = np.cumsum((1 << 40) // np.arange(1, shape.keys + 1, dtype=np.int64))
    key = np.searchsorted(weights, draws.below(int(weights[-1]), count), side="right")
    bursts = _BURSTS_A_DAY * shape.days
    begins = draws.below(_DAY_MS * shape.days - _BURST_MS, bursts)
    bursting = draws.below(shape.keys, bursts)
    of = draws.below(bursts, count)
    within = draws.below(_BURST_MS, count)
    in_burst = draws.below(100, count) < _BURST_PERCENT
    return np.where(in_burst, begins[of] + within, when), np.where(in_burst, bursting[of], key)


def _amounts(draws: _Source, count: int) -> _Numbers:
    """Each power of two is about as frequent as the next."""
    return (draws.below(1 << 16, count) >> draws.below(12, count)) + 1


def _payloads(draws: _Source, count: int) -> pa.BinaryArray:
    """Arbitrary bytes, with line ends and zeros."""
    ends = np.concatenate([[0], np.cumsum(draws.below(_PAYLOAD_MAX + 1, count))])
    data = draws.bits(int(ends[-1]) // 8 + 1).astype("<u8").tobytes()
    offsets = pa.py_buffer(ends.astype(np.int32).tobytes())
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)])


class _Source:
    """Numbered draws: each call uses a separate lane with one number for each row."""

    def __init__(self, seed: int) -> None:
        self._seed = np.asarray([seed], np.uint64)
        self._lane = 0

    def bits(self, count: int) -> _Draws:
        """So many numbers of 64 bits."""
        self._lane += 1
        lane = _mixed(_mixed(self._seed) + np.uint64(self._lane))
        return _mixed(lane + np.arange(count, dtype=np.uint64) * np.uint64(_STEP))

    def below(self, limit: int, count: int) -> _Numbers:
        """So many numbers from 0 to `limit` - 1."""
        return (self.bits(count) % np.uint64(limit)).astype(np.int64)


def _mixed(state: _Draws) -> _Draws:
    """The number that SplitMix64 makes of a state; arithmetic is modulo 2**64."""
    value = state + np.uint64(_STEP)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIXERS[0])
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIXERS[1])
    return value ^ (value >> np.uint64(31))
