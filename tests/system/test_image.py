"""The container image: built from docker/Dockerfile by buildah, and its processes run.

buildah needs no container engine. The base image that the Dockerfile names is made of Debian's own
packages by mmdebstrap. A "container" here is a process below the image's files, with the user,
the environment, the entrypoint and the health check that the image configures.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, free_port
from tests.support.wire import RespClient

pytestmark = [pytest.mark.timeout(900)]

DOCKERFILE = REPOSITORY / "docker" / "Dockerfile"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
DEBIAN = "http://deb.debian.org/debian"
SECONDS = 60.0
ADDED_BYTES_MAX = 50 * 1024 * 1024

START = """
set -eu
root=$1 user=$2 data=$3
shift 3
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$data" "$root/data"
exec chroot --userspec="$user" "$root" sh -c 'cd /data && exec "$@"' sh "$@"
"""
"""Becomes a process of the image, whose files are read-only but for its volume."""


class Image:
    """The built image: its configuration, its files, and its size beside the base."""

    def __init__(self, storage: Path) -> None:
        """`storage` is where buildah keeps images and containers."""
        self.storage = storage

    def buildah(self, *arguments: str) -> str:
        """Run buildah on a store of our own; its standard output."""
        program = ["buildah", "--root", str(self.storage / "root")]
        program += ["--runroot", str(self.storage / "run"), "--storage-driver", "vfs"]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def build(self) -> None:
        """Make the base that the Dockerfile names, then the image."""
        text = DOCKERFILE.read_text("utf-8")
        version = re.search(r"ARG PYTHON_VERSION=(\S+)", text)
        assert version is not None
        container = self.buildah("from", "scratch")
        root = Path(self.buildah("mount", container))
        packages = "python3,python3-venv,ca-certificates"
        bootstrap = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={packages}"]
        bootstrap += ["stable", str(root), DEBIAN]
        made = subprocess.run(bootstrap, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
        (root / "usr/bin/python").symlink_to("python3")
        base = f"docker.io/library/python:{version[1]}-slim"
        self.buildah("commit", "--quiet", container, base)
        self.base_bytes = _size(root)
        self.buildah("rm", container)
        extra = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
        # Compiling takes minutes, and this base has no headers of Python.
        extra += ["--build-arg", "ANABRANCH_COMPILE=0"]
        self.buildah(
            *("build", "--isolation", "chroot", "--pull-never", "--format", "docker", *extra),
            *("--file", str(DOCKERFILE), "--tag", "anabranch", str(REPOSITORY)),
        )
        inspected = json.loads(self.buildah("inspect", "--type", "image", "anabranch"))
        self.config: dict[str, Any] = inspected["Docker"]["config"]
        self.root = Path(self.buildah("mount", self.buildah("from", "anabranch")))
        self.added_bytes = _size(self.root) - self.base_bytes


def _size(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        why = f"{' and '.join(missing)} missing" if missing else "not root"
        pytest.skip(f"{why}: THE CONTAINER IMAGE IS NOT BUILT")
    built = Image(tmp_path_factory.mktemp("image"))
    built.build()
    yield built
    built.buildah("rm", "--all")
    built.buildah("rmi", "--all")


class Container:
    """A process of the image."""

    def __init__(self, image: Image, user: str, data: Path) -> None:
        self.image = image
        self.user = user
        self.data = data
        self.port = free_port()

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start arguments with the image's environment, for this container's port."""
        variables = [*self.image.config["Env"], "ANABRANCH_BIND=127.0.0.1"]
        variables += [f"ANABRANCH_PORT={self.port}"]
        begin = ["unshare", "--mount", "sh", "-c", START, "sh"]
        place = [str(self.image.root), self.user, str(self.data)]
        command = [*begin, *place, "env", "-i", *variables, *arguments]
        return subprocess.Popen(command, text=True, **options)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What `docker exec` does."""
        with self.popen(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output, _ = process.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(arguments, process.returncode, output, "")

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """What `docker run` does, with the image's own command if there are no arguments."""
        config = self.image.config
        log = self.data.parent / "log"
        with log.open("w") as output:
            process = self.popen(
                *config["Entrypoint"],
                *(arguments or config["Cmd"]),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: process.poll() is not None or "ready" in log.read_text(), SECONDS)
            assert process.poll() is None, log.read_text()
            yield process
        finally:
            process.kill()
            process.wait(SECONDS)


def volume(tmp_path: Path, owner: int) -> Path:
    """A directory that is mounted as /data."""
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, owner, owner)
    return data


def health_check(image: Image) -> Sequence[str]:
    kind, *command = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    return [str(word) for word in command]


def test_its_user_is_not_root_and_it_adds_little_to_its_base(image: Image) -> None:
    assert image.config["User"] == "999:999"
    assert image.config["Volumes"] == {"/data": {}}
    assert image.added_bytes < ADDED_BYTES_MAX, image.added_bytes


@pytest.mark.parametrize("user", ["999:999", "4321:4321"])
def test_it_serves_is_healthy_stops_in_order_and_keeps_its_data(
    image: Image, user: str, tmp_path: Path
) -> None:
    data = volume(tmp_path, int(user.split(":", maxsplit=1)[0]))
    container = Container(image, user, data)
    with container.serving() as process, RespClient(container.port) as client:
        assert client.call("EVAL", "return redis.call('XADD', 's', '1-1', 'f', 'v')", "0") == (
            "$",
            b"1-1",
        )
        assert container.run(*health_check(image)).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert container.run(*health_check(image)).returncode == 1
    with container.serving(), RespClient(container.port) as client:
        assert client.call("XLEN", "s") == (":", 1)


def test_as_root_it_gives_the_volume_to_its_user_and_becomes_that_user(
    image: Image, tmp_path: Path
) -> None:
    container = Container(image, "0:0", volume(tmp_path, 0))
    with container.serving("--appendfsync", "no") as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^Uid:\t999\t999\t999\t999$", status, re.MULTILINE)
        assert container.data.stat().st_uid == 999


def test_a_volume_of_somebody_else_is_refused_with_the_way_out(
    image: Image, tmp_path: Path
) -> None:
    container = Container(image, "999:999", volume(tmp_path, 0))
    ended = container.run(*image.config["Entrypoint"], *image.config["Cmd"])
    assert ended.returncode == 1
    assert "/data is not writable for user 999; run 'chown 999 DIRECTORY'" in ended.stdout
