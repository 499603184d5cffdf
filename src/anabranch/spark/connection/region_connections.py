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
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.spark.connection.client import ServerClient, connect, facts_of
from anabranch.spark.options import OptionError, ServerOptions
from anabranch.spark.reading.offsets import LogBounds

_AT_ONCE: Final = 500  # streams asked for in one command


class ReplicaError(AnabranchError):
    """The regions cannot be compared; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class RegionConnection:
    """The connection to one region's server."""

    name: str
    number: int
    """The region's number; 0 on a server without regions."""
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

        Raises `ServerRefused`.
        """
        found: list[Mapping[str, LogBounds]] = []
        for at in range(0, len(streams), _AT_ONCE):
            for logs in self.client.logs(streams[at : at + _AT_ONCE]):
                is_there = logs and not any(log.is_former for log in logs.values())
                found.append(logs if logs and is_there else {})
        return found


@contextmanager
def connected(servers: Mapping[str, ServerOptions]) -> Iterator[list[RegionConnection]]:
    """Connections to servers, which have names.

    Raises `OptionError`, `ReplicaError`, `ServerRefused` and `ServerUnreachable`.
    """
    with ExitStack() as stack:
        found: list[RegionConnection] = []
        for name, options in servers.items():
            client = stack.enter_context(connect(options))
            if not client.has_bulk:
                raise ReplicaError(f"the server at {client.address} is no Anabranch server")
            number = facts_of(client.command("AB.INFO", repeatable=True))["region"]
            same = [each.name for each in found if number and each.number == number]
            if same:
                raise OptionError(
                    f"{same[0]}, {name} are the same region: give the address of each region once"
                )
            found.append(RegionConnection(name, number, client))
        yield found


def streams_of(
    regions: Sequence[RegionConnection], wanted: Sequence[str], pattern: str | None
) -> list[str]:
    """The keys to look at: those that are named, else those of a pattern, in any region."""
    if wanted:
        return list(dict.fromkeys(wanted))
    return sorted(set().union(*(each.client.streams(pattern or "*") for each in regions)))


def wait_for_each_other(regions: Sequence[RegionConnection], seconds: float) -> list[list[bool]]:
    """Wait until all regions have applied what each of them has now, at most `seconds`.

    ``result[a][b]``: whether a has applied everything that b has.
    """
    tokens = [each.client.command("AB.TOKEN", repeatable=True) for each in regions]
    deadline = time.monotonic() + seconds
    return [[each.has(token, deadline) for token in tokens] for each in regions]
