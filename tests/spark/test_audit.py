"""Have all regions the same: differences are found, and what is under way is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.spark import command
from anabranch.effects import kinds
from anabranch.spark.jobs.audit import ReplicaError, audit
from anabranch.spark.options import OptionError
from tests.spark.reading import fill, fill_at, talking, url
from tests.spark.test_regions import part
from tests.support.diverging import rewrite_log
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer

NAMES = ("eu", "us")
ARGUMENTS = ("--appendfsync", "always")


@pytest.fixture
def other() -> Iterator[AnabranchServer]:
    with AnabranchServer() as server:
        yield server


def urls(*servers: Any, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    return {name: url(each) for name, each in zip(names, servers, strict=True)}


def shown(done: Any) -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {(each.kind, each.stream, each.what, each.regions) for each in done.findings}


# -- two servers that ought to have the same ---------------------------------------------------


def test_what_differs_is_found_with_its_id(ours, other):
    times = list(range(1000, 61_000, 100))
    for server in (ours, other):
        fill_at(server, "s", times)
        fill_at(server, "alike", times)
    with talking(other) as client:
        client.xdel("s", "20000-0")
        client.execute_command("XADD", "s", "70000-0", "n", "extra")
        # Its number of entries is the same in both.
        client.xdel("s", "60900-0")
        client.execute_command("XADD", "s", "70001-0", "n", "value")
    with talking(ours) as client:
        client.execute_command("XADD", "s", "70000-1", "n", "extra")
        client.execute_command("XADD", "s", "70001-0", "n", "other")
        client.execute_command("XADD", "only-here", "1-0", "n", 1)
    said: list[str] = []
    done = audit(None, region_urls=urls(ours, other), progress=said.append)
    assert said[0] == "3 streams in eu, us"
    assert shown(done) == {
        ("missing", "s", "20000-0", ("us",)),
        ("missing", "s", "60900-0", ("us",)),
        ("missing", "s", "70000-1", ("us",)),
        ("extra", "s", "70000-0", ("us",)),
        ("content", "s", "70001-0", ("us",)),
        ("missing", "only-here", "1-0", ("us",)),
    }
    assert not done.converged
    assert done.streams == 3
    few = audit(None, region_urls=urls(ours, other), limit=1)
    assert (len(few.findings), few.more) == (1, True)


def test_entries_below_the_latest_trimming_are_not_compared(ours, other):
    for server in (ours, other):
        fill_at(server, "s", list(range(1, 501)))
    with talking(other) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", 200)
    done = audit(None, region_urls=urls(ours, other))
    assert done.converged
    assert done.entries == (200, 200)
    assert done.not_compared == 300
    with talking(ours) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", 100)
        client.xdel("s", "450-0")
    done = audit(None, region_urls=urls(ours, other))
    assert shown(done) == {("extra", "s", "450-0", ("us",))}
    # Where both have trimmed alike, everything counts, the very first entry as well.
    with talking(other) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", 100)
        client.xdel("s", "450-0", "401-0")
    done = audit(None, region_urls=urls(ours, other), streams=["s"])
    assert shown(done) == {("missing", "s", "401-0", ("us",))}


def test_regions_are_told_apart_or_refused(ours, plain):
    with pytest.raises(OptionError, match="two regions are needed"):
        audit(None, region_urls={"eu": url(ours)})
    with pytest.raises(ReplicaError, match="no Anabranch server"):
        audit(None, region_urls=urls(ours, plain))
    with pytest.raises(OptionError, match="--region-urls"):
        audit(None, options={"url": url(ours)})


# -- regions ---------------------------------------------------------------------------------


def test_regions_that_write_delete_and_trim_all_the_while_have_not_diverged(regions):
    stop = threading.Event()

    def write(server, seed):
        with talking(server) as client:
            step = 0
            while not stop.is_set():
                step += 1
                added = client.xadd("s", {"n": step})
                client.xadd(f"t{step % 5}", {"n": step})
                if step % 3 == seed:
                    client.xdel("s", added)
                if step % 20 == 0:
                    client.xtrim("t1", maxlen=10, approximate=False)
                    client.delete("t2")

    for server in regions.servers:
        fill(server, "s", 500)
    threads = [
        threading.Thread(target=write, args=(server, seed))
        for seed, server in enumerate(regions.servers)
    ]
    for each in threads:
        each.start()
    try:
        for _ in range(3):
            done = audit(None, region_urls=urls(*regions.servers), settle_s=20)
            assert done.findings == ()
            assert min(done.entries) > 900
    finally:
        stop.set()
        for each in threads:
            each.join()
    wait_until(regions.converged, "all have applied the same", 300)
    done = audit(None, region_urls=urls(*regions.servers))
    assert done.converged
    assert done.not_compared == done.undecided == 0
    assert len(set(done.entries)) == 1


def test_what_parted_regions_have_not_heard_of_is_no_divergence(regions):
    eu, us = regions.servers
    ids = fill(eu, "s", 300)
    fill(us, "s", 300)
    wait_until(regions.converged, "all have applied the same", 300)
    part(regions)
    fill(eu, "s", 100)
    fill(us, "fresh", 10)
    with talking(us) as client:
        client.xdel("s", ids[250])
        client.execute_command("XTRIM", "s", "MAXLEN", 500)
    done = audit(None, region_urls=urls(eu, us), settle_s=0.2)
    assert done.findings == ()
    assert done.converged
    assert done.not_compared >= 100
    assert done.undecided > 0
    regions.heal()
    wait_until(regions.converged, "all have applied the same", 300)
    done = audit(None, region_urls=urls(eu, us))
    assert (done.converged, done.undecided, done.not_compared) == (True, 0, 0)


def test_a_region_whose_disk_lies_is_found_out(regions):
    eu, us = regions.servers
    fill(eu, "s", 500)
    fill(us, "s", 500)
    with talking(eu) as client:
        numbers = {}
        for name in ("changed", "lost", "moved"):
            numbers[name] = client.xadd("s", {"n": name}).decode()
        victim = client.xadd("victim", {"n": 1}).decode()
        moved = client.xadd("moved", {"n": 1}).decode()
    wait_until(regions.converged, "all have applied the same", 300)
    assert audit(None, region_urls=urls(eu, us)).converged
    us.kill()
    lost = []

    def change(batch, effect):
        if isinstance(effect, kinds.AddRun):
            if b"changed" in effect.data:
                effect.data = effect.data.replace(b"changed", b"CHANGED")
            elif b"lost" in effect.data:
                lost.append((batch.replica_id, batch.first))
            elif effect.key == b"victim":
                ((replica_id, number),) = lost
                return kinds.RemoveNumbers(
                    *(0, b"s", [(replica_id, [number - 1, number])], []),
                    dereferenced=True,
                    trimmed=False,
                )
            elif effect.key == b"moved":
                effect.key = b"elsewhere"
        return effect

    rewrite_log(us.directory / "data" / "appendonlydir", change)
    us.start()
    wait_until(regions.converged, "all have applied the same", 300)
    done = audit(None, region_urls=urls(eu, us))
    assert shown(done) == {
        ("content", "s", numbers["changed"], ("us",)),
        ("missing", "s", numbers["lost"], ("us",)),
        ("missing", "victim", victim, ("us",)),
        ("missing", "moved", moved, ("us",)),
        ("extra", "elsewhere", moved, ("us",)),
    }
    assert {each.replica_id for each in done.findings} == {"1"}
    assert done.undecided == 0
    regions.call(us, "DEL", "s", "elsewhere", "victim", "moved")


def test_the_command_tells_by_its_exit_code(ours, other):
    for server in (ours, other):
        fill_at(server, "s", [1, 2, 3])
    words = ["audit", "--region-urls", json.dumps(urls(ours, other))]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0
    assert "converged: yes\nregions: eu, us\nstreams: 1\nentries: 3, 3\n" in done.stdout
    with talking(other) as client:
        client.xdel("s", "2-0")
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 1
    assert done.stdout.startswith("missing: s 2-0: us\nconverged: no\n")
    assert "entries: 3, 2\n" in done.stdout
    done = CliRunner().invoke(command, [*words, "--json"])
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["kind"], found["what"], found["regions"]) == ("missing", "2-0", ["us"])
    refused = CliRunner().invoke(command, ["audit", "--region-urls", "eu=redis://eu"])
    assert refused.exit_code == 2
    assert "is no JSON" in refused.stderr
