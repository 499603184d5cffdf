"""A stranger's first hour: ``python -m tests.guides.hour``, as root, with mmdebstrap installed.

Makes a clean Debian, clones what is committed here into it, and follows the README and the pages
there with Debian's own Python. The tests that play the pages (`tests/guides`, the sessions, the
upgrade of regions) run there, too. For each step its time and what it left on the disk are printed;
the first step that fails ends the hour. It needs some 2 GB and the network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from tests.house.markdown import fences, pages
from tests.support.servers import REPOSITORY, free_port

PACKAGES = "python3 python3-venv git make ca-certificates redis-tools redis-server curl openssl"
"""What the pages take for granted; no C compiler yet."""
CLONE = "/opt/anabranch"
STEP_SECONDS = 3600
INSTALLED_MB_MAX = 60
"""What `pip install .` may leave on the disk, beside pip and setuptools."""
HANDED_ON = ("_CERT", "_CA_", "SSL_", "CA_BUNDLE", "PROXY", "proxy", "PIP_DEFAULT_TIMEOUT")
"""Parts of the names of variables by which this machine reaches its registries."""


class Debian:
    """A root file system, and what is done in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = [each for each in os.environ if any(part in each for part in HANDED_ON)]
        self._environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            **{name: os.environ[name] for name in names},
        }
        self.began = time.monotonic()

    def make(self, suite: str) -> None:
        """Make the file system, unless it is there already, with a new clone in it."""
        words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
        if not self.root.exists():
            subprocess.run([*words, suite, str(self.root)], check=True)
        (self.root / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            shutil.copyfile(Path("/", name), self.root / name)
        clone = self.root / CLONE.lstrip("/")
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", REPOSITORY, clone], check=True)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """With the file systems of the kernel that programs expect."""
        with ExitStack() as stack:
            for kind, place in (("proc", "proc"), ("devpts", "dev/pts")):
                target = str(self.root / place)
                subprocess.run(["mount", "-t", kind, kind, target], check=True)
                stack.callback(subprocess.run, ["umount", "--lazy", target], check=True)
            yield

    def command(self, line: str) -> subprocess.Popen[str]:
        """Type a line into a shell in the clone."""
        return subprocess.Popen(
            ["chroot", str(self.root), "bash", "-euc", f"cd {CLONE}; {line}"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def step(self, title: str, line: str, *, expected: str = "", ready: str = "") -> str:
        """Type a line, and print how long it takes; returns what it prints.

        `expected` must be in that. With `ready` the program goes on; it is ended with the signal of
        Ctrl-C when it has printed this.
        """
        began = time.monotonic()
        program = self.command(line)
        printed = ""
        try:
            assert program.stdout is not None
            for each in program.stdout:
                printed += each
                if ready and ready in each:
                    took = time.monotonic() - began
                    os.killpg(program.pid, signal.SIGINT)
                    break
            else:
                took = time.monotonic() - began
            program.wait(STEP_SECONDS)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
        failed = ready not in printed if ready else program.returncode != 0
        if failed or expected not in printed:
            raise SystemExit(f"{title}: FAILED ({program.returncode})\n$ {line}\n{printed}")
        last = printed.rstrip().rpartition("\n")[2]
        click.echo(f"{title:<58} {took:5.0f} s   {last[:90]}")
        return printed


def hour(debian: Debian) -> None:
    """Follow the pages."""
    at = f"--port {free_port()}"
    size = "du -sm --exclude=pip --exclude=setuptools --exclude=pkg_resources"
    readme = pages()["README.md"]
    compiler = "gcc libc6-dev python3-dev"
    assert f"apt-get install {compiler}" in readme
    (example,) = (each.body for each in fences(readme, "python") if "xgroup_create" in each.body)
    (shown,) = (each.body for each in fences(readme, "text"))
    (debian.root / "opt" / "example.py").write_text(example.replace("6379", at.split()[1]))
    run = f"make run ARGS='{at}'"
    ready = "Ready to accept connections"
    debian.step("no compiler", f"apt-get purge -qq {compiler} || true")
    debian.step("Python", "python3 --version", expected="Python 3.")
    debian.step("make run without a C compiler", run, ready=ready)
    debian.step("  its form", ".venv/bin/anabranch version", expected="interpreted")
    debian.step("  its size in MB", f"{size} .venv/lib/python3*/site-packages")
    debian.step("a C compiler", f"apt-get update -qq; apt-get install -qq {compiler}; rm -rf .venv")
    debian.step("make run", run, ready=ready)
    debian.step("  its form", ".venv/bin/anabranch version", expected="compiled")
    debian.step("  its size in MB", f"{size} .venv/lib/python3*/site-packages")
    debian.step("make run again", run, ready=ready)
    port = at.split()[1]
    lines = (
        f".venv/bin/anabranch serve {at} --appendonly no >/dev/null 2>&1 & trap 'kill %1' EXIT",
        f"until redis-cli -p {port} PING 2>/dev/null | grep -q PONG; do sleep 0.1; done",
        ".venv/bin/python ../example.py",
    )
    debian.step("the README in Python", "\n".join(lines), expected=shown)
    debian.step("make demo", "make demo ARGS='--pace 0'", expected="claims hold")
    environment = "python3 -m venv venv && . venv/bin/activate"
    debian.step("quickstart: pip install .", f"{environment} && pip install --quiet .")
    found = debian.step("  its size in MB", f"{size} venv/lib/python3*/site-packages")
    if int(found.split()[0]) > INSTALLED_MB_MAX:
        raise SystemExit(f"pip install . takes more than {INSTALLED_MB_MAX} MB")
    debian.step("what the tests of the pages need", "make .venv-dev/.quick")
    failover = ".venv-dev/bin/pip install --quiet 'redis[circuit-breaker]'"
    debian.step("README: failover of redis-py", failover)
    tests = "tests/guides tests/house/test_sessions.py tests/clients/test_redis_py_multidb.py"
    played = f"{tests} tests/system/test_upgrading.py tests/recorded/test_directories.py"
    debian.step("all pages", f".venv-dev/bin/python -m pytest -q -p no:cacheprovider {played}")


def main() -> None:
    """Make the Debian, and spend the hour in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.guides.hour", description=__doc__)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--into", type=Path, help="a directory that is kept, and used again")
    given = parser.parse_args()
    if os.geteuid() or shutil.which("mmdebstrap") is None:
        sys.exit("run this as root, with mmdebstrap: apt-get install mmdebstrap")
    with ExitStack() as stack:
        own = given.into or stack.enter_context(tempfile.TemporaryDirectory(prefix="hour-"))
        debian = Debian(Path(own, "debian"))
        began = time.monotonic()
        debian.make(given.suite)
        click.echo(f"{given.suite:<58} {time.monotonic() - began:5.0f} s")
        stack.enter_context(debian.mounted())
        hour(debian)
        click.echo(f"the whole hour: {(time.monotonic() - debian.began) / 60:.0f} min")


if __name__ == "__main__":
    main()
