"""Gives other regions the data that only a removed region had.

Entries keep their IDs. These are below present IDs, so a region that writes cannot add them: within
a replica ID entry IDs ascend. A new epoch of the removed region has written nothing yet. So a
region joins in such an epoch only for this: it adds the entries of every key in the order of their
IDs, waits until they are on the disk of a member, and is removed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.cli.address import Address
from anabranch.cli.failures import Failed
from anabranch.cli.inspect_files import in_use
from anabranch.cli.progress import Progress
from anabranch.cli.transfer.client import connect, fields_of
from anabranch.config.load import load
from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, region_of, replica_id_of
from anabranch.keyspace.version_vectors import covers
from anabranch.node.identity import identity_in, set_back_noted
from anabranch.oplog.recovery import recover
from anabranch.scripting import new_machine
from anabranch.server.app import Server
from anabranch.server.disk import Directory
from anabranch.server.logs import close_logs, open_logs
from anabranch.server.stop import orderly_stop
from anabranch.server.wings import Wings
from anabranch.stream.numbering import spans_behind
from anabranch.stream.stream import Stream
from anabranch.web import new_web

_DATABASES: Final = 1024
_NOTE: Final = "salvaged"
_RUN_ENTRIES: Final = 1000
_LOOK_S: Final = 0.05
_LOG_LINES: Final = 3


class LostEntry(NamedTuple):
    """An entry that only the removed region has, in the form of its key."""

    entry_id: int
    fragment: bytes
    weight: int


Key = tuple[int, bytes]
"""Database and key."""


@dataclass(slots=True)
class Lost:
    """Effects and entries that a directory has and the other regions lack."""

    region: int
    name: str
    effects: dict[int, int]
    """The count of effects of each replica ID."""
    entries: dict[Key, list[LostEntry]]
    """Live entries by key, ascending by ID."""


class RemainingRegions:
    """The remaining regions, as one of them reports them. Raises :class:`redis.RedisError`."""

    def __init__(self, address: Address) -> None:
        self._client = connect(address, 0)
        answer = fields_of(self._client.execute_command("AB.INFO"))
        self.vector = {replica_id_of(region, epoch): n for region, epoch, n in answer[b"vector"]}
        self.databases = int(self._client.config_get("databases").get("databases", 16))
        rows = [fields_of(row) for row in self._client.execute_command("AB.REGION", "LIST")]
        self._states = {row[b"region"]: row[b"state"].decode() for row in rows}
        self.region = next((n for n, state in self._states.items() if state == "myself"), 0)
        self.address = next(
            (row[b"address"].decode() for row in rows if row[b"region"] == self.region), ""
        )

    def state(self, region: int) -> str:
        """The row of a region in AB.REGION LIST; empty if it was never a member."""
        found: str = self._states.get(region, "")
        return found

    def remove(self, region: int) -> None:
        """Remove a connected region from the cluster."""
        self._client.execute_command("AB.REGION", "REMOVE", region)


# -- what there is ------------------------------------------------------------------------------


def noted(directory: Directory) -> str | None:
    """When the directory was salvaged, or None."""
    note = directory.path / _NOTE
    return note.read_text(errors="replace").strip() if note.exists() else None


def remember_done(directory: Directory) -> None:
    """Record in the directory that nothing is left to do."""
    (directory.path / _NOTE).write_text(time.strftime("%Y-%m-%d %H:%M:%S UTC\n", time.gmtime()))


def lost_in(directory: Directory, cluster: RemainingRegions | None) -> Lost:
    """Effects that the directory has and the cluster lacks; without one, unconfirmed effects."""
    if in_use(directory):
        raise Failed(f"a server uses {directory.path}: stop it first")
    identity = identity_in(directory)
    if identity is None:
        raise Failed(f"{directory.path} is not that of a region of a cluster")
    set_back = set_back_noted(directory)
    region = identity.region_id
    if cluster is not None and cluster.state(region) != "removed":
        raise Failed(
            f"region {region} is no removed region there: what it has is brought by starting it, "
            f"or, if it cannot be started, after AB.REGION REMOVE {region} FORCE"
        )
    replica = Replica(replica_id_of(region, 0), lambda: (0, 0))
    keyspace = _recovered(directory, replica)
    seen: dict[int, int] = dict(replica.watermark if cluster is None else cluster.vector)
    if set_back is not None:  # behind that the numbers mean other effects there
        seen.update(set_back[1])
    effects = {
        replica_id: number - seen.get(replica_id, 0)
        for replica_id, number in replica.vector.items()
        if number > seen.get(replica_id, 0)
    }
    entries: dict[Key, list[LostEntry]] = {}
    for database in keyspace.databases:
        for key, value in database.values.items():
            if isinstance(value, Stream):
                found = list(_behind(value, seen))
                if found:
                    entries[database.index, key] = found
    return Lost(region, identity.region_name, effects, entries)


def _recovered(directory: Directory, replica: Replica) -> Keyspace:
    """The contents of a region's directory; fills ``replica``, raises what recovery raises."""
    keyspace = Keyspace(_DATABASES, replica)
    with Progress("recovering", None) as progress:
        for report in recover(directory, keyspace):
            progress.total = report.bytes_total
            progress.update(report.bytes_done)
    return keyspace


def _behind(stream: Stream, seen: Mapping[int, int]) -> Iterator[LostEntry]:
    for _, (block, low, high) in spans_behind(stream, seen):
        share = block.weight // block.slots
        for entry_id, data in zip(block.ids[low:high], block.fragments(low, high), strict=True):
            yield LostEntry(entry_id, data, share)


# -- bringing it back ---------------------------------------------------------------------------


def bring_back(
    lost: Lost, cluster: RemainingRegions, directives: Sequence[str], patience_s: float
) -> int:
    """Add the entries whose IDs do not exist there; returns how many."""
    if not lost.entries:
        return 0
    with tempfile.TemporaryDirectory(prefix="anabranch-salvage-") as scratch:
        port = _free_port()
        loaded = load(
            [
                *("--region-id", str(lost.region), "--region-name", lost.name),
                *("--port", "0", "--unixsocket", f"{scratch}/socket", "--dir", scratch),
                *("--gossip-port", str(port), "--join", cluster.address),
                *("--databases", str(cluster.databases), "--logfile", f"{scratch}/log"),
                *directives,
            ],
            os.environ,
        )
        open_logs(loaded.settings)
        try:
            server = Server(loaded.settings, Wings(new_web, new_machine))
            return asyncio.run(_live(server, lost, cluster, patience_s))
        except TimeoutError as problem:
            lines = Path(scratch, "log").read_text(errors="replace").splitlines()
            last = "\n".join(lines[-_LOG_LINES:])
            raise Failed(f"not within {patience_s:g} s: {problem}\n{last}") from None
        finally:
            close_logs()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _live(server: Server, lost: Lost, cluster: RemainingRegions, patience_s: float) -> int:
    """Join, catch up, add the entries, wait until they are on a disk, leave."""
    assert server.links is not None
    local = server.links.exchange.local
    added = done = 0
    try:
        await server.start()
        await _until(
            lambda: bool(local.replica.cluster_id) and covers(local.vector, cluster.vector),
            "the region joins and catches up",
            patience_s,
        )
        server.region.context.set_time(server.clock.now_us() // 1000)
        with Progress("adding", sum(map(len, lost.entries.values()))) as progress:
            for place, entries in lost.entries.items():
                for chunk in _chunks(entries):
                    missing = _missing(server, place, chunk)
                    if missing:
                        _add(server, place, missing)
                        added += len(missing)
                    done += len(chunk)
                    progress.update(done)
                    await _until(
                        lambda: _is_safe(server, cluster.region),
                        "a member has it on disk",
                        patience_s,
                    )
        await asyncio.to_thread(cluster.remove, lost.region)
        return added
    finally:
        await orderly_stop(server, patient=False)
        server.close()


def _chunks(entries: list[LostEntry]) -> Iterator[list[LostEntry]]:
    """Entries in groups; of several with one ID the first, because IDs of a replica ID ascend."""
    distinct = [next(group) for _, group in groupby(entries, key=lambda each: each.entry_id)]
    for at in range(0, len(distinct), _RUN_ENTRIES):
        yield distinct[at : at + _RUN_ENTRIES]


def _missing(server: Server, place: Key, entries: Iterable[LostEntry]) -> list[LostEntry]:
    """The entries whose ID does not exist in the key: an earlier attempt may have added some."""
    db, key = place
    stream = server.region.keyspace.databases[db].values.get(key)
    if not isinstance(stream, Stream):
        return list(entries)
    return [each for each in entries if not any(True for _ in stream.find_all(each.entry_id))]


def _add(server: Server, place: Key, entries: list[LostEntry]) -> None:
    node = server.settings.stream_node_max_entries or _RUN_ENTRIES
    fragments = [each.fragment for each in entries]
    server.region.effects.emit(
        kinds.AddRun(
            *place,
            [each.entry_id for each in entries],
            b"".join(fragments),
            list(map(len, fragments)),
            [each.weight for each in entries],
            list(range(0, len(entries), node)),
        )
    )
    server.node.end_turn()


def _is_safe(server: Server, region: int) -> bool:
    """Whether a member has all of these effects on its disk."""
    assert server.links is not None
    exchange = server.links.exchange
    if region_of(exchange.replica.own) == region:
        return False
    return any(each.region == region and each.durable_lag_effects == 0 for each in exchange.peers())


async def _until(it_is_so: Callable[[], bool], what: str, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not it_is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        await asyncio.sleep(_LOOK_S)
