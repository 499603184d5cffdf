"""Start, ask and stop the servers of a cluster on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.address import Address
from anabranch.cli.cluster_files import HOST, ClusterFiles, Member, why_taken
from anabranch.cli.failures import Failed
from anabranch.cli.interrupts import pause, undisturbed

if TYPE_CHECKING:
    import redis

START_S: Final = 60.0
STOP_S: Final = 30.0
ASK_S: Final = 3.0
POLL_S: Final = 0.05


def require_free_ports(members: list[Member]) -> None:
    """Raises :class:`Failed` if two servers need one port, or a port is in use."""
    taken: dict[int, str] = {}
    for member in members:
        uses = {
            member.port: "clients",
            member.gossip_port: "other regions",
            member.http_port: "its page",
        }
        for port, use in uses.items():
            if not port:
                continue
            if port in taken:
                raise Failed(
                    f"port {port} would be for {use} of region {member.name} and for "
                    f"{taken[port]}: choose others with --port or --http-port"
                )
            taken[port] = f"{use} of region {member.name}"
            if (problem := why_taken(port)) is not None:
                raise Failed(
                    f"port {port}, where region {member.name} is to listen for {use}, cannot "
                    f"be had: {problem}. Stop what listens there, or begin another "
                    "cluster with --port and a --dir of its own"
                )


Processes = dict[Member, subprocess.Popen[bytes]]


def start(files: ClusterFiles, member: Member, started: Processes) -> None:
    """Start a server and record it, with no interrupt in between.

    It has a session of its own, so that a Ctrl-C in this terminal does not reach it.
    """
    known = [f"{HOST}:{each.gossip_port}" for each in files.others(member)]
    first = member == files.members[0]
    entry = ["--cluster-create", "yes"] if first else ["--join", *known]
    words = [
        *("--port", str(member.port), "--bind", HOST, "--dir", str(files.data(member))),
        *("--region-id", str(member.number), "--region-name", member.name),
        *("--gossip-port", str(member.gossip_port), "--enable-debug-command", "yes"),
        *(("--http-port", str(member.http_port)) if member.http_port else ()),
        *entry,
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
    if member.http_token:  # not on the command line, which all users of the machine can read
        environment["ANABRANCH_HTTP_TOKEN"] = member.http_token
    with files.log(member).open("ab") as log, undisturbed():
        started[member] = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "anabranch", "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def wait_entered(files: ClusterFiles, started: Processes, count: int) -> None:
    """Wait until each of them has loaded its data and, of several, has that of the others.

    A new region accepts no writes before it has them. Raises :class:`Failed` if a server
    ends, or if it takes too long.
    """
    deadline = time.monotonic() + START_S
    with undisturbed():
        for member, process in started.items():
            while not _has_entered(member, count):
                why = ""
                if process.poll() is not None:
                    why = "ended"
                elif time.monotonic() > deadline:
                    why = f"is not ready after {START_S:.0f} s"
                if why:
                    raise Failed(
                        f"the server of region {member.name} {why}. It wrote last: "
                        f"{files.log_tail(member) or 'nothing'} (more in {files.log(member)})"
                    )
                pause(POLL_S)


def _has_entered(member: Member, count: int) -> bool:
    try:
        ask(member, "PING")  # unlike INFO, it is refused while the server loads its data
        facts = ask(member, "INFO", "replication")
    except Failed:
        return False
    return count == 1 or (facts["members"] >= count and bool(facts["caught_up"]))


def ask(member: Member, *words: str | int) -> Any:
    """The answer of a server to one command; :class:`Failed` if there is none."""
    with undisturbed():
        import redis  # noqa: PLC0415 - what only waits or ends does without it

        import anabranch.cli.transfer.client  # noqa: F401, PLC0415 - imported whole, not in part
    try:
        with connect(member, ASK_S, protocol=3) as client:
            return client.execute_command(*words)
    except redis.RedisError as problem:
        raise Failed(f"region {member.name} (port {member.port}): {problem}") from None


def cut(files: ClusterFiles, one: Member, other: Member) -> None:
    """Cut the link between two regions, at each end that runs."""
    for near, far in ((one, other), (other, one)):
        if files.pid(near) is not None:
            ask(near, "AB.LINK", far.number, "PAUSE")


def restore_links(files: ClusterFiles) -> list[list[str]]:
    """End all faults of links; returns the pairs of names whose link had one."""
    healed = set()
    for member in files.running():
        names = {row[b"region"]: row for row in ask(member, "AB.PEERS")}
        for other in files.others(member):
            row = names.get(other.number)
            if row is not None and row[b"fault"]:
                healed.add(tuple(sorted((member.name, other.name))))
            ask(member, "AB.LINK", other.number, "RESUME")
    return [list(pair) for pair in sorted(healed)]


def connect(member: Member, seconds: float, **form: Any) -> redis.Redis:
    """A client that reports a failure instead of trying again; ``form`` is that of its replies."""
    from anabranch.cli.transfer.client import connect as connected  # noqa: PLC0415 - needs redis-py

    client: redis.Redis = connected(Address(HOST, member.port, timeout=seconds), 0, **form)
    return client


def end(
    files: ClusterFiles,
    members: list[Member],
    started: Processes | None = None,
    *,
    at_once: bool = False,
) -> list[Member]:
    """Stop servers in good order, or kill them; returns those that had to be killed.

    A server that is still starting is only known as one that was ``started`` here.
    """

    def pid(member: Member) -> int | None:
        if (number := files.pid(member)) is not None:
            return number
        process = (started or {}).get(member)
        return process.pid if process is not None and process.poll() is None else None

    def send(member: Member, number: signal.Signals) -> None:
        if (to := pid(member)) is not None:
            with suppress(ProcessLookupError):
                os.kill(to, number)

    for member in members:
        send(member, signal.SIGKILL if at_once else signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    killed = []
    for member in members:
        while pid(member) is not None and time.monotonic() < deadline:
            (time.sleep if at_once else pause)(POLL_S)
        if pid(member) is not None:
            send(member, signal.SIGKILL)
            killed.append(member)
    return killed
