"""``anabranch top``: a live table of regions and streams; the terminal twin of the page."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import click

from anabranch.cli.interrupts import end_as_ctrl_c
from anabranch.cli.live.groups import groups_of
from anabranch.cli.live.policies import done_since_the_start
from anabranch.cli.live.shared import (
    Regions,
    fitting,
    on_server,
    print_json,
    running,
    streams_of,
)
from anabranch.cli.options import FiniteRange, json_option
from anabranch.cli.terminal import (
    age,
    columns,
    folded_table,
    obeys,
    screen,
    show,
    shown,
    styled,
    wrapped,
)
from anabranch.cli.transfer.client import fields_of

PIPELINE: Final = 200


@click.command(
    help="""Show regions, links and the busiest streams, again and again; q or Ctrl-C ends.

Off a terminal the command prints plain lines. It looks at up to 1,000 streams, and at the groups of
those that it shows.""",
)
@click.option("--interval", type=FiniteRange(0.1, 3600), default=1.0, show_default=True)
@click.option("--count", type=click.IntRange(1), help="End after so many looks.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@json_option("Print one JSON object for each look.")
@on_server
def command(
    interval: float, count: int | None, limit: int, as_json: bool, db: int | None, **options: Any
) -> None:
    """Show the figures at each interval: on a screen of their own, or as lines."""
    with running(db, options) as client:
        looks = _looks(client, limit)
        if obeys() and not as_json:
            _live(looks, interval, count)
            return
        while count is None or count > 0:
            look = next(looks)
            if as_json:
                print_json(look.facts())
            else:
                print("\n".join(look.lines()), flush=True)
            count = None if count is None else count - 1
            if count != 0:
                time.sleep(interval)


@dataclass(slots=True)
class _Look:
    """The figures of one moment."""

    server: str
    memory: str
    clients: int
    commands_per_s: int
    peers: list[dict[str, Any]] = field(default_factory=list)
    streams: list[dict[str, Any]] = field(default_factory=list)
    looked_at: str = ""
    policies: str = ""
    """What policies have done, if any is set."""
    colours: dict[str, str | int | None] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The figures as one JSON object."""
        return {
            "server": self.server,
            "memory": self.memory,
            "clients": self.clients,
            "commands_per_second": self.commands_per_s,
            "policies": self.policies,
            "peers": self.peers,
            "streams": self.streams,
        }

    def heading(self) -> str:
        """The figures of the server in one line."""
        return (
            f"{self.server}: {self.commands_per_s:,} commands/s, {self.clients} clients, "
            f"{self.memory} in use, {self.looked_at}"
            + (f"; policies: {self.policies}" if self.policies else "")
        )

    def lines(self) -> list[str]:
        """For files and pipes: tables with tabs, the headings first."""
        tables = [[self.heading()]]
        if self.peers:
            tables += [_PEER_HEADINGS, *map(_peer_cells, self.peers)]
        tables += [_STREAM_HEADINGS, *map(_stream_cells, self.streams)]
        return ["\t".join(row) for row in tables]

    def shown(self) -> list[str]:
        """The lines for a terminal; a narrow one has fewer columns."""
        lines = [styled(line, bold=True) for line in wrapped(self.heading()).splitlines()]
        if self.peers:
            rows = [_peer_cells(peer) for peer in self.peers]
            colours = [self.colours.get(peer["name"]) for peer in self.peers]
            lines += ["", *_fitting_table(_PEER_HEADINGS, rows, _PEER_LEAST, colours)]
        rows = [_stream_cells(row) for row in self.streams]
        return [*lines, "", *_fitting_table(_STREAM_HEADINGS, rows, _LEAST)]


def _fitting_table(
    headings: list[str],
    rows: list[list[str]],
    least: list[str],
    colours: Sequence[str | int | None] = (),
) -> list[str]:
    """A table without the columns for which the terminal has no room."""
    chosen = fitting(headings, rows, columns(), least=least)
    some = [[row[number] for number in chosen] for row in [headings, *rows]]
    return folded_table(some[0], some[1:], colours)


_PEER_HEADINGS: Final = ["region", "state", "missing there", "missing here", "round trip"]
_STREAM_HEADINGS: Final = ["stream", "entries", "added/s", "groups", "lag", "pending", "oldest"]
_PEER_LEAST: Final = ["round trip", "missing here"]
_LEAST: Final = ["groups", "oldest", "entries", "pending"]
"""Columns that a narrow terminal does not show, the first one first."""


def _peer_cells(peer: dict[str, Any]) -> list[str]:
    trip = peer["round_trip_us"]
    return [
        peer["name"],
        f"{peer['state']} {age(peer['cut_ms'])}" if peer["state"] == "cut" else peer["state"],
        _effects(peer["lag_effects"]),
        _effects(peer["receive_lag_effects"]),
        "-" if trip is None else f"{trip / 1000:.1f} ms",
    ]


def _effects(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _stream_cells(row: dict[str, Any]) -> list[str]:
    return [
        *(row["key"], f"{row['length']:,}", f"{row['added_per_second']:.1f}", str(row["groups"])),
        *(f"{row['lag']:,}", f"{row['pending']:,}", age(row["oldest_idle_ms"])),
    ]


def _looks(client: Any, limit: int) -> Iterator[_Look]:
    """Samples without end; rates are those since the sample before."""
    regions = Regions(client)
    colours = {name: regions.colour(name) for name in regions.names.values()}
    before: dict[bytes, int] = {}
    before_s = 0.0
    while True:
        keys, has_more = streams_of(client)
        now_s = time.monotonic()
        added, lengths = _counters(client, keys)
        rates = {
            key: (count - before[key]) / (now_s - before_s) if key in before else 0.0
            for key, count in added.items()
        }
        busiest = sorted(added, key=lambda key: (-rates[key], -lengths[key], key))[:limit]
        info = client.info()
        name = info.get("region_name") or "server"
        look = _Look(
            f"{name} (port {info['tcp_port']})",
            str(info["used_memory_human"]),
            int(info["connected_clients"]),
            int(info["instantaneous_ops_per_sec"]),
            looked_at=f"{len(keys):,} streams{' of more' if has_more else ''}",
            policies=done_since_the_start(info) if info.get("policy_settings") else "",
            colours=colours,
        )
        if regions.names:
            look.peers = [_peer(fields_of(row)) for row in client.execute_command("AB.PEERS")]
        look.streams = [_stream(client, key, lengths[key], rates[key]) for key in busiest]
        before, before_s = added, now_s
        yield look


def _counters(client: Any, keys: list[bytes]) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Entries ever added, and entries now, of each stream that still exists."""
    added: dict[bytes, int] = {}
    lengths: dict[bytes, int] = {}
    for at in range(0, len(keys), PIPELINE):
        some = keys[at : at + PIPELINE]
        with client.pipeline(transaction=False) as pipeline:
            for key in some:
                pipeline.xinfo_stream(key)
            replies = pipeline.execute(raise_on_error=False)
        for key, facts in zip(some, replies, strict=True):
            if isinstance(facts, dict):
                added[key], lengths[key] = facts["entries-added"], facts["length"]
    return added, lengths


def _peer(facts: dict[bytes, Any]) -> dict[str, Any]:
    return {
        "name": shown(facts[b"name"]),
        "state": facts[b"state"].decode(),
        "cut_ms": facts[b"cut-ms"],
        "lag_effects": facts[b"lag-effects"],
        "receive_lag_effects": facts[b"receive-lag-effects"],
        "round_trip_us": facts[b"round-trip-us"],
    }


def _stream(client: Any, key: bytes, length: int, rate: float) -> dict[str, Any]:
    groups = groups_of(client, key)
    idle = [row["oldest_idle_ms"] for row in groups if row["oldest_idle_ms"] is not None]
    return {
        "key": shown(key),
        "length": length,
        "added_per_second": round(rate, 1),
        "groups": len(groups),
        "lag": max((row["lag"] for row in groups), default=0),
        "pending": sum(row["pending"] for row in groups),
        "oldest_idle_ms": max(idle, default=None),
    }


def _live(looks: Iterator[_Look], interval: float, count: int | None) -> None:
    end_as_ctrl_c()
    with _keys(), screen():
        while count is None or count > 0:
            show(next(looks).shown())
            count = None if count is None else count - 1
            if count != 0 and _quits(interval):
                return


@contextmanager
def _keys() -> Iterator[None]:
    """Keys are read one by one, without return."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415 - only where there is a terminal
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quits(seconds: float) -> bool:
    """Wait; returns whether q was pressed."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([sys.stdin], [], [], left)
        if ready and sys.stdin.read(1) in {"q", "Q", ""}:
            return True
    return False
