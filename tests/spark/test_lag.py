"""The example of lag: do consumer groups keep up: figures, where they tend, table and picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from examples.spark.lag import COLOURS, Sample, Trend, draw, sampled, table_of, trends_of
from tests.spark.reading import fill, talking, url
from tests.support.servers import REPOSITORY, AnabranchServer, RedisServer


def read(client: Any, group: str, entries: int) -> None:
    client.execute_command(
        *("XREADGROUP", "GROUP", group, "c", "COUNT", entries, "STREAMS", "s", ">")
    )


def test_groups_that_keep_up_and_groups_that_never_will(ours: AnabranchServer) -> None:
    fill(ours, "s", 100)
    samples: list[Sample] = []
    with talking(ours) as client:
        for group in ("ahead", "stuck", "behind", "done"):
            client.xgroup_create("s", group, "0")
        read(client, "done", 100)
        client.execute_command("XACK", "s", "done", *(each for each, _ in client.xrange("s")))
        for number, some in enumerate(sampled({"": url(ours)}, samples=5, interval_s=0.2)):
            samples += some
            read(client, "ahead", 20)
            if number < 3:
                fill(ours, "s", 5)
                read(client, "done", 5)
    found: dict[str, Trend] = {each.newest.group: each for each in trends_of(samples)}
    ahead = found["ahead"]
    assert (ahead.lag_max, ahead.newest.lag) == (100, 35)
    assert ahead.slope is not None
    assert ahead.slope < 0
    assert ahead.catches_up_s == pytest.approx(35 / -ahead.slope)
    assert (ahead.newest.pending, ahead.pending_max) == (80, 80)
    assert ahead.newest.pending_idle_ms is not None
    assert ahead.newest.pending_age_ms is not None
    assert 0 <= ahead.newest.pending_idle_ms <= ahead.newest.pending_age_ms
    assert (found["stuck"].lag_max, found["stuck"].newest.lag) == (115, 115)
    assert [name for name, each in found.items() if each.never] == ["behind", "stuck"]
    assert (found["done"].newest.lag, found["done"].catches_up_s) == (0, 0)
    assert found["stuck"].newest.pending_age_ms is None
    rows = table_of(samples).to_pylist()
    assert [row["lag"] for row in rows if row["group"] == "ahead"] == [100, 85, 70, 55, 35]


def test_lag_is_known_where_redis_does_not_know_it(
    ours: AnabranchServer, plain: RedisServer
) -> None:
    lags = {}
    for server in (ours, plain):
        ids = fill(server, "s", 10)
        with talking(server) as client:
            client.xgroup_create("s", "g", "0")
            read(client, "g", 2)
            client.xdel("s", ids[5])
        samples = [
            each for some in sampled({"": url(server)}, samples=2, interval_s=0.01) for each in some
        ]
        (found,) = trends_of(samples)
        lags[server.name] = found.newest.lag, found.never, found.newest.pending
    assert lags["redis-server"] == (None, False, 2)
    assert lags["anabranch"] == (7, True, 2)


def test_several_servers_and_only_some_groups(ours: AnabranchServer, plain: RedisServer) -> None:
    for server in (ours, plain):
        fill(server, "s", 10)
        with talking(server) as client:
            client.xgroup_create("s", "g", "0")
            client.xgroup_create("s", "h", "$")
    urls = {"eu": url(ours), "us": url(plain)}
    (samples,) = sampled(urls, ["s", "none"], groups=["g"], samples=1)
    assert [(each.region, each.group, each.lag) for each in samples] == [
        ("eu", "g", 10),
        ("us", "g", 10),
    ]
    # One moment has no slope.
    assert {(each.slope, each.never) for each in trends_of(samples)} == {(None, False)}


def test_the_same_samples_are_the_same_picture(tmp_path: Path) -> None:
    samples = [
        Sample(1_000 * at, "eu", "_s", group, None if at == 2 else at * at, at, 5, 5)
        for at in range(5)
        for group in ("$x_{$", "h")
    ]
    for name in ("a.svg", "b.svg", "a.png"):
        draw(samples, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    draw([], tmp_path / "none.svg")


def test_regions_with_equal_lags_are_both_seen(tmp_path: Path) -> None:
    samples = [
        Sample(1_000 * at, region, "s", "g", at, 0, 5, 5)
        for at in range(5)
        for region in ("eu", "us")
    ]
    draw(samples, tmp_path / "lag.png")
    picture = imread(tmp_path / "lag.png")
    panel = picture[len(picture) // 10 : len(picture) // 2, :, :3]
    for colour in COLOURS[:2]:
        assert (abs(panel - to_rgb(colour)).max(axis=2) < 0.02).sum() > 1_000


def test_a_table_has_unknown_lags_as_null() -> None:
    (row,) = table_of([Sample(1_500, "", "s", "g", None, 0, None, None)]).to_pylist()
    assert row["lag"] is None
    assert row["at"].microsecond == 500_000


def test_the_program_tells_by_its_exit_code(ours: AnabranchServer, tmp_path: Path) -> None:
    fill(ours, "s", 10)
    with talking(ours) as client:
        client.xgroup_create("s", "g", "0")
    program = [sys.executable, str(REPOSITORY / "examples/spark/lag.py")]
    words = ("--samples", "2", "--interval", "0.05")

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *more, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    done = run(f"eu={url(ours)}", "--plot", "lag.png", "--table", "lags")
    assert done.returncode == 1, done.stderr
    assert "s g at eu: lag 10 (at most 10), +0.0 entries/s, NEVER catches up" in done.stdout
    assert (tmp_path / "lag.png").exists()
    assert pq.read_table(tmp_path / "lags").num_rows == 2
    with talking(ours) as client:
        read(client, "g", 10)
    done = run(url(ours))
    assert done.returncode == 0, done.stderr
    assert "s g: lag 0 (at most 0), +0.0 entries/s; 10 pending (at most 10)" in done.stdout
