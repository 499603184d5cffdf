"""From a fresh clone to the first reply: ``python -m tests.house.first_reply`` runs ``make run``.

It reports what was downloaded and how long it took, and fails above 80 MB, or if the server is not
compiled although a C compiler is at hand. It needs nothing but Python, as `.ci/run` starts it
before anything is installed. What `.venv` has already is not downloaded again, so run it in a clone
without one. ``--without-compiler`` hides the C compiler, and installs into a directory of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MEGABYTES_MAX = 80.0
PATIENCE_S = 900.0

_DOWNLOADED = re.compile(r"Downloading (\S+) \(([\d.]+) (bytes|kB|MB)\)")
_COMPILER = re.compile(r"(?:[\w.-]+-)?(?:cc|gcc|clang|c89|c99)(?:-[\d.]+)?")
_MEGABYTES = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0}


def megabytes(log: str) -> float:
    """What a log of pip names, each file once: pip logs twice what its build processes download."""
    files = {name: float(size) * _MEGABYTES[unit] for name, size, unit in _DOWNLOADED.findall(log)}
    return sum(files.values())


def first_reply(port: int) -> bytes:
    """What the server answers to PING."""
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(b"PING\r\n")
        return client.recv(100)


def form(port: int) -> str:
    """Whether the server says that it runs compiled or interpreted."""
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(b"INFO server\r\nQUIT\r\n")
        with client.makefile("rb") as replies:
            text = replies.read()
    return "compiled" if b"\r\ncompiled:1\r\n" in text else "interpreted"


def path_without_compiler(directory: Path) -> str:
    """Make a directory of links to all programs of PATH but C compilers."""
    directory.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = directory / program.name
            if not _COMPILER.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program.resolve() if program.name == "make" else program)
    return str(directory)


def main() -> int:
    """Run it; the exit code."""
    hidden = "--without-compiler" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "pip.log"
        log.touch()
        command = ["make", "--no-print-directory", "run", f"ARGS=--port 0 --dir {directory}"]
        env = {**os.environ, "PIP_LOG": str(log), "PIP_NO_CACHE_DIR": "1"}
        if hidden:
            command.append(f"INSTALLED={directory}/venv")
            env["PATH"] = path_without_compiler(Path(directory, "bin"))
        began = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            too_late = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
            too_late.start()
            for line in process.stdout:
                if '"server.ready"' in line:
                    address = json.loads(line)["addresses"][0]
                    port = int(address.rpartition(":")[2])
                    reply = first_reply(port)
                    taken = time.monotonic() - began
                    found = form(port)
                    os.killpg(process.pid, signal.SIGTERM)
                    process.stdout.read()  # up to its end
                    too_late.cancel()
                    break
            else:
                too_late.cancel()
                sys.stderr.write("make run ended before the server was ready\n")
                return 1
        downloaded = megabytes(log.read_text("utf-8", "replace"))
    wanted = "interpreted" if hidden or shutil.which("cc") is None else "compiled"
    sys.stdout.write(
        f"from the clone to {reply!r}: {found}, {downloaded:.1f} MB from package indexes, "
        f"{taken:.1f} s; {wanted} and at most {MEGABYTES_MAX:g} MB are wanted\n"
    )
    return 0 if reply == b"+PONG\r\n" and found == wanted and downloaded <= MEGABYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
