"""``anabranch cluster``: several regions on this machine, to partition, kill and restart.

``up`` starts them; every other sub-command reads the directory and can run in any terminal.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from anabranch.cli.cluster_files import (
    HOW_TO_INSTALL,
    ClusterFiles,
    Member,
    can_serve,
    with_pages,
)
from anabranch.cli.cluster_servers import (
    Processes,
    cut,
    end,
    require_free_ports,
    restore_links,
    start,
    wait_entered,
)
from anabranch.cli.cluster_view import lines_of, view_of
from anabranch.cli.failures import Failed
from anabranch.cli.group import NearestGroup
from anabranch.cli.interrupts import pause, undisturbed
from anabranch.cli.options import json_option
from anabranch.cli.terminal import table
from anabranch.config.settings import GOSSIP_PORT_ABOVE

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
WATCH_S: Final = 0.2


@click.group(
    cls=NearestGroup,
    help="""Several regions of an Active-Active cluster on this machine.

\b
Examples:
  anabranch cluster up
  anabranch cluster isolate eu
  anabranch cluster status
  anabranch cluster heal
  anabranch cluster kill ap --9
  anabranch cluster restart ap
""",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
)
def command() -> None:
    """The group itself has nothing to do."""


_DIRECTORY: Final[dict[str, Any]] = {
    "type": click.Path(file_okay=False, path_type=Path),
    "default": Path("data/cluster"),
    "show_default": True,
    "help": "Where the cluster keeps its data.",
}
_of_cluster: Final = click.option(
    *("--dir", "files"), callback=lambda _ctx, _option, path: ClusterFiles.load(path), **_DIRECTORY
)
"""The cluster of the directory; :class:`Failed` if there is none."""


# -- up -----------------------------------------------------------------------------------------


def _names(_ctx: click.Context, _option: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [word.strip() for word in text.split(",")]
    for name in names:
        if not _NAME.fullmatch(name):
            raise click.BadParameter(f"'{name}' is no name for a region: letters, digits, - and _")
    if len(names) == 1 and names[0].isdigit():
        raise click.BadParameter("names, with commas: eu,us,ap")
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
@click.option(
    "--http-port",
    type=click.IntRange(0, 65000),
    help="Serve the page of the first region there, and those of the others at the ports that "
    "follow; 0: no pages. [default: from 8080 on, if anabranch[web] is installed]",
)
@click.option("--dir", "directory", **_DIRECTORY)
@click.option("--detach", is_flag=True, help="Leave them running and return.")
@json_option()
def up(
    names: list[str] | None,
    port: int | None,
    http_port: int | None,
    directory: Path,
    detach: bool,
    as_json: bool,
) -> None:
    """Start all regions, and stop them at Ctrl-C.

    A directory that was used before is taken up with its data.
    """
    with undisturbed():
        files = _files(directory.resolve(), names, port)
        files.members = with_pages(files.members, http_port)
        started: Processes = {}
        try:
            _start(files, started)
            pause(0)  # for a Ctrl-C that came at its end
            _welcome(files, as_json=as_json)
            if http_port is None and not can_serve():
                print(f"A page for each region, with pictures: {HOW_TO_INSTALL}", file=sys.stderr)
            if detach:
                pause(0)
                return
            with suppress(KeyboardInterrupt):
                _watch(files, started, silent=as_json)
            _end_all(files, started)
        except BaseException:
            _end_all(files, started)
            raise


def _files(directory: Path, names: list[str] | None, port: int | None) -> ClusterFiles:
    """The cluster of a directory, or a new one."""
    if not ClusterFiles.exists(directory):
        first = port or 7379
        return ClusterFiles(
            directory,
            [
                Member(index + 1, name, first + index, first + index + GOSSIP_PORT_ABOVE)
                for index, name in enumerate(names or ["eu", "us", "ap"])
            ],
        )
    files = ClusterFiles.load(directory)
    known = [each.name for each in files.members]
    if names is not None and names != known:
        raise Failed(
            f"{directory} holds the regions {','.join(known)}: leave --regions out, or name "
            "another directory with --dir"
        )
    running = files.running()
    if running:
        raise Failed(
            f"the cluster in {directory} is running ({', '.join(each.name for each in running)}): "
            "see 'anabranch cluster status'; 'anabranch cluster restart REGION' starts one "
            "region, 'anabranch cluster down' stops all"
        )
    if port is not None:
        # Regions keep their gossip ports; only the ports for clients may change.
        files.members = [
            replace(each, port=port + index) for index, each in enumerate(files.members)
        ]
    return files


def _start(files: ClusterFiles, started: Processes) -> None:
    require_free_ports(files.members)
    files.save()
    for member in files.members:
        start(files, member, started)
    wait_entered(files, started, len(files.members))


def _welcome(files: ClusterFiles, *, as_json: bool) -> None:
    facts = [
        {
            "name": each.name,
            "number": each.number,
            "port": each.port,
            "data": str(files.data(each)),
            **({"page": each.page} if each.page else {}),
        }
        for each in files.members
    ]
    names = ["region", "number", "port", "data", *(["page"] if files.members[0].page else [])]
    lines = table([names, *([*map(str, f.values())] for f in facts)])
    line = f"  redis-cli -p {files.members[0].port} XADD stream '*' field value"
    _answer({"regions": facts}, *lines, "", line, as_json=as_json)


def _watch(files: ClusterFiles, started: Processes, *, silent: bool) -> None:
    """Wait until no region runs; print which ones start and stop, unless silent."""

    def say(line: str) -> None:
        if not silent:
            print(line, flush=True)

    say("\nCtrl-C stops all regions.")
    before = files.running()
    while before:
        pause(WATCH_S)
        for process in started.values():
            process.poll()  # its number is not free before its result was read
        now = files.running()
        for member in files.members:
            if member in before and member not in now:
                say(f"region {member.name} has ended")
            elif member in now and member not in before:
                say(f"region {member.name} is back")
        before = now


def _end_all(files: ClusterFiles, started: Processes) -> None:
    """A second Ctrl-C ends the wait."""
    try:
        _report(end(files, files.members, started))
    except KeyboardInterrupt:
        end(files, files.members, started, at_once=True)


def _report(killed: list[Member]) -> None:
    for member in killed:
        print(f"anabranch: region {member.name} did not stop, and was killed", file=sys.stderr)


# -- the others ---------------------------------------------------------------------------------


@command.command(name="status")
@_of_cluster
@json_option()
def status(files: ClusterFiles, as_json: bool) -> None:
    """Show regions, links, and how many effects are missing where."""
    view = view_of(files)
    _answer(view, *lines_of(view), as_json=as_json)


@command.command(name="partition")
@click.argument("one")
@click.argument("other")
@_of_cluster
@json_option()
def partition(one: str, other: str, files: ClusterFiles, as_json: bool) -> None:
    """Cut the link between two regions. Other regions relay: 'isolate' cuts a region off."""
    first, second = files.member(one), files.member(other)
    if first == second:
        raise Failed("a link has two ends: name two regions")
    _require_running(files, [first, second])
    cut(files, first, second)
    others = [each.name for each in files.running() if each not in {first, second}]
    lines = [f"cut: {one} - {other}"]
    if others:
        lines.append(
            f"still relaying what {one} and {other} write: {', '.join(others)}; "
            f"'anabranch cluster isolate {one}' cuts all links of {one}"
        )
    _answer({"cut": [[one, other]], "relays": others}, *lines, as_json=as_json)


@command.command(name="isolate")
@click.argument("region")
@_of_cluster
@json_option()
def isolate(region: str, files: ClusterFiles, as_json: bool) -> None:
    """Cut all links of a region, so that it is on its own."""
    member = files.member(region)
    _require_running(files, [member])
    others = files.others(member)
    for other in others:
        cut(files, member, other)
    links = [[region, other.name] for other in others]
    shown = ", ".join(" - ".join(link) for link in links)
    _answer(
        {"isolated": region, "cut": links},
        f"cut: {shown or 'nothing, it is the only region'}",
        "'anabranch cluster heal' restores all links",
        as_json=as_json,
    )


@command.command(name="heal")
@_of_cluster
@json_option()
def heal(files: ClusterFiles, as_json: bool) -> None:
    """Restore all links, and end their delays."""
    _require_running(files, files.running() or files.members)
    healed = restore_links(files)
    shown = ", ".join(" - ".join(link) for link in healed)
    line = f"healed: {shown}" if healed else "no link was cut or slowed"
    _answer({"healed": healed}, line, as_json=as_json)


def _require_running(files: ClusterFiles, members: list[Member]) -> None:
    for member in members:
        if files.pid(member) is None:
            raise Failed(
                f"region {member.name} is not running: 'anabranch cluster restart {member.name}' "
                "starts it"
            )


@command.command(name="kill")
@click.argument("region")
@click.option("--9", "at_once", is_flag=True, help="At once, as a crash would.")
@_of_cluster
@json_option()
def kill(region: str, at_once: bool, files: ClusterFiles, as_json: bool) -> None:
    """End the server of a region; in good order, unless --9 is given."""
    member = files.member(region)
    _require_running(files, [member])
    forced = end(files, [member], at_once=at_once)
    _report(forced)
    _answer(
        {"ended": region, "in_order": not (at_once or forced)},
        f"region {region} has ended; 'anabranch cluster restart {region}' starts it again",
        as_json=as_json,
    )


@command.command(name="restart")
@click.argument("region")
@_of_cluster
@json_option()
def restart(region: str, files: ClusterFiles, as_json: bool) -> None:
    """Stop the server of a region if it runs, and start it again."""
    member = files.member(region)
    _report(end(files, [member]))
    require_free_ports([member])
    started: Processes = {}
    start(files, member, started)
    wait_entered(files, started, 1)
    pid = files.pid(member)
    _answer(
        {"restarted": region, "pid": pid, "port": member.port},
        f"region {region} runs again on port {member.port} (pid {pid})",
        as_json=as_json,
    )


@command.command(name="down")
@_of_cluster
@json_option()
def down(files: ClusterFiles, as_json: bool) -> None:
    """Stop all regions; their data stays."""
    running = files.running()
    if not running:
        raise Failed(f"the cluster in {files.directory} is not running")
    forced = end(files, files.members)
    _report(forced)
    names = [each.name for each in running]
    _answer(
        {"stopped": names, "killed": [each.name for each in forced]},
        f"stopped: {', '.join(names)}; the data stays in {files.directory}",
        as_json=as_json,
    )


def _answer(facts: dict[str, Any], *lines: str, as_json: bool) -> None:
    """Print the result of a command: one JSON object, or lines for people."""
    print(json.dumps(facts, indent=2) if as_json else "\n".join(lines), flush=True)
