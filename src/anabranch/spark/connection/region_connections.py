"""Connections to the servers of several regions, and the comparison of their progress.

An entry that one region has and another lacks may still be on its way. Tokens decide that: a token
is the version vector of a region, and a region that has waited for it (AB.WAITFOR) has applied the
same effects. So an entry that was missing *before* a token was taken, and that a region still has
after it waited for this token, is missing permanently.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Self

from anabranch.errors import AnabranchError
from anabranch.spark.connection.client import ServerClient, connect, facts_of
from anabranch.spark.options import OptionError, ServerOptions
from anabranch.spark.reading.offsets import LogBounds

_AT_ONCE: Final = 500  # streams asked for in one command


class ReplicaError(AnabranchError):
    """The regions cannot be compared; the text gives the reason."""


@dataclass(slots=True)
class RegionConnection:
    """The connection of the driver to one region's server."""

    name: str
    number: int
    """The region's number; 0 on a server without regions."""
    options: ServerOptions
    client: ServerClient

    def has(self, token: bytes, deadline: float) -> bool:
        """Wait until everything of a token is applied; `deadline` is of the monotonic clock."""
        left_ms = max(round((deadline - time.monotonic()) * 1000), 1)  # 0 would mean no limit
        reply = self.client.command(
            *("AB.WAITFOR", token, left_ms), repeatable=True, wait_ms=left_ms
        )
        return reply is not None

    def logs(self, streams: Sequence[str]) -> list[Mapping[str, LogBounds]]:
        """For each stream its logs by replica ID, none where it does not exist.

        `until` is behind the first entry, or at the end where only one is left. Raises
        `ServerRefused`.
        """
        found: list[Mapping[str, LogBounds]] = []
        for at in range(0, len(streams), _AT_ONCE):
            some = streams[at : at + _AT_ONCE]
            # With a limit of 1 each log shows the end of its first entry.
            for logs in self.client.logs(some, [{}] * len(some)):
                is_there = logs and not any(log.is_former for log in logs.values())
                found.append(logs if logs and is_there else {})
        return found


@dataclass(frozen=True, slots=True)
class RegionConnections:
    """Connections to all compared regions."""

    all: Sequence[RegionConnection]

    @classmethod
    @contextmanager
    def connected(cls, servers: Mapping[str, ServerOptions]) -> Iterator[Self]:
        """Connect to servers by name.

        Raises `OptionError`, `ReplicaError`, `ServerRefused` and `ServerUnreachable`.
        """
        with ExitStack() as stack:
            found = []
            for name, options in servers.items():
                client = stack.enter_context(connect(options))
                if not client.has_bulk:
                    raise ReplicaError(f"the server at {client.address} is no Anabranch server")
                number = facts_of(client.command("AB.INFO", repeatable=True))["region"]
                found.append(RegionConnection(name, number, options, client))
            _check_distinct(found)
            yield cls(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the given order."""
        return tuple(each.name for each in self.all)

    def streams(self, wanted: Sequence[str], pattern: str | None) -> list[str]:
        """The keys to look at: those that are named, else those of a pattern, in any region."""
        if wanted:
            return list(dict.fromkeys(wanted))
        return sorted(set().union(*(each.client.streams(pattern or "*") for each in self.all)))

    def wait_for_each_other(self, seconds: float) -> list[list[bool]]:
        """Wait until all regions have applied what each of them has now, at most `seconds`.

        ``result[a][b]``: whether a has applied everything that b has.
        """
        tokens = [each.client.command("AB.TOKEN", repeatable=True) for each in self.all]
        deadline = time.monotonic() + seconds
        return [[each.has(token, deadline) for token in tokens] for each in self.all]


def _check_distinct(replicas: Sequence[RegionConnection]) -> None:
    numbers = [each.number for each in replicas]
    twice = {number for number in numbers if number and numbers.count(number) > 1}
    if twice:
        names = ", ".join(each.name for each in replicas if each.number in twice)
        raise OptionError(f"{names} are the same region: give the address of each region once")
