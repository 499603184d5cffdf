"""How the regions of a cluster on this machine stand: processes, links, effects that are missing.

All regions run here, so each is asked for itself. What is shown is not what one region knows of
the others, but what is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from anabranch.cli.cluster_files import ClusterFiles, Member
from anabranch.cli.cluster_servers import ask
from anabranch.cli.failures import Failed

_WORST_FIRST: Final = ("removed", "cut", "unreachable", "alive_via", "catching_up", "in_sync")

_ReplicaId = tuple[int, int]
"""Region and epoch."""


@dataclass(slots=True)
class RegionView:
    """One region: its process, and its answers."""

    member: Member
    pid: int | None
    state: str = "down"
    """``up``, ``down``, ``waiting`` (it takes no writes yet), or ``silent`` (no answer)."""
    waits_for: str = ""
    vector: dict[_ReplicaId, int] = field(default_factory=dict)
    """The effects that it has applied."""
    peers: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Its rows of ``AB.PEERS``, by region."""

    @property
    def answers(self) -> bool:
        """Whether its facts are known."""
        return self.state in {"up", "waiting"}

    def facts(self) -> dict[str, Any]:
        """What ``--json`` prints of the region."""
        member = self.member
        return {
            "name": member.name,
            "number": member.number,
            "port": member.port,
            "pid": self.pid,
            "state": self.state,
            "waits_for": self.waits_for,
            "others": {
                row["name"]: {
                    "state": row["state"],
                    "fault": row["fault"],
                    "cut_ms": row["cut-ms"],
                    "heard_ms_ago": row["last-row-ms"],
                    "lag_effects": row["lag-effects"],
                }
                for row in self.peers.values()
            },
        }


@dataclass(frozen=True, slots=True)
class LinkView:
    """The link between two regions, as reported by the side for which it is worse."""

    one: str
    other: str
    state: str
    age_ms: float | None
    """Since when it is cut, or since when nothing was received over a link that is not up."""
    fault: str

    def __str__(self) -> str:
        """The state of the link in words, as tables show it."""
        text = self.state
        if self.age_ms is not None:
            text += f" for {duration(self.age_ms)}"
        return f"{text} ({self.fault})" if self.fault not in {"", "pause"} else text

    def facts(self) -> dict[str, Any]:
        """What ``--json`` prints of the link."""
        return {
            "between": [self.one, self.other],
            "state": self.state,
            "age_ms": self.age_ms,
            "fault": self.fault,
        }


class ClusterView:
    """All regions at one moment."""

    def __init__(self, regions: list[RegionView]) -> None:
        self.regions = regions

    @classmethod
    def of(cls, files: ClusterFiles) -> ClusterView:
        """Ask every region that runs."""
        return cls([_look(files, member) for member in files.members])

    def links(self) -> list[LinkView]:
        """All pairs of regions of which at least one can be asked."""
        found = []
        for one, other in combinations(self.regions, 2):
            rows = [
                row
                for near, far in ((one, other), (other, one))
                if (row := near.peers.get(far.member.number)) is not None
            ]
            if rows:
                found.append(_link(one.member.name, other.member.name, rows))
        return found

    def missing(self) -> dict[str, dict[str, int]]:
        """How many effects of which region are missing in which other one, by names.

        A region that is down is counted by what the others have of it.
        """
        known: dict[_ReplicaId, int] = {}
        for region in self.regions:
            for replica_id, number in region.vector.items():
                known[replica_id] = max(number, known.get(replica_id, 0))
        return {
            holder.member.name: {
                writer.member.name: sum(
                    number - holder.vector.get(replica_id, 0)
                    for replica_id, number in known.items()
                    if replica_id[0] == writer.member.number
                )
                for writer in self.regions
                if writer is not holder
            }
            for holder in self.regions
            if holder.answers
        }

    def facts(self) -> dict[str, Any]:
        """What ``--json`` prints of all regions and links."""
        return {
            "regions": [each.facts() for each in self.regions],
            "links": [each.facts() for each in self.links()],
            "missing": self.missing(),
        }

    def lines(self) -> list[str]:
        """The tables of regions and of links, line by line."""
        rows = [["region", "number", "port", "pid", "state"]]
        for region in self.regions:
            member = region.member
            state = region.state
            if region.waits_for:
                state = f"waits for {region.waits_for}"
            rows.append(
                [member.name, str(member.number), str(member.port), str(region.pid or "-"), state]
            )
        lines = table(rows)
        links = self.links()
        if links:
            rows = [
                ["link", "state"],
                *([f"{each.one} - {each.other}", str(each)] for each in links),
            ]
            lines += ["", *table(rows)]
        return [*lines, *self._missing_lines()]

    def _missing_lines(self) -> list[str]:
        missing = self.missing()
        if len(self.regions) < 2 or not missing:
            return []
        if not any(any(row.values()) for row in missing.values()):
            return ["", "no effects are missing anywhere"]
        names = [each.member.name for each in self.regions]
        rows = [["effects missing", *(f"of {name}" for name in names)]]
        for holder, row in missing.items():
            rows.append([f"at {holder}", *(str(row.get(name, "-")) for name in names)])
        return ["", *table(rows)]


def _look(files: ClusterFiles, member: Member) -> RegionView:
    view = RegionView(member, files.pid(member))
    if view.pid is None:
        return view
    view.state = "silent"
    try:
        info = ask(member, "INFO", "replication")
        facts = ask(member, "AB.INFO")
        peers = ask(member, "AB.PEERS")
    except Failed:
        return view
    view.waits_for = str(info.get("newcomer_waits_for", ""))
    view.state = "waiting" if view.waits_for else "up"
    view.vector = {(region, epoch): number for region, epoch, number in facts[b"vector"]}
    for row in peers:
        view.peers[row[b"region"]] = {
            name.decode(): value.decode() if isinstance(value, bytes) else value
            for name, value in row.items()
        }
    return view


def _link(one: str, other: str, rows: list[dict[str, Any]]) -> LinkView:
    worst = min(rows, key=lambda row: _WORST_FIRST.index(row["state"]))
    state: str = worst["state"]
    age_ms = None
    if state == "cut":
        age_ms = max(row["cut-ms"] for row in rows if row["cut-ms"] is not None)
    elif state in {"unreachable", "alive_via"}:
        age_ms = worst["last-row-ms"]
    return LinkView(one, other, state, age_ms, next((r["fault"] for r in rows if r["fault"]), ""))


def duration(ms: float) -> str:
    """A span of time for people: ``0.4 s``, ``12 s``, ``3 min``."""
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def table(rows: list[list[str]]) -> list[str]:
    """Lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
