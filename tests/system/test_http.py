"""The HTTP port: health, who may ask, and what happens without its libraries."""

from __future__ import annotations

import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http import ask
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, free_port

pytest.importorskip("starlette", reason="the extra web is not installed")

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The HTTP port of a server."""
    number = free_port()
    extra = ["--http-port", str(number), "--http-hosts", "eu.example.com", "--http-token", TOKEN]
    with AnabranchServer(extra=extra):
        yield number


def test_a_server_that_works_is_healthy_and_ready(port: int) -> None:
    for path in ("/healthz", "/readyz"):
        answer = ask(port, path)
        assert (answer.status, answer.body) == (200, b"ok\n")


def test_it_listens_on_this_machine_alone(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 60):
        pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((_other_address(), port), 60).close()


def _other_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address = str(probe.getsockname()[0])
    return address if not address.startswith("127.") else "127.0.0.2"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]", "EU.example.com:80"])
def test_names_of_this_machine_are_answered(port: int, host: str) -> None:
    assert ask(port, "/nowhere", Host=host).json["error_code"] == "not_found"


@pytest.mark.parametrize("host", ["evil.example.com", "", "localhost.evil.example", "[::1"])
def test_other_names_are_refused(port: int, host: str) -> None:
    answer = ask(port, "/nowhere", Host=host)
    assert (answer.status, answer.json["error_code"]) == (421, "wrong_host")
    assert ask(port, "/readyz", Host=host).status == 200, "machines ask by whatever name"


def test_nobody_is_sent_to_another_site(port: int) -> None:
    for path in ("/healthz/", "/v1/bdbs/", "/v1/bdbs/1/availability/"):
        assert ask(port, path, Host="evil.example.com").status == 404


def test_every_answer_says_what_a_browser_may_do_with_it(port: int) -> None:
    for path in ("/healthz", "/nowhere"):
        headers = ask(port, path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_requests_of_other_sites_change_nothing(port: int) -> None:
    answer = ask(port, "/nowhere", "POST", Origin="http://evil.example.com", X_Anabranch_Act="1")
    assert (answer.status, answer.json["error_code"]) == (403, "wrong_origin")
    answer = ask(port, "/nowhere", "POST")
    assert (answer.status, answer.json["error_code"]) == (403, "no_act_header")


def test_a_disk_in_trouble_is_not_ready(tmp_path: Path) -> None:
    number = free_port()
    with AnabranchServer(tmp_path, ["--http-port", str(number)]) as server:
        with server.client() as client:
            client.call("XADD", "s", "*", "f", "v")
        directory = next(tmp_path.rglob("appendonlydir"))
        directory.rename(tmp_path / "elsewhere")
        wait_until(lambda: ask(number, "/readyz").status == 503, "the log is gone")
        assert b"log cannot be written" in ask(number, "/readyz").body
        assert ask(number, "/healthz").status == 200
        (tmp_path / "elsewhere").rename(directory)
        wait_until(lambda: ask(number, "/readyz").status == 200, "the log is back")


def test_without_its_libraries_the_start_names_the_extra(tmp_path: Path) -> None:
    for option in (["--http-port", str(free_port())], ["--availability-api", "yes"]):
        without = (
            "import sys; sys.modules['starlette'] = None; "
            "from anabranch.cli.main import main; main()"
        )
        done = subprocess.run(
            [
                *(sys.executable, "-c", without, "serve", "--port", str(free_port())),
                *("--dir", str(tmp_path), *option),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "pip install 'anabranch[web]'" in done.stderr


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()
