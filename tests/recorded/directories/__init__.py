"""Directories that servers of earlier formats wrote, and what such a server must still answer.

Each folder is named after the version of the files in it, and has the data of a server on its own
(``alone``) and of one region of two (``region``): a snapshot and a log with changes after it. Every
later version must open a copy of them. They are never made again: a new format gets a folder of its
own, made by ``python -m tests.recorded.directories FOLDER``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from anabranch.testing import Cluster, Server

KEPT = Path(__file__).parent
LATEST_MS = 4_102_444_800_000
"""A deadline: the year 2100."""

BEFORE_SNAPSHOT = (
    *(f"XADD orders {number}-0 item book{number} place hall-7" for number in range(1, 121)),
    "XADD orders IDMP shop order-1 * item lamp",
    "XGROUP CREATE orders billing 0",
    "XREADGROUP GROUP billing worker-1 COUNT 4 STREAMS orders >",
    "XACK orders billing 1-0 2-0",
    "XDEL orders 3-0 10-0",
    "XTRIM orders MINID = 5-0",
    "SET note kept",
    "RPUSH tasks one two three",
    "SADD places hall-7 hall-8",
    f"SET session open PXAT {LATEST_MS}",
)
AFTER_SNAPSHOT = (
    "XADD orders IDMP shop order-2 * item pen",
    "XREADGROUP GROUP billing worker-2 COUNT 1 STREAMS orders >",
    "XGROUP CREATE orders audit $",
    "XADD log * level warn",
    "XGROUP CREATE log readers 0",
    "XDEL orders 20-0",
    "INCR visits",
    "LPOP tasks",
    "DEL places",
    "ACL SETUSER reader on >secret ~* +@read",
)
QUESTIONS = (
    "XLEN orders",
    "XRANGE orders - + COUNT 20",
    "XREVRANGE orders + - COUNT 4",
    "XPENDING orders billing",
    "XINFO GROUPS orders",
    "XLEN log",
    "XRANGE log - +",
    "GET note",
    "GET visits",
    "LRANGE tasks 0 -1",
    "EXISTS places",
    "PEXPIRETIME session",
    "ACL LIST",
)


def write(server: Server) -> None:
    """Fill a server: a snapshot of the one half, the log of the other; a region with streams."""
    is_region = "region_name:" in server.execute("INFO").decode()
    for lines in (BEFORE_SNAPSHOT, ("SAVE",), AFTER_SNAPSHOT):
        for line in lines:
            if not is_region or line.startswith(("X", "ACL", "SAVE")):
                server.execute(*line.split())


def answers(server: Server) -> dict[str, Any]:
    """What a server says of its data, as it is written in JSON."""
    return {line: _plain(server.execute(*line.split())) for line in QUESTIONS}


def _plain(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, dict):
        return [_plain(each) for pair in reply.items() for each in pair]
    return [_plain(each) for each in reply] if isinstance(reply, list | tuple) else reply


def make(folder: Path) -> dict[str, dict[str, Any]]:
    """Write both directories; returns the answers of both."""
    with Server(persist=folder / "alone") as alone:
        write(alone)
        found = {"alone": answers(alone)}
    with Cluster("eu", "us", persist=folder, xadd_id_uniqueness_mode="liberal") as cluster:
        write(cluster.eu)
        cluster.us.execute("XADD", "orders", "*", "item", "cup")
        cluster.us.execute("XADD", "readings", "*", "celsius", "21.5")
        cluster.settle()
        found["region"] = answers(cluster.eu)
    (folder / "eu").rename(folder / "region")
    shutil.rmtree(folder / "us")
    for lock in folder.glob("*/data/lock"):
        lock.unlink()
    return found
