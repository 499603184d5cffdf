"""``anabranch cluster``: several regions on this machine, to partition, kill and restart.

``up`` starts them; every other sub-command reads the directory and can run in any terminal.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from anabranch.cli.cluster_files import ClusterFailed, ClusterFiles, Member
from anabranch.cli.cluster_servers import ask, end, require_free_ports, start, wait_entered

__all__ = ["command"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
GOSSIP_ABOVE: Final = 10000
WATCH_S: Final = 0.2


@click.group(
    help="""Several regions of an Active-Active cluster on this machine.

\b
Examples:
  anabranch cluster up
  anabranch cluster partition eu us
  anabranch cluster heal
  anabranch cluster kill ap --9
  anabranch cluster restart ap
""",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage.",
)
def command() -> None:
    """The group itself has nothing to do."""


def _in_directory(command: _Command) -> _Command:
    return click.option(
        "--dir",
        "directory",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("data/cluster"),
        show_default=True,
        help="Where the cluster keeps its data.",
    )(command)


@contextmanager
def _failures() -> Iterator[None]:
    """One line and exit code 1."""
    try:
        yield
    except ClusterFailed as problem:
        print(f"anabranch: {problem}", file=sys.stderr)
        raise SystemExit(1) from None


# -- up -----------------------------------------------------------------------------------------


def _names(_ctx: click.Context, _option: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [word.strip() for word in text.split(",")]
    for name in names:
        if not _NAME.fullmatch(name):
            raise click.BadParameter(f"'{name}' is no name for a region: letters, digits, - and _")
    if len(set(names)) < len(names) or len(names) > 255:
        raise click.BadParameter("at most 255 regions, each with a name of its own")
    return names


@command.command(name="up")
@click.option("--regions", "names", callback=_names, help="Names, with commas. [default: eu,us,ap]")
@click.option(
    "--port",
    type=click.IntRange(1, 55000),
    help="Of the first region; the others follow, and ports for other regions are 10000 above. "
    "[default: 7379]",
)
@_in_directory
@click.option("--detach", is_flag=True, help="Leave them running and return.")
def up(names: list[str] | None, port: int | None, directory: Path, detach: bool) -> None:
    """Start all regions, and stop them at Ctrl-C.

    A directory that was used before is taken up with its data.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _failures():
        files = _files(directory.resolve(), names, port)
        started: dict[Member, subprocess.Popen[bytes]] = {}
        try:
            _start(files, started)
            _welcome(files)
            if detach:
                return
            _watch(files, started)
        except ClusterFailed:
            _end_all(files)
            raise
        except KeyboardInterrupt:
            _end_all(files)


def _files(directory: Path, names: list[str] | None, port: int | None) -> ClusterFiles:
    """The cluster of a directory as it was, or a new one."""
    if not ClusterFiles.exists(directory):
        first = port or 7379
        return ClusterFiles(
            directory,
            [
                Member(index + 1, name, first + index, first + index + GOSSIP_ABOVE)
                for index, name in enumerate(names or ["eu", "us", "ap"])
            ],
        )
    files = ClusterFiles.load(directory)
    known = [each.name for each in files.members]
    if names is not None and names != known:
        raise ClusterFailed(
            f"{directory} holds the regions {','.join(known)}: leave --regions out, or name "
            "another directory with --dir"
        )
    running = files.running()
    if running:
        raise ClusterFailed(
            f"the cluster in {directory} is running ({', '.join(each.name for each in running)}): "
            "see 'anabranch cluster status'; 'anabranch cluster restart REGION' starts one "
            "region, 'anabranch cluster down' stops all"
        )
    if port is not None:
        # Regions find each other where they did before; only clients have to look elsewhere.
        files.members = [
            Member(each.number, each.name, port + index, each.gossip_port)
            for index, each in enumerate(files.members)
        ]
    return files


def _start(files: ClusterFiles, started: dict[Member, subprocess.Popen[bytes]]) -> None:
    require_free_ports(files.members)
    files.save()
    for member in files.members:
        started[member] = start(files, member)
    wait_entered(files, started, len(files.members))


def _welcome(files: ClusterFiles) -> None:
    _print_table([["region", "number", "port", "data"], *([
        each.name, str(each.number), str(each.port), str(files.data(each))
    ] for each in files.members)])  # fmt: skip
    first = files.members[0]
    print(f"\n  redis-cli -p {first.port} XADD stream '*' field value", flush=True)


def _watch(files: ClusterFiles, started: dict[Member, subprocess.Popen[bytes]]) -> None:
    """Until nobody is left; says who comes and goes."""
    print("\nCtrl-C stops all regions.", flush=True)
    before = files.running()
    while before:
        time.sleep(WATCH_S)
        for process in started.values():
            process.poll()  # its number is not free before we have asked how it ended
        now = files.running()
        for member in files.members:
            if member in before and member not in now:
                print(f"region {member.name} has ended", flush=True)
            elif member in now and member not in before:
                print(f"region {member.name} is back", flush=True)
        before = now


def _end_all(files: ClusterFiles) -> None:
    """Ctrl-C once more is impatience."""
    try:
        _report(end(files, files.members))
    except KeyboardInterrupt:
        end(files, files.members, at_once=True)


def _report(killed: list[Member]) -> None:
    for member in killed:
        print(f"anabranch: region {member.name} did not stop, and was killed", file=sys.stderr)


def _print_table(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


# -- the others ---------------------------------------------------------------------------------


@command.command(name="status")
@_in_directory
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(directory: Path, as_json: bool) -> None:
    """Say which regions run, and how each sees the others."""
    with _failures():
        files = ClusterFiles.load(directory)
        rows = [_facts(files, each) for each in files.members]
    if as_json:
        print(json.dumps({"regions": rows}, indent=2))
        return
    lines = [["region", "number", "port", "pid", "state", "others"]]
    for row in rows:
        others = ", ".join(f"{name} {state}" for name, state in row["others"].items())
        lines.append(
            [
                *(row["name"], str(row["number"]), str(row["port"]), str(row["pid"] or "-")),
                *(row["state"], others or "-"),
            ]
        )
    _print_table(lines)


def _facts(files: ClusterFiles, member: Member) -> dict[str, Any]:
    pid = files.pid(member)
    facts: dict[str, Any] = {
        "name": member.name,
        "number": member.number,
        "port": member.port,
        "pid": pid,
        "state": "down",
        "others": {},
    }
    if pid is None:
        return facts
    try:
        rows = ask(member, "AB.PEERS")
    except ClusterFailed:
        facts["state"] = "silent"
        return facts
    facts["state"] = "up"
    facts["others"] = {row[b"name"].decode(): _link(row) for row in rows}
    return facts


def _link(row: dict[bytes, Any]) -> str:
    state: str = row[b"state"].decode()
    fault: str = row[b"fault"].decode()
    return f"{state} ({fault})" if fault else state


@command.command(name="partition")
@click.argument("one")
@click.argument("other")
@_in_directory
def partition(one: str, other: str, directory: Path) -> None:
    """Cut the link between two regions."""
    with _failures():
        files = ClusterFiles.load(directory)
        first, second = files.member(one), files.member(other)
        if first == second:
            raise ClusterFailed("a link has two ends: name two regions")
        _require_running(files, [first, second])
        ask(first, "AB.LINK", second.number, "PAUSE")
        ask(second, "AB.LINK", first.number, "PAUSE")


@command.command(name="heal")
@_in_directory
def heal(directory: Path) -> None:
    """Restore all links."""
    with _failures():
        files = ClusterFiles.load(directory)
        running = files.running()
        _require_running(files, running or files.members)
        for member in running:
            for other in files.others(member):
                ask(member, "AB.LINK", other.number, "RESUME")


def _require_running(files: ClusterFiles, members: list[Member]) -> None:
    for member in members:
        if files.pid(member) is None:
            raise ClusterFailed(
                f"region {member.name} is not running: 'anabranch cluster restart {member.name}' "
                "starts it"
            )


@command.command(name="kill")
@click.argument("region")
@click.option("--9", "at_once", is_flag=True, help="At once, as a crash would.")
@_in_directory
def kill(region: str, at_once: bool, directory: Path) -> None:
    """End the server of a region; in good order, unless --9 is given."""
    with _failures():
        files = ClusterFiles.load(directory)
        member = files.member(region)
        _require_running(files, [member])
        _report(end(files, [member], at_once=at_once))


@command.command(name="restart")
@click.argument("region")
@_in_directory
def restart(region: str, directory: Path) -> None:
    """Start the server of a region again; one that runs is stopped before."""
    with _failures():
        files = ClusterFiles.load(directory)
        member = files.member(region)
        _report(end(files, [member]))
        require_free_ports([member])
        wait_entered(files, {member: start(files, member)}, 1)


@command.command(name="down")
@_in_directory
def down(directory: Path) -> None:
    """Stop all regions; their data stays."""
    with _failures():
        files = ClusterFiles.load(directory)
        if not files.running():
            raise ClusterFailed(f"the cluster in {directory} is not running")
        _report(end(files, files.members))
