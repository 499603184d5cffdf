"""redis_exporter, a program in Go, reads everything it shows from this server.

The program is Debian's package, unpacked in pytest's cache and not installed. What it asks is
compared with redis-server's replies in tests/system/test_exporter.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.conftest import missing
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, free_port

PACKAGE = "prometheus-redis-exporter"

# The rules that the page of the program proposes for its user, without the password.
RULES = """
    -@all +@connection +memory -readonly +strlen +config|get +xinfo +pfcount -quit +zcard +type
    +xlen -readwrite -command +client -wait +scard +llen +hlen +get +eval +slowlog +cluster|info
    +cluster|slots +cluster|nodes -hello -echo +info +latency +scan -reset -auth -asking
"""


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest) -> str:
    """The program: an installed one, or Debian's."""
    installed = shutil.which(PACKAGE)
    if installed is not None:
        return installed
    place = request.config.cache.mkdir("redis-exporter") / "package"
    if not place.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            missing("no Debian: REDIS_EXPORTER IS NOT TRIED", forgiven=True)
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as fresh:
            unpacked = Path(fresh) / "unpacked"
            got = subprocess.run(
                ["apt-get", "download", "--quiet", PACKAGE],
                cwd=fresh,
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
            )
            if got.returncode != 0:
                missing(f"apt-get: REDIS_EXPORTER IS NOT TRIED: {got.stderr}", forgiven=True)
            (archive,) = Path(fresh).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True, timeout=60)
            with suppress(OSError):  # another worker may have been faster
                os.rename(unpacked, place)
    return str(place / "usr/bin" / PACKAGE)


@pytest.fixture
def metrics_url(program: str, server: AnabranchServer) -> Iterator[str]:
    """Where the program shows what it read, of the streams that begin with `s`."""
    port = free_port()
    with server.client() as client:
        user = ("ACL", "SETUSER", "exporter", "on", ">secret", "~*", *RULES.split())
        assert client.call(*user) == ("+", b"OK")
    process = subprocess.Popen(
        [
            program,
            *("-redis.user", "exporter", "-redis.password", "secret"),
            *("-redis.addr", f"redis://127.0.0.1:{server.port}"),
            *("-web.listen-address", f"127.0.0.1:{port}"),
            *("-check-streams", "s*", "-check-keys", "k*", "-include-system-metrics"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
            return bool(page.status == 200)
        return False

    try:
        wait_until(answers, "redis_exporter answers")
        yield url + "/metrics"
    finally:
        process.kill()
        _, said = process.communicate()
    assert "level=error" not in said, said


def shown_at(url: str) -> dict[str, str]:
    """The value of each series."""
    with urllib.request.urlopen(url, timeout=60) as page:
        lines = page.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_it_shows_streams_and_groups(server: AnabranchServer, metrics_url: str) -> None:
    with server.client() as client:
        for _ in range(3):
            client.call("XADD", "s1", "*", "f", "v")
        client.call("XGROUP", "CREATE", "s1", "g", "0")
        client.call("XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", "s1", ">")
    shown = shown_at(metrics_url)
    assert shown["redis_up"] == "1"
    assert shown['redis_exporter_last_scrape_error{err=""}'] == "0"
    of_stream = '{db="db0",stream="s1"'
    assert shown[f"redis_stream_length{of_stream}}}"] == "3"
    assert shown[f"redis_stream_groups{of_stream}}}"] == "1"
    group = '{db="db0",group="g",stream="s1"'
    assert shown[f"redis_stream_group_messages_pending{group}}}"] == "2"
    assert shown[f"redis_stream_group_consumers{group}}}"] == "1"
    assert int(shown["redis_connected_clients"]) >= 1
    assert float(shown["redis_memory_used_bytes"]) > 0
    assert float(shown['redis_commands_total{cmd="xadd"}']) >= 3


def test_it_shows_keys(server: AnabranchServer, metrics_url: str) -> None:
    with server.client() as client:
        client.call("SET", "k1", "12")
    assert shown_at(metrics_url)['redis_key_value{db="db0",key="k1"}'] == "12"
