"""A user with exactly the permissions that the guide lists, and with each of them taken away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.spark.jobs.archive import archive
from anabranch.spark.jobs.audit import audit
from tests.spark.test_sink import values
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("eu", "us")


def listed(what: str) -> list[str]:
    """The rules that the guide lists first for this purpose."""
    guide = (REPOSITORY / "docs" / "spark.md").read_text()
    (row,) = (each for each in guide.splitlines() if each.startswith(f"| {what} |"))
    found = re.search(r"`(\+[^`]*)`", row.removeprefix(f"| {what} |"))
    assert found is not None
    return found[1].split()


class User:
    """Of all regions; may use one stream as `source` and another one as `target`."""

    def __init__(self, regions: RegionProcesses) -> None:
        self._regions = regions
        places = zip(NAMES, regions.servers, strict=True)
        self.urls = {name: f"redis://lim:pw@127.0.0.1:{each.port}" for name, each in places}
        self.options = {"url": self.urls["eu"]}

    def may(self, *rules: str) -> None:
        """This and nothing else. Old connections end, as what they know was allowed before."""
        for server in self._regions.servers:
            self._regions.call(server, "ACL", "DELUSER", "lim")
            rest = ("on", ">pw", "~source", "~target", *rules)
            self._regions.call(server, "ACL", "SETUSER", "lim", *rest)


@pytest.fixture
def user(regions: RegionProcesses) -> Iterator[User]:
    """Two regions with something in them."""
    one, other = regions.servers
    for number in range(5):
        regions.call(one, "XADD", "source", "*", "n", str(number))
        regions.call(other, "XADD", "source", "IDMP", "p", str(number), "*", "n", str(5 + number))
    regions.call(one, "XGROUP", "CREATE", "source", "g", "0")
    words = ("GROUP", "g", "c", "COUNT", "3", "STREAMS", "source", ">")
    regions.call(one, "XREADGROUP", *words)
    wait_until(regions.converged, "all have applied the same", 300)
    yield User(regions)
    for server in regions.servers:
        regions.call(server, "ACL", "DELUSER", "lim")


def check(
    user: User, rules: list[str], job: Callable[[], object], taken: list[str] | None = None
) -> None:
    """It works with these rules, and says which one is missing if one of `taken` is."""
    user.may(*rules)
    job()
    for missing in taken or rules:
        user.may(*(each for each in rules if each != missing))
        told = rf"ACL SETUSER with {re.escape(missing)}(\||\b)"
        with pytest.raises(Exception, match=told):
            job()


def test_reading_and_archiving(user: User, tmp_path: Path) -> None:
    numbers = count()

    def job() -> None:
        done = archive(
            None, tmp_path / str(next(numbers)), options={**user.options, "subscribe": "source"}
        )
        assert done.entries == 10

    check(user, listed("read"), job)


def test_auditing(user: User) -> None:
    def job() -> None:
        done = audit(
            None, region_urls=user.urls, streams=["source"], options=user.options, settle_s=60
        )
        assert (done.converged, done.entries) == (True, (10, 10))

    check(user, listed("`audit`"), job)


def test_reading_and_writing_exactly_once(
    user: User, regions: RegionProcesses, spark: SparkSession, tmp_path: Path
) -> None:
    numbers = count()

    def job() -> None:
        regions.call(regions.servers[0], "DEL", "target")
        reader = spark.readStream.format("anabranch").options(**user.options)
        table = reader.option("subscribe", "source").option("startingOffsets", "earliest")
        writer = table.schema("n bigint").load().writeStream.format("anabranch")
        writer = writer.options(**user.options, stream="target")
        place = str(tmp_path / str(next(numbers)))
        writer = writer.option("checkpointLocation", place).trigger(availableNow=True)
        writer.start().awaitTermination()

    streaming = listed("write from a streaming query")
    rules = {*listed("read"), *listed("write by `ledger`"), *streaming}
    # What other writes need is taken away in test_refusals.py.
    check(user, sorted(rules), job, taken=streaming)
    user.may(*rules)
    job()
    assert sorted(values(regions.servers[0], "target")) == list(range(10))
