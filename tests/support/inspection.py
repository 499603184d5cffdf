"""What a server, and the operating system about it, say of connections and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.wire import RespClient

if TYPE_CHECKING:
    from tests.support.servers import ServerProcess

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def has_proc() -> bool:
    """Whether this system shows the files and memory of a process under /proc."""
    return Path("/proc/self/fd").is_dir() and Path("/proc/self/statm").exists()


def processes_that_name(directory: Path) -> list[str]:
    """The command lines that contain a path."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if os.fsencode(directory) in (line := path.read_bytes()):
                found.append(line.decode("utf-8", "replace"))
    return found


def wait_until(it_is_so: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Ask again until it is so."""
    deadline = time.monotonic() + seconds
    while not it_is_so():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def open_files(server: ServerProcess) -> int:
    """How many file descriptors the process holds."""
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def rss_bytes(server: ServerProcess) -> int:
    """Memory of the process that is in RAM now."""
    assert server.process is not None
    words = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(words[1]) * PAGE_BYTES


def info(client: RespClient, *sections: str) -> dict[str, str]:
    """The fields of INFO."""
    _, text = client.call("INFO", *sections)
    lines = text.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def number(client: RespClient, field: str) -> int:
    """One integer field of INFO."""
    return int(info(client)[field])


def mistakes(server: ServerProcess) -> list[str]:
    """Lines of the log that confess a defect."""
    signs = ("internal_error", "Traceback", "Fatal", "never retrieved", "Exception ignored")
    return [line for line in server.log_text().splitlines() if any(sign in line for sign in signs)]
