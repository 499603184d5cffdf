"""redis-py's own tests of streams, locks and scripts, from the source archive on PyPI.

The archive has the version of the installed redis-py. It is downloaded once and kept in pytest's
cache; nothing of it is in this repository.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.conftest import missing
from tests.support.servers import AnabranchServer

VERSION = importlib.metadata.version("redis")
SECONDS = 300
DOWNLOAD_SECONDS = 100

pytestmark = pytest.mark.timeout(SECONDS + 120)


def download(directory: Path) -> str:
    """Get the source archive; returns what went wrong."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "2"]
    command += ["--no-binary", "redis", "--dest", str(directory), f"redis=={VERSION}"]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"pip did not get the source archive of redis-py in {DOWNLOAD_SECONDS} s"
    return f"pip has no source archive of redis-py: {done.stderr}" if done.returncode else ""


@pytest.fixture(scope="session")
def archive(request: pytest.FixtureRequest) -> Path:
    """The unpacked source archive."""
    place = request.config.cache.mkdir("redis-py") / f"redis-{VERSION}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as fresh:
            problem = download(Path(fresh))
            if problem:
                missing(f"ITS TESTS ARE NOT RUN: {problem}", forgiven=False)
            with tarfile.open(Path(fresh) / f"redis-{VERSION}.tar.gz") as packed:
                # Python 3.11.4 brought filters.
                packed.extraction_filter = getattr(tarfile, "data_filter", None)
                packed.extractall(fresh)
            with suppress(OSError):  # another worker may have been faster
                os.rename(Path(fresh) / place.name, place)
    return place


def files(name: str) -> list[str]:
    """Those of the archive that test something, for both kinds of clients."""
    return [f"tests/{name}.py", f"tests/test_asyncio/{name}.py"]


def run_suite(
    archive: Path, server: AnabranchServer, protocol: int, *selection: str
) -> tuple[int, str]:
    """How many tests passed, and the output; a failure among them fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:anabranch", "-p", "no:pytest_redis", "-p", "no:xdist", "-W", "ignore"]
    command += ["--redis-url", f"redis://127.0.0.1:{server.port}", "--protocol", str(protocol)]
    command += ["-m", "not onlycluster and not redismod", *selection]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        command,
        cwd=archive,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    return int(passed[1]), done.stdout


def test_its_tests_of_locks_pass(archive: Path, server: AnabranchServer) -> None:
    passed, said = run_suite(archive, server, 3, *files("test_lock"))
    assert passed >= 90, said


def test_its_tests_of_scripts_pass(archive: Path, server: AnabranchServer) -> None:
    passed, said = run_suite(archive, server, 3, *files("test_scripting"))
    assert passed >= 30, said


@pytest.mark.parametrize(
    "protocol", [pytest.param(2, marks=pytest.mark.long), 3], ids=["RESP2", "RESP3"]
)
def test_its_tests_of_streams_pass(archive: Path, server: AnabranchServer, protocol: int) -> None:
    both = files("test_commands")
    chosen = both if protocol == 2 else both[:1]  # the asyncio client sends the same
    passed, said = run_suite(archive, server, protocol, *chosen, "-k", "test_x")
    assert passed >= 60, said
