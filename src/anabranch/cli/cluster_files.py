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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec

from anabranch.config.settings import Settings

HOST: Final = "127.0.0.1"
_STATE: Final = "cluster.json"


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class ClusterFailed(Exception):
    """An error text for the operator, on one line."""


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
        """The cluster of a directory; :class:`ClusterFailed` if there is none."""
        path = directory / _STATE
        try:
            members = msgspec.convert(json.loads(path.read_text())["regions"], list[Member])
            if not members:
                raise ValueError("it lists no region")
        except FileNotFoundError:
            raise ClusterFailed(
                f"there is no cluster in {directory}: start one with 'anabranch cluster up', or "
                "name its directory with --dir"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ClusterFailed(
                f"cannot read {path}: {problem}. It lists the regions and their ports; a cluster "
                "that may be forgotten goes with its directory"
            ) from None
        return cls(directory, members)

    @classmethod
    def exists(cls, directory: Path) -> bool:
        """Whether a cluster was started there before."""
        return (directory / _STATE).exists()

    def save(self) -> None:
        """Write the list of regions; raises :class:`ClusterFailed`."""
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
            raise ClusterFailed(f"cannot write {path}: {problem.strerror}") from None

    def member(self, name: str) -> Member:
        """A region by its name; :class:`ClusterFailed` if there is none."""
        for each in self.members:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.members)
        raise ClusterFailed(f"there is no region '{name}' in {self.directory}; there are {known}")

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
