"""A region that nobody admits: its log, its health, and what it takes up when somebody does."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.group import command
from tests.support.inspection import wait_until
from tests.support.region_processes import dict_of
from tests.support.servers import AnabranchServer, free_port


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where connections are taken and closed: no region listens there."""
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        yield sock.getsockname()[1]


def health(server: AnabranchServer) -> dict[str, Any]:
    result = CliRunner().invoke(command, ["health", "-p", str(server.port), "--json"])
    facts: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if facts["healthy"] else 1)
    return facts


def failures(server: AnabranchServer) -> list[dict[str, Any]]:
    """The tries in its log."""
    lines = [line for line in server.log_text().splitlines() if line.startswith("{")]
    return [row for row in map(json.loads, lines) if row["event"] == "region.join_failed"]


def test_a_region_that_nobody_admits_says_so(tmp_path: Path, nobody: int) -> None:
    first_port, gossip_port = free_port(), free_port()
    us = AnabranchServer(
        tmp_path / "us",
        extra=[
            *("--region-id", "2", "--region-name", "us", "--gossip-port", str(free_port())),
            *("--join", f"127.0.0.1:{gossip_port} 127.0.0.1:{nobody}"),
        ],
    )
    us.directory.mkdir()
    with us:
        wait_until(
            lambda: (
                {(each["address"].split(":")[1], each["tries"]) for each in failures(us)}
                >= {(str(gossip_port), 1), (str(gossip_port), 2)}
            ),
            "two tries are in the log",
        )
        tried = [each for each in failures(us) if each["address"].endswith(str(gossip_port))]
        assert tried[0]["reason"] == "Connection refused"
        assert tried[0]["level"] == "warning"
        assert tried[1]["again_in_s"] >= 0.1
        facts = health(us)
        assert not facts["healthy"]
        assert f"waits for a member that admits it: 127.0.0.1:{gossip_port}" in facts["reason"]
        assert "Connection refused" in facts["reason"]
        assert facts["reason"].endswith(": its log says more")
        with us.client() as client:
            assert client.call("XADD", "s", "*", "f", "v")[1].startswith(b"READONLY")

        eu = AnabranchServer(
            tmp_path / "eu",
            extra=[
                "--region-id",
                "1",
                "--cluster-create",
                "yes",
                "--gossip-port",
                str(gossip_port),
            ],
        )
        eu.directory.mkdir()
        eu.port = first_port
        with eu:
            assert health(eu)["healthy"]
            wait_until(lambda: health(us)["healthy"], "it is admitted")
            with us.client(resp=3) as client:
                info = client.call("INFO", "replication")[1].decode()
                assert "newcomer_waits_for:\r\n" in info
                assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
            with eu.client(resp=3) as client:
                wait_until(
                    lambda: dict_of(client.call("AB.PEERS")[1][0])[b"state"] == ("$", b"in_sync"),
                    "both are in sync",
                )
