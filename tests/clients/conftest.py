"""A server for real clients, and the programs some of them are."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.inspection import mistakes
from tests.support.servers import AnabranchServer

NODE_SOURCES = Path(__file__).with_name("node")
INSTALL_SECONDS = 120
GO_SOURCES = Path(__file__).with_name("go")
GO_PATH = Path("/usr/share/gocode")
GO_BUILD_SECONDS = 300


@pytest.fixture(scope="module")
def real_server() -> Iterator[AnabranchServer]:
    """Our server, which must not confess a mistake while clients use it."""
    with AnabranchServer(extra=["--enable-debug-command", "yes"]) as server:
        yield server
        assert not mistakes(server)


@pytest.fixture
def server(real_server: AnabranchServer) -> AnabranchServer:
    """The same, without data."""
    with real_server.client() as client:
        assert client.call("FLUSHALL") == ("+", b"OK")
    return real_server


def missing(message: str, *, forgiven: bool) -> NoReturn:
    """Skip with a reason that is shown; where CI=true fail, unless that is `forgiven`."""
    if os.environ.get("CI") == "true" and not forgiven:
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def redis_cli() -> str:
    """The redis-cli program."""
    path = shutil.which("redis-cli")
    if path is None:
        missing("redis-cli is not installed: IT IS NOT TRIED", forgiven=False)
    return path


@pytest.fixture(scope="session")
def node_project(request: pytest.FixtureRequest) -> Path:
    """A directory with the Node clients installed and our scripts beside them.

    The packages are kept in pytest's cache, under a name made of the lock file.
    """
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        missing("node or npm is not installed: THE NODE CLIENTS ARE NOT TRIED", forgiven=True)
    lock = NODE_SOURCES / "package-lock.json"
    name = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    place = request.config.cache.mkdir("node-clients") / name
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as fresh:
            install(npm, Path(fresh))
            # Another worker may have been faster.
            with suppress(OSError):
                os.rename(fresh, place)
    for script in NODE_SOURCES.glob("*.mjs"):
        replace(script, place / script.name)
    return place


def install(npm: str, directory: Path) -> None:
    """Install what the lock file names; where CI=true that must succeed."""
    for each in ("package.json", "package-lock.json"):
        shutil.copy(NODE_SOURCES / each, directory)
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    try:
        done = subprocess.run(
            [npm, "ci", *flags],
            cwd=directory,
            check=False,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
        problem = done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"npm did not finish in {INSTALL_SECONDS} s"
    if problem:
        missing(f"npm cannot install the clients, THEY ARE NOT TRIED: {problem}", forgiven=False)


def built_with_go(name: str, client: str, place: Path) -> str:
    """A program of ``go/`` that needs one client of Debian's packages."""
    if shutil.which("go") is None or not (GO_PATH / "src" / client).is_dir():
        missing(f"go or {client} is not installed: IT IS NOT TRIED", forgiven=True)
    program = str(place / name)
    settings = {"GO111MODULE": "off", "GOPATH": str(GO_PATH), "GOCACHE": str(place / "cache")}
    subprocess.run(
        ["go", "build", "-o", program, GO_SOURCES / f"{name}.go"],
        env=os.environ | settings,
        check=True,
        timeout=GO_BUILD_SECONDS,
    )
    return program


def replace(source: Path, target: Path) -> None:
    """Copy a file so that a reader sees the old one or the new one, never half of it."""
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        file.write(source.read_bytes())
    os.replace(file.name, target)
