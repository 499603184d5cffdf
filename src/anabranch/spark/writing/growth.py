"""Shows the growth of streams, as the progress of a write that Spark does at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from anabranch.errors import AnabranchError
from anabranch.spark.connection.client import connect, stream_key
from anabranch.spark.options import ServerOptions


@contextmanager
def growth_reported(
    options: ServerOptions,
    streams: Sequence[str],
    report: Callable[[int], None],
    interval_s: float = 2.0,
) -> Iterator[None]:
    """While the block runs, and once at its end, report by how much the streams have grown.

    `report` is called in a separate thread when the growth changes. If the server does not answer,
    nothing is reported. Entries of other writers count, too.
    """
    done = threading.Event()

    def watch(before: int) -> None:
        reported, over = 0, False
        while not over:
            over = done.wait(interval_s)
            now = _entries(options, streams)
            if now is not None and now - before > reported:
                reported = now - before
                report(reported)

    before = _entries(options, streams)
    if before is None:
        yield
        return
    watcher = threading.Thread(target=watch, args=(before,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _entries(options: ServerOptions, streams: Sequence[str]) -> int | None:
    try:
        with connect(replace(options, retries=0)) as client:
            counts: list[int] = client.ask([("XLEN", stream_key(each)) for each in streams])
    except AnabranchError:
        return None
    return sum(counts)
