"""``anabranch demo``: several regions with live traffic, in steps that are checked."""

from __future__ import annotations

import os
import select
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Callable
from typing import Any, Final

import click

from anabranch.cli.cluster_files import HOW_TO_INSTALL, can_serve
from anabranch.cli.demo.cluster import NAMES, DemoCluster
from anabranch.cli.demo.steps import steps
from anabranch.cli.demo.story import Story
from anabranch.cli.demo.traffic import Traffic
from anabranch.cli.interrupts import pause, undisturbed
from anabranch.cli.options import FiniteRange
from anabranch.cli.terminal import is_terminal, say, styled

LATENCIES_MS: Final = {"lan": 0.0, "wan": 40.0}
"""The delay that is added to a link, in one direction."""

HOW_TO_KEEP: Final = """
Nothing of this is left. To go on with such regions:
  anabranch demo --keep    these regions and their traffic, until Ctrl-C
  anabranch cluster up     regions without traffic, whose data stay"""

PAGE_S: Final = 5.0
LOOK_S: Final = 0.1


def _latency(_ctx: click.Context, _option: click.Parameter, text: str) -> float:
    if text in LATENCIES_MS:
        return LATENCIES_MS[text]
    try:
        delay_ms = float(text)
    except ValueError:
        delay_ms = -1.0
    if not 0 <= delay_ms <= 2000:
        raise click.BadParameter("lan, wan, or milliseconds from 0 to 2000, one way")
    return delay_ms


@click.command(
    help="""Run several regions with live traffic, and see them diverge and converge.

The regions are processes of this machine in a temporary directory. The demo cuts one region off,
shows what differs, fails a producer over, heals the links, kills a region, and prints for each step
the redis-cli line that shows it, and every claim as it was checked. Ctrl-C stops everything;
nothing is left behind.""",
    epilog="Exit codes: 0 every claim holds, 1 one does not, 2 wrong usage, 130 interrupted.",
)
@click.option(
    "--regions", "count", type=click.IntRange(2, len(NAMES)), default=3, show_default=True,
    help="How many regions.",
)  # fmt: skip
@click.option(
    "--latency", callback=_latency, default="lan", show_default=True, metavar="lan|wan|MS",
    help="What is added to the links: nothing, 40 ms, or so many milliseconds one way.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(1, 65535 - len(NAMES)),
    help="Port of the first region; the others follow. [default: the first free ones from 7379 on]",
)  # fmt: skip
@click.option("--interactive", is_flag=True, help="Wait for Enter behind each step.")
@click.option("--keep", is_flag=True, help="Go on with regions and traffic until Ctrl-C.")
@click.option(
    "--page/--no-page", "page", default=None,
    help="Serve the web page, and open it. By default if anabranch[web] is installed.",
)  # fmt: skip
@click.option("--no-spark", is_flag=True, help="Leave the archive to Parquet out.")
@click.option(
    "--pace", type=FiniteRange(0, 60), default=2.0, show_default=True,
    help="Seconds to look at each step.",
)  # fmt: skip
@click.option(
    "--rate", type=FiniteRange(1, 1000), default=20.0, show_default=True,
    help="Orders a second in each region.",
)  # fmt: skip
def command(
    count: int, latency: float, port: int | None, page: bool | None, rate: float, **way: Any
) -> None:
    """Run the demo; leave nothing behind."""
    if page and not can_serve():
        raise click.UsageError(f"--page needs the extra 'web': {HOW_TO_INSTALL}")
    with_page = can_serve() if page is None else page
    with undisturbed():
        cluster = DemoCluster(count, latency, with_page=with_page, port=port)
        traffic = Traffic(cluster, rate)
        story = Story(_waiting(interactive=way["interactive"], pace=way["pace"]))
        began = time.monotonic()
        try:
            say(f"starting {count} regions in {cluster.directory} ...")
            cluster.start()
            _welcome(cluster, is_asked=page is not False)
            story.tell(steps(cluster, traffic, with_spark=not way["no_spark"]))
            story.report(time.monotonic() - began)
            if way["keep"]:
                _go_on(cluster, traffic)
            elif story.held:
                say(HOW_TO_KEEP)
        except KeyboardInterrupt:
            say("\nstopping all regions")
            raise
        finally:
            traffic.end()
            cluster.close()
    raise SystemExit(0 if story.held else 1)


def _waiting(*, interactive: bool, pace: float) -> Callable[[], None]:
    def wait() -> None:
        if not interactive:
            pause(pace)
            return
        print(styled("  Enter goes on, Ctrl-C stops everything", dim=True), end=" ", flush=True)
        with open(0, "rb", buffering=0, closefd=False) as keyboard:  # select sees what is unread
            while not select.select([keyboard], [], [], 0)[0]:
                pause(LOOK_S)
            line = keyboard.readline()
        if not line:
            raise KeyboardInterrupt

    return wait


def _welcome(cluster: DemoCluster, *, is_asked: bool) -> None:
    for member in cluster.members:
        say(f"  region {member.name}: redis-cli -p {member.port}")
    say(f"  links: anabranch cluster status --dir {cluster.directory}")
    if is_asked and not can_serve():
        say(f"  a page with pictures would be there with: {HOW_TO_INSTALL}")
    address = cluster.members[0].page
    if not (is_asked and address and _answers(address)):
        return
    say(f"  the page, as seen from {cluster.members[0].name}: {address}")
    has_display = sys.platform == "darwin" or any(map(os.environ.get, _DISPLAYS))
    if is_terminal() and has_display:
        webbrowser.open(address)


_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def _answers(address: str) -> bool:
    """Whether there is a page."""
    try:
        with urllib.request.urlopen(address, timeout=PAGE_S) as reply:  # noqa: S310 - our own
            return bool(reply.status == 200)
    except OSError:
        return False


def _go_on(cluster: DemoCluster, traffic: Traffic) -> None:
    """Wait for Ctrl-C, which is no failure from here on."""
    traffic.go_on()
    say(f"\nThe regions and their traffic go on. Cut one off with:\n"
         f"  anabranch cluster isolate {cluster.members[0].name} --dir {cluster.directory}\n"
         "Ctrl-C stops everything.")  # fmt: skip
    try:
        while True:
            pause(PAGE_S)
    except KeyboardInterrupt:
        say("\nstopping all regions")
