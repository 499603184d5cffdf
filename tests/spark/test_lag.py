"""Do consumer groups keep up: figures, where they tend, the table and the picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from typing import Any

import pytest

from anabranch.spark.jobs.lag import GroupLag, lag, table_of
from anabranch.spark.plots.pictures import Sample, draw_lag
from anabranch.spark.plots.plotting import PlotError
from tests.spark.reading import fill, talking, url
from tests.support.servers import REPOSITORY


def read(client: Any, group: str, entries: int) -> None:
    client.execute_command(
        *("XREADGROUP", "GROUP", group, "c", "COUNT", entries, "STREAMS", "s", ">")
    )


def groups_of(done: Any) -> dict[str, GroupLag]:
    return {each.group: each for each in done.groups}


def test_groups_that_keep_up_and_groups_that_never_will(spark, ours, tmp_path):
    fill(ours, "s", 100)
    with talking(ours) as client:
        for group in ("ahead", "stuck", "behind", "done"):
            client.xgroup_create("s", group, "0")
        read(client, "done", 100)
        client.execute_command("XACK", "s", "done", *(each for each, _ in client.xrange("s")))
        steps = count()

        def work(_step: object) -> None:
            read(client, "ahead", 20)
            if next(steps) < 3:
                fill(ours, "s", 5)
                read(client, "done", 5)

        done = lag(
            None,
            options={"url": url(ours)},
            samples=5,
            interval_s=0.2,
            table=tmp_path / "lags",
            plot=tmp_path / "lag.svg",
            progress=work,
        )
    found = groups_of(done)
    assert (found["ahead"].max, found["ahead"].last) == (100, 35)
    assert found["ahead"].slope < 0
    assert found["ahead"].catches_up_s == pytest.approx(35 / -found["ahead"].slope)
    assert (found["ahead"].pending, found["ahead"].pending_max) == (80, 80)
    assert 0 <= found["ahead"].pending_idle_ms <= found["ahead"].pending_age_ms < 60_000
    assert (found["stuck"].max, found["stuck"].last) == (115, 115)
    assert found["stuck"].slope > 0
    assert [name for name, each in found.items() if each.never] == ["behind", "stuck"]
    assert (found["done"].last, found["done"].catches_up_s) == (0, 0)
    assert found["stuck"].pending_age_ms is None
    table = spark.read.parquet(str(tmp_path / "lags"))
    assert table.count() == done.samples == 20
    lags = [row.lag for row in table.where("group = 'ahead'").orderBy("at").collect()]
    assert lags == [100, 85, 70, 55, 35]
    picture = (tmp_path / "lag.svg").read_text()
    assert picture.count("<svg") == 1
    assert 'id="legend_1"' in picture
    assert " UTC" in picture  # the title has the time


def test_a_dry_run_looks_once_and_writes_nothing(ours, tmp_path):
    fill(ours, "s", 10)
    with talking(ours) as client:
        for group in ("g", "h"):
            client.xgroup_create("s", group, "0")
    seen = []
    done = lag(
        None,
        options={"url": url(ours)},
        samples=5,
        interval_s=60,
        table=tmp_path / "lags",
        plot=tmp_path / "lag.svg",
        dry_run=True,
        progress=seen.append,
    )
    assert (done.samples, done.seconds, done.dry_run) == (10, 240, True)
    assert [(each.group, each.last, each.never) for each in done.groups] == [
        ("g", 10, False),
        ("h", 10, False),
    ]
    assert [each.text for each in seen] == ["s g: 10, s h: 10"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PlotError):
        lag(None, options={"url": url(ours)}, plot=tmp_path / "lag.txt", dry_run=True)


def test_lag_is_known_where_redis_does_not_know_it(ours, plain):
    lags = {}
    for server in (ours, plain):
        ids = fill(server, "s", 10)
        with talking(server) as client:
            client.xgroup_create("s", "g", "0")
            read(client, "g", 2)
            client.xdel("s", ids[5])
        (found,) = lag(None, options={"url": url(server)}, samples=2, interval_s=0.01).groups
        lags[server.name] = found.last, found.never, found.pending
    assert lags["redis-server"] == (None, False, 2)
    assert lags["anabranch"] == (7, True, 2)


def test_several_servers_and_only_some_groups(ours, plain):
    for server in (ours, plain):
        fill(server, "s", 10)
        with talking(server) as client:
            client.xgroup_create("s", "g", "0")
            client.xgroup_create("s", "h", "$")
    done = lag(
        None,
        region_urls={"eu": url(ours), "us": url(plain)},
        samples=1,
        streams=["s"],
        groups=["g"],
    )
    assert [(each.region, each.group, each.last) for each in done.groups] == [
        ("eu", "g", 10),
        ("us", "g", 10),
    ]
    # One moment has no slope.
    assert {(each.slope, each.never) for each in done.groups} == {(None, False)}


def test_what_is_asked_for_must_be_possible_before_it_begins(tmp_path, monkeypatch):
    with pytest.raises(PlotError, match=r"\.svg"):
        lag(None, plot=tmp_path / "lag.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r'pip install "anabranch\[plot\]"'):
        lag(None, plot=tmp_path / "lag.png")


def test_the_same_samples_are_the_same_picture(tmp_path):
    samples = [
        Sample(1_000 * at, "eu", "s", group, None if at == 2 else at * at, at, 5, 5)
        for at in range(5)
        for group in ("g", "h")
    ]
    draw_lag(samples, tmp_path / "a.svg")
    draw_lag(samples, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    draw_lag(samples, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


def test_a_table_has_unknown_lags_as_null():
    (row,) = table_of([Sample(1_500, "", "s", "g", None, 0, None, None)]).to_pylist()
    assert row["lag"] is None
    assert row["at"].microsecond == 500_000


def test_the_command_tells_by_its_exit_code(ours, tmp_path):
    fill(ours, "s", 10)
    with talking(ours) as client:
        client.xgroup_create("s", "g", "0")
    words = ["lag", "-u", url(ours), "--samples", "2", "--interval", "0.05"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "anabranch", "spark", *words, *more],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("--plot", "lag.png", "--table", "lags", "--dry-run")
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert "samples: 2\n" in done.stdout
    assert "dry run: yes" in done.stdout
    done = run("--plot", "lag.png")
    assert done.returncode == 1, done.stderr
    assert "s g: lag 10 (at most 10), +0.0 entries/s, NEVER catches up" in done.stdout
    assert (tmp_path / "lag.png").exists()
    with talking(ours) as client:
        read(client, "g", 10)
    done = run("--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["groups"]
    assert (found["last"], found["pending"]) == (0, 10)
