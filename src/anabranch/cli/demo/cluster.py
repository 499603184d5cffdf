"""The regions of a demonstration: processes in a directory of their own, and the links between."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import redis

from anabranch.cli.cluster_files import ClusterFiles, Member, with_pages
from anabranch.cli.cluster_servers import (
    ask,
    connect,
    cut,
    end,
    require_free_ports,
    restore_links,
    start,
    wait_entered,
)
from anabranch.cli.cluster_view import view_of
from anabranch.cli.demo.story import Late
from anabranch.cli.failures import Failed
from anabranch.cli.interrupts import pause
from anabranch.config.settings import GOSSIP_PORT_ABOVE

NAMES: Final = ("eu", "us", "ap", "sa", "af")
STREAM: Final = "orders"
"""The stream that every region writes."""

FIRST_PORT: Final = 7379
PORT_TRIES: Final = 20
ANSWER_S: Final = 10.0
TEXTS: Final[dict[str, Any]] = {"protocol": 2, "decode_responses": True}
"""The form of replies to the demonstration."""

SETTLE_S: Final = 60.0
POLL_S: Final = 0.05
PAGE_ENTRIES: Final = 5000


class DemoCluster:
    """Several regions on this machine, and what they contain."""

    def __init__(
        self, count: int, delay_ms: float, *, with_page: bool, port: int | None = None
    ) -> None:
        """``delay_ms`` is added to the links, in each direction.

        ``port``: that of the first region, the others follow; None: free ones are looked for.
        Raises :class:`Failed` if there are none.
        """
        members = _members(count, port, with_page=with_page)
        self.directory = Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
        self.delay_ms = delay_ms
        self.files = ClusterFiles(self.directory, members)
        self._processes: dict[Member, subprocess.Popen[bytes]] = {}
        self._clients: dict[Member, redis.Redis] = {}

    @property
    def members(self) -> list[Member]:
        """All regions; the first one founds the cluster."""
        return self.files.members

    def start(self) -> None:
        """Start all regions, and wait until each has the data of the others."""
        self.files.save()
        for member in self.members:
            start(self.files, member, self._processes)
        wait_entered(self.files, self._processes, len(self.members))
        self.slow_links()

    def close(self) -> None:
        """End and remove everything at once: nothing needs an orderly stop."""
        for client in self._clients.values():
            client.close()
        end(self.files, self.members, self._processes, at_once=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- links and processes ------------------------------------------------------------------

    def slow_links(self) -> None:
        """Delay all links, if the demo has a delay."""
        if self.delay_ms:
            for one, other in combinations(self.members, 2):
                for near, far in ((one, other), (other, one)):
                    ask(
                        near,
                        "AB.LINK",
                        far.number,
                        "DELAY",
                        f"{self.delay_ms:g}",
                        f"{self.delay_ms / 10:g}",
                    )

    def isolate(self, member: Member) -> None:
        """Cut all links of a region."""
        for other in self.files.others(member):
            cut(self.files, member, other)

    def heal(self) -> None:
        """Restore all links, with their former delay."""
        restore_links(self.files)
        self.slow_links()

    def kill(self, member: Member) -> None:
        """End the process of a region as ``kill -9`` does."""
        if (client := self._clients.pop(member, None)) is not None:
            client.close()
        end(self.files, [member], self._processes, at_once=True)

    def restart(self, member: Member) -> float:
        """Start a region that was killed; returns the seconds until it answered."""
        began = time.monotonic()
        start(self.files, member, self._processes)
        wait_entered(self.files, {member: self._processes[member]}, 1)
        return time.monotonic() - began

    # -- asking -------------------------------------------------------------------------------

    def client(self, member: Member) -> redis.Redis:
        """The connection that the demonstration itself uses."""
        if member not in self._clients:
            self._clients[member] = connect(member, ANSWER_S, **TEXTS)
        return self._clients[member]

    def do(self, member: Member, *words: str | float) -> Any:
        """Run a command; returns its reply with texts."""
        return self.client(member).execute_command(*words)

    def entries(self, member: Member) -> dict[str, dict[str, str]]:
        """The whole stream of a region by ID, read with XRANGE."""
        found: dict[str, dict[str, str]] = {}
        begin = "-"
        while True:
            rows: Any = self.client(member).xrange(STREAM, begin, "+", count=PAGE_ENTRIES)
            found.update(dict(rows))
            if len(rows) < PAGE_ENTRIES:
                return found
            begin = f"({rows[-1][0]}"

    # -- waiting ------------------------------------------------------------------------------

    def until(self, is_so: Callable[[], object], what: str, seconds: float = SETTLE_S) -> None:
        """Repeat a question until the answer is true; raises :class:`Late`."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise Late(f"not within {seconds:.0f} s: {what}")
            pause(POLL_S)

    def spread(self) -> float:
        """Wait until all regions have what some region has now; returns the seconds."""
        began = time.monotonic()
        tokens = {member: self.do(member, "AB.TOKEN") for member in self.members}
        for source, token in tokens.items():
            for member in self.members:
                if member is not source:
                    self.until(
                        lambda m=member, t=token: self.do(m, "AB.WAITFOR", t, 1000),  # type: ignore[misc]
                        f"region {member.name} has what {source.name} has",
                    )
        return time.monotonic() - began

    def settle(self) -> None:
        """Wait until all regions have applied the same effects; no client may write meanwhile."""

        def agree() -> bool:
            missing = view_of(self.files)["missing"]
            is_whole = len(missing) == len(self.members)
            return is_whole and not any(any(row.values()) for row in missing.values())

        self.until(agree, "all regions have applied the same effects")


def _members(count: int, port: int | None, *, with_page: bool) -> list[Member]:
    """Regions on free ports; the lowest free ones, so that they are easy to guess."""
    problem: Failed | None = None
    for attempt in range(PORT_TRIES if port is None else 1):
        first = (port or FIRST_PORT) + 100 * attempt
        members = [
            Member(index + 1, name, first + index, first + index + GOSSIP_PORT_ABOVE)
            for index, name in enumerate(NAMES[:count])
        ]
        try:
            require_free_ports(members)
        except Failed as taken:
            problem = taken
        else:
            return with_pages(members, None if with_page else 0)
    assert problem is not None
    raise problem


def names(members: Iterable[Member]) -> str:
    """Names in a sentence: ``us and ap``."""
    *most, last = [member.name for member in members]
    return f"{', '.join(most)} and {last}" if most else last
