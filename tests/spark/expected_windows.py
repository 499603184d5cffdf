"""Windows of a table by numpy and Arrow alone: what the job is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Rows = dict[tuple[int, object], Row]
"""Start of a window (ms) and key to everything else."""

PERCENTILES = (0.5, 0.95, 0.99)
HOUR_MS = 3_600_000


def windows_of(table: pa.Table, size_ms: int, slide_ms: int | None = None) -> Rows:
    """Windows over columns `at`, `key` and `amount`, each `event` once."""
    slide_ms = slide_ms or size_ms
    _, first = np.unique(table["event"].to_numpy(), return_index=True)
    at = table["at"].cast(pa.int64()).to_numpy()[first]
    amount = table["amount"].to_numpy()[first]
    names, key = np.unique(table["key"].to_numpy(zero_copy_only=False)[first], return_inverse=True)
    starts = [at // slide_ms * slide_ms - back * slide_ms for back in range(size_ms // slide_ms)]
    start = np.concatenate(starts)  # an event is in as many windows as overlap
    amount, key = np.tile(amount, len(starts)), np.tile(key, len(starts))
    order = np.lexsort((amount, key, start))
    group = np.stack([start[order], key[order]])
    begins = np.flatnonzero(np.r_[True, (np.diff(group) != 0).any(axis=0)])
    counts = np.diff(np.r_[begins, len(order)])
    ranked = amount[order]
    sums = np.add.reduceat(ranked, begins)
    ranks = [_ranked(ranked, begins, counts, part) for part in PERCENTILES]
    columns = (group[0][begins], group[1][begins], counts, sums, *ranks)
    titles = ("count", "sum", "p50", "p95", "p99")
    return {
        (begin, names[name]): dict(zip(titles, figures, strict=True))
        for begin, name, *figures in zip(*(each.tolist() for each in columns), strict=True)
    }


def _ranked(values: Any, begins: Any, counts: Any, part: float) -> Any:
    """Between the two values around the place, in proportion."""
    place = (counts - 1) * part
    low = np.floor(place).astype(np.int64)
    high = np.ceil(place).astype(np.int64)
    low_value, high_value = values[begins + low], values[begins + high]
    return low_value + (high_value - low_value) * (place - low)


def told_in(lake: Path) -> Rows:
    """What the files say; fails if a window and key is there twice."""
    found: Rows = {}
    for path in sorted(lake.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            start = round(row.pop("window_start").timestamp() * 1000)
            place = (start, row.pop("key", None))
            assert place not in found, f"{place} is told twice"
            found[place] = {**row, "window_end": round(row["window_end"].timestamp() * 1000)}
    return found


def differences(told: Rows, wanted: Rows, size_ms: int) -> list[str]:
    """Where the two differ, in words; percentiles may differ by rounding."""
    found = [f"{each} is missing" for each in wanted.keys() - told.keys()]
    found += [f"{each} should not be there" for each in told.keys() - wanted.keys()]
    for place in wanted.keys() & told.keys():
        mine, other = told[place], wanted[place]
        if mine["window_end"] != place[0] + size_ms or mine["without"] != 0:
            found.append(f"{place}: {mine}")
        for name, value in other.items():
            if abs(mine[name] - value) > 1e-9 * max(abs(value), 1):
                found.append(f"{place}: {name} is {mine[name]}, not {value}")
    return found
