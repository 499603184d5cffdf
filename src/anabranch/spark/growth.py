"""How many entries streams got since: progress of a write that Spark does in one go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from anabranch.errors import AnabranchError
from anabranch.spark.client import connect, stream_key
from anabranch.spark.options import ServerOptions

__all__ = ["growth_told"]


@contextmanager
def growth_told(
    options: ServerOptions,
    streams: Sequence[str],
    report: Callable[[int], None],
    interval_s: float = 2.0,
) -> Iterator[None]:
    """While the block runs, tell by how much the streams have grown, and once at its end.

    `report` is called on a thread of its own when there is news. Nothing depends on it: where the
    server does not say, nothing is told. What others write meanwhile counts, too.
    """
    before = _entries(options, streams)
    if before is None:
        yield
        return
    done = threading.Event()
    told = 0

    def look() -> None:
        nonlocal told
        now = _entries(options, streams)
        if now is not None and now - before > told:
            told = now - before
            report(told)

    def watch() -> None:
        while not done.wait(interval_s):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        look()


def _entries(options: ServerOptions, streams: Sequence[str]) -> int | None:
    try:
        with connect(replace(options, retries=0)) as client:
            counts: list[int] = client.ask([("XLEN", stream_key(each)) for each in streams])
    except AnabranchError:
        return None
    return sum(counts)
