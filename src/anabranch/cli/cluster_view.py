"""How the regions of a cluster on this machine stand: processes, links, effects that are missing.

All regions run here, so each is asked for itself. What is shown is not what one region knows of
the others, but what is.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

from anabranch.cli.cluster_files import ClusterFiles, Member
from anabranch.cli.cluster_servers import ask
from anabranch.cli.failures import Failed
from anabranch.cli.terminal import age, table

_WORST_FIRST: Final = ("removed", "cut", "unreachable", "alive_via", "catching_up", "in_sync")

_Vector = dict[tuple[int, int], int]
"""The effects that a region has applied, by region and epoch."""


def view_of(files: ClusterFiles) -> dict[str, Any]:
    """All ``regions``, ``links`` and ``missing`` effects at this moment, as ``--json`` prints them.

    A region is ``up``, ``down``, ``waiting`` (it takes no writes yet) or ``silent`` (no answer). Of
    links, those are listed of which at least one end can be asked. ``missing`` says how many
    effects a region lacks of each other one; one that is down is counted by what others have of it.
    """
    vectors: dict[str, _Vector] = {}
    regions = [_region(files, member, vectors) for member in files.members]
    links = []
    for one, other in combinations(regions, 2):
        ends = ((one, other["name"]), (other, one["name"]))
        seen = [near["others"][name] for near, name in ends if name in near["others"]]
        if seen:
            links.append(_link([one["name"], other["name"]], seen))
    known: _Vector = {}
    for vector in vectors.values():
        for replica_id, number in vector.items():
            known[replica_id] = max(number, known.get(replica_id, 0))
    missing = {
        holder: {
            writer.name: sum(
                number - vector.get(replica_id, 0)
                for replica_id, number in known.items()
                if replica_id[0] == writer.number
            )
            for writer in files.members
            if writer.name != holder
        }
        for holder, vector in vectors.items()
    }
    return {"regions": regions, "links": links, "missing": missing}


def _region(files: ClusterFiles, member: Member, vectors: dict[str, _Vector]) -> dict[str, Any]:
    """One region, and its view of the others; its vector goes into ``vectors``."""
    pid = files.pid(member)
    found: dict[str, Any] = {
        "name": member.name,
        "number": member.number,
        "port": member.port,
        "pid": pid,
        "state": "down" if pid is None else "silent",
        "waits_for": "",
        "others": {},
    }
    if pid is None:
        return found
    try:
        info = ask(member, "INFO", "replication")
        facts = ask(member, "AB.INFO")
        peers = ask(member, "AB.PEERS")
    except Failed:
        return found
    found["waits_for"] = str(info.get("newcomer_waits_for", ""))
    found["state"] = "waiting" if found["waits_for"] else "up"
    vectors[member.name] = {(region, epoch): number for region, epoch, number in facts[b"vector"]}
    names = {each.number: each.name for each in files.members}
    for row in peers:
        found["others"][names.get(row[b"region"], row[b"name"].decode())] = {
            "state": row[b"state"].decode(),
            "fault": row[b"fault"].decode(),
            "cut_ms": row[b"cut-ms"],
            "heard_ms_ago": row[b"last-row-ms"],
            "lag_effects": row[b"lag-effects"],
        }
    return found


def _link(names: list[str], seen: list[dict[str, Any]]) -> dict[str, Any]:
    """A link, as the end for which it is worse reports it.

    ``age_ms``: since when it is cut, or since when nothing was received over one that is not up.
    """
    worst = min(seen, key=lambda row: _WORST_FIRST.index(row["state"]))
    age_ms = None
    if worst["state"] == "cut":
        age_ms = max(row["cut_ms"] for row in seen if row["cut_ms"] is not None)
    elif worst["state"] in {"unreachable", "alive_via"}:
        age_ms = worst["heard_ms_ago"]
    fault = next((row["fault"] for row in seen if row["fault"]), "")
    return {"between": names, "state": worst["state"], "age_ms": age_ms, "fault": fault}


def lines_of(view: dict[str, Any]) -> list[str]:
    """The tables of regions, of links and of missing effects, line by line."""
    rows = [["region", "number", "port", "pid", "state"]]
    for each in view["regions"]:
        state = f"waits for {each['waits_for']}" if each["waits_for"] else each["state"]
        figures = [str(each[name] or "-") for name in ("number", "port", "pid")]
        rows.append([each["name"], *figures, state])
    lines = table(rows)
    if view["links"]:
        rows = [[" - ".join(each["between"]), _state(each)] for each in view["links"]]
        lines += ["", *table([["link", "state"], *rows])]
    names = [each["name"] for each in view["regions"]]
    missing = view["missing"]
    if len(names) > 1 and missing:
        silent = [name for name in names if name not in missing]
        if not any(any(row.values()) for row in missing.values()):
            where = f"at {', '.join(missing)}; {', '.join(silent)}: not known"
            return [*lines, "", f"no effects are missing {where if silent else 'anywhere'}"]
        rows = [["effects missing", *(f"of {name}" for name in names)]]
        for holder in names:
            row = {holder: "-"} | missing.get(holder, {})
            rows.append([f"at {holder}", *(str(row.get(name, "?")) for name in names)])
        lines += ["", *table(rows)]
    return lines


def _state(link: dict[str, Any]) -> str:
    text: str = link["state"]
    if link["age_ms"] is not None:
        text += f" for {age(link['age_ms'])}"
    return text if link["fault"] in {"", "pause"} else f"{text} ({link['fault']})"
