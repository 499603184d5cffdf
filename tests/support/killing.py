"""A server that is killed while a client is at work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import redis

from tests.support.servers import AnabranchServer

__all__ = ["killing"]


@contextlib.contextmanager
def killing(server: AnabranchServer, steps: int) -> Iterator[Callable[[], None]]:
    """What is given is called at each step; after so many the server is killed beside the rest."""
    left = iter(range(steps))
    may_go = threading.Event()

    def kill() -> None:
        may_go.wait()
        server.kill()

    def step() -> None:
        if next(left, None) is None:
            may_go.set()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with contextlib.suppress(redis.ConnectionError):
            yield step
    finally:
        may_go.set()
        killer.join()
