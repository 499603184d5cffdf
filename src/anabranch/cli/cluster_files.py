"""The parts of a cluster on this machine: its regions, their ports, directories and processes.

::

    <dir>/cluster.json        the regions and their ports
          <region>/server.log what the server has written
                   data...    its working directory

No list of processes is needed: a server holds a lock in its directory, with its process ID in the
file, and the system releases the lock when the process ends for any reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec

from anabranch.cli.failures import Failed
from anabranch.config.settings import Settings

HOST: Final = "127.0.0.1"
_STATE: Final = "cluster.json"


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


@dataclass(frozen=True, slots=True)
class Member:
    """One region: its number and name, and its ports for clients and other regions."""

    number: int
    name: str
    port: Port
    gossip_port: Port
    http_port: Port = 0
    """The port of its page; 0: none."""
    http_token: str = ""
    """The token with which the page may change things."""

    @property
    def page(self) -> str:
        """The address of its page with the token; empty if it has none."""
        return f"http://{HOST}:{self.http_port}/#token={self.http_token}" if self.http_port else ""


class ClusterFiles:
    """The directory of a cluster."""

    def __init__(self, directory: Path, members: list[Member]) -> None:
        self.directory = directory
        self.members = members

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The cluster of a directory; :class:`Failed` if there is none."""
        path = directory / _STATE
        try:
            members = msgspec.convert(json.loads(path.read_text())["regions"], list[Member])
            if not members:
                raise ValueError("it lists no region")
        except FileNotFoundError:
            raise Failed(
                f"there is no cluster in {directory}: start one with 'anabranch cluster up', or "
                "name its directory with --dir"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Failed(
                f"cannot read {path}: {problem}. It lists the regions and their ports; a cluster "
                "that may be forgotten goes with its directory"
            ) from None
        return cls(directory, members)

    @classmethod
    def exists(cls, directory: Path) -> bool:
        """Whether a cluster was started there before."""
        return (directory / _STATE).exists()

    def save(self) -> None:
        """Write the list of regions; raises :class:`Failed`."""
        path = self.directory / _STATE
        text = json.dumps({"regions": [asdict(each) for each in self.members]}, indent=2)
        try:
            for each in self.members:
                self.data(each).mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.touch(mode=0o600)  # it has the token of the pages
            new.write_text(text + "\n")
            os.replace(new, path)
        except OSError as problem:
            raise Failed(f"cannot write {path}: {problem.strerror}") from None

    def member(self, name: str) -> Member:
        """A region by its name; :class:`Failed` if there is none."""
        for each in self.members:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.members)
        raise Failed(f"there is no region '{name}' in {self.directory}; there are {known}")

    def others(self, member: Member) -> list[Member]:
        """All regions but one."""
        return [each for each in self.members if each != member]

    # -- one region ---------------------------------------------------------------------------

    def data(self, member: Member) -> Path:
        """The directory of its server."""
        return self.directory / member.name

    def log(self, member: Member) -> Path:
        """The log file of its server."""
        return self.data(member) / "server.log"

    def log_tail(self, member: Member) -> str:
        """The last line of that file."""
        try:
            lines = self.log(member).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def pid(self, member: Member) -> int | None:
        """The process of its server, None if it is not running."""
        path = self.data(member) / Settings().appenddirname / "lock"
        try:
            with path.open("rb") as file:
                pid = int(file.read(32))
                # Read this before the lock is tried: a server that is starting must find it free.
                os.kill(pid, 0)
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return pid
        except (OSError, ValueError):
            pass
        return None

    def running(self) -> list[Member]:
        """The regions whose servers run."""
        return [each for each in self.members if self.pid(each) is not None]


# -- the ports of the pages of a cluster on this machine --------------------------------------


FIRST_PAGE_PORT: Final = 8080
BLOCKS: Final = 20
BLOCK: Final = 100
"""The distance of the first ports of two tries."""

HOW_TO_INSTALL: Final = "pip install 'anabranch[web]'"
_NEEDS: Final = ("starlette", "uvicorn", "prometheus_client")


def can_serve() -> bool:
    """Whether the extra ``anabranch[web]`` is installed."""
    return all(find_spec(each) is not None for each in _NEEDS)


def with_pages(members: list[Member], first: int | None) -> list[Member]:
    """The regions with the ports of their pages, and one token that lets these act.

    ``first`` is the port of the first page, the others follow; 0: there are none. None: where the
    pages were before, or else the first free ports from 8080 on, if the extra is installed.

    Raises :class:`Failed` if a page is asked for that cannot be served.
    """
    if first is None and not can_serve():
        first = 0
    if first == 0:
        return [replace(each, http_port=0, http_token="") for each in members]
    if first is None and all(each.http_port for each in members):
        return members
    if first is None:
        first = _free_ports(members)
    elif not can_serve():
        raise Failed(f"--http-port needs an extra that is not installed: {HOW_TO_INSTALL}")
    token = members[0].http_token or secrets.token_hex(16)
    return [
        replace(each, http_port=first + index, http_token=token)
        for index, each in enumerate(members)
    ]


def _free_ports(members: list[Member]) -> int:
    """The first port of a block of free ports."""
    taken = {port for each in members for port in (each.port, each.gossip_port)}
    starts = [FIRST_PAGE_PORT + BLOCK * number for number in range(BLOCKS)]
    for start in starts:
        block = range(start, start + len(members))
        if taken.isdisjoint(block) and not any(map(why_taken, block)):
            return start
    raise Failed(
        f"no ports for pages are free between {starts[0]} and {starts[-1]}: choose with "
        "--http-port, 0 for none"
    )


def why_taken(port: int) -> str | None:
    """Why a server cannot listen at a port; None if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as problem:
            return str(problem.strerror)
    return None
