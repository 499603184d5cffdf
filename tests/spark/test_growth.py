"""How a write that is one step for Spark tells how far it is."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from anabranch.spark.jobs.replay import growth_reported
from anabranch.spark.options import ServerOptions
from tests.spark.reading import fill, talking, url
from tests.support.servers import ServerProcess


def told(server: ServerProcess, **more: str) -> ServerOptions:
    return replace(ServerOptions(url=url(server)), **more)


def test_streams_that_grow_are_told_while_they_do(server: ServerProcess) -> None:
    fill(server, "s", 3)  # what was there does not count
    seen: list[int] = []
    heard = threading.Condition()

    def report(grown: int) -> None:
        with heard:
            seen.append(grown)
            heard.notify_all()

    with growth_reported(told(server), ["s", "t"], report, interval_s=0.01):
        for count, reached in ((5, 5), (2, 7)):
            fill(server, "t", count)
            with heard:
                assert heard.wait_for(lambda wanted=reached: wanted in seen, 60)
    assert seen == sorted(set(seen))


def test_the_end_is_told_however_short_the_way(ours: ServerProcess) -> None:
    seen: list[int] = []
    with growth_reported(told(ours), ["s"], seen.append, interval_s=3600):
        fill(ours, "s", 4)
    assert seen == [4]
    with growth_reported(told(ours), ["s"], seen.append, interval_s=3600):
        pass
    assert seen == [4]


def test_a_write_goes_on_where_nothing_can_be_told(ours: ServerProcess) -> None:
    seen: list[int] = []
    nowhere = ServerOptions(url="redis://127.0.0.1:1", connect_timeout_ms=500)
    with talking(ours) as client:
        client.execute_command("ACL", "SETUSER", "lim", "reset", "on", ">pw", "~s", "+xlen")
        try:
            limited = told(ours, username="lim", password="pw")
            for options in (limited, nowhere):
                with growth_reported(options, ["s", "t"], seen.append, interval_s=0.01):
                    fill(ours, "s", 1)
        finally:
            client.execute_command("ACL", "DELUSER", "lim")
    assert seen == []
    with pytest.raises(ZeroDivisionError), growth_reported(told(ours), ["s"], seen.append):
        raise ZeroDivisionError
