"""Made-up events: the same for a seed everywhere, and with every trouble they promise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.spark.samples import (
    _STEP,
    LATENESS_MS,
    SITES,
    START_MS,
    Shape,
    _mixed,
    digest,
    events,
)

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return events(Shape(rows=200_000, seed=7, days=2))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (Shape(10_000, 1), "de1248dcd528a4b1e1eb7ab08df9379555bdfa82cdcd632b71cd055d966e1d40"),
        (Shape(10_000, 2), "091c991f26c34416f5dd0bdd83291dbc50d5efac123e5fc251d262adcfdda569"),
        (
            Shape(999, 1, 3, 30),
            "24d8847819b80046212b3485c17c8a965b0effbfde7953ab8df7f26f7eb22040",
        ),
        (Shape(1, 2**64 - 1), "7f75388b3893ebd5ecad08bcbb2c0fc53d5775ea647ada68330871c755e14c7a"),
    ],
)
def test_a_seed_gives_the_same_events_everywhere(shape: Shape, wanted: str) -> None:
    assert digest(events(shape)) == wanted


def test_draws_are_those_of_splitmix64() -> None:
    states = np.asarray([1234567], np.uint64) + np.arange(5, dtype=np.uint64) * np.uint64(_STEP)
    assert _mixed(states).tolist() == [
        *(6457827717110365317, 3203168211198807973, 9817491932198370423),
        *(4593380528125082431, 16408922859458223821),
    ]


def test_the_digest_sees_every_value() -> None:
    table = events(Shape(200))
    seen = {digest(table), digest(table.take(pa.array([1, 0, *range(2, 200)])))}
    for name in table.column_names:
        values = table[name].to_pylist()
        values[7] = values[8] if values[7] != values[8] else values[9]
        at = table.schema.get_field_index(name)
        other = pa.chunked_array([pa.array(values, table.schema.field(name).type)])
        seen.add(digest(table.set_column(at, name, other)))
    assert len(seen) == 2 + table.num_columns


def test_one_in_a_hundred_comes_twice_and_is_the_same_then(table: pa.Table) -> None:
    assert table.num_rows == 200_000
    columns = table.column_names
    assert len(pc.unique(table["event"])) == 198_000
    assert table.group_by(columns).aggregate([]).num_rows == 198_000


def test_few_keys_have_most_events(table: pa.Table) -> None:
    counts = {row["values"]: row["counts"] for row in pc.value_counts(table["key"]).to_pylist()}
    assert len(counts) == 1000
    for rank in (2, 4, 8):
        assert counts["k0"] / counts[f"k{rank - 1}"] == pytest.approx(rank, rel=0.25)


def test_nights_are_quiet_and_keys_burst(table: pa.Table) -> None:
    at = table["at"].cast(pa.int64()).to_numpy() - START_MS
    hours = np.bincount(at[at >= 0] % DAY_MS // 3_600_000, minlength=24)
    assert hours[12] > 5 * hours[3]
    seconds = np.bincount(at[at >= 0] // 1000)
    assert seconds.max() > 50 * np.median(seconds)
    busiest = pc.equal(pc.cast(pa.array(at // 1000), pa.int64()), int(seconds.argmax()))
    inside = pc.value_counts(table.filter(busiest)["key"]).to_pylist()
    assert max(row["counts"] for row in inside) > 0.8 * seconds.max()


def test_clocks_are_off_and_order_is_lost_within_bounds(table: pa.Table) -> None:
    at = table["at"].cast(pa.int64()).to_numpy()
    behind = np.maximum.accumulate(at) - at
    assert LATENESS_MS / 2 < behind.max() <= LATENESS_MS
    busiest = int(np.bincount((at - at.min()) // 1000).argmax()) * 1000 + at.min()
    near = table.filter(pa.array(abs(at - busiest) < 6000))
    counts = pc.value_counts(near["key"]).to_pylist()
    bursting = max(counts, key=lambda each: each["counts"])["values"]
    near = near.filter(pc.equal(near["key"], bursting))
    begins = {
        site: pc.min(near.filter(pc.equal(near["site"], site))["at"].cast(pa.int64())).as_py()
        for site in SITES
    }
    assert begins["us"] - begins["eu"] == pytest.approx(-1500, abs=150)
    assert begins["ap"] - begins["eu"] == pytest.approx(2000, abs=150)


def test_payloads_hold_any_bytes(table: pa.Table) -> None:
    payloads = table["payload"].to_pylist()
    assert {len(each) for each in payloads} == set(range(17))
    assert {byte for each in payloads for byte in each} == set(range(256))
