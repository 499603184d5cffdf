"""TLS between regions: certificates that are accepted, refused, renewed, and about to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.support.inspection import info, mistakes, wait_until
from tests.support.region_certificates import DIRECTIVES, write
from tests.support.servers import AnabranchServer, free_port, server_in
from tests.support.wire import Reply

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def stranger() -> trustme.CA:
    return trustme.CA()


def start(
    tmp_path: Path,
    eu: tuple[str, ...] = DIRECTIVES,
    us: tuple[str, ...] = DIRECTIVES,
) -> list[AnabranchServer]:
    """Two regions whose certificates are in place."""
    gossip = free_port()
    one = ("--region-id", "1", "--region-name", "eu", "--gossip-port", str(gossip))
    two = ("--region-id", "2", "--region-name", "us", "--gossip-port", str(free_port()))
    return [
        server_in(tmp_path / "eu", *one, "--cluster-create", "yes", *eu).start(),
        server_in(tmp_path / "us", *two, "--join", f"127.0.0.1:{gossip}", *us).start(),
    ]


def place(tmp_path: Path, region: str) -> Path:
    return tmp_path / region / "data"


def in_sync(servers: list[AnabranchServer]) -> Callable[[], bool]:
    return lambda: [peer(server).get(b"state") for server in servers] == [("$", b"in_sync")] * 2


def peer(server: AnabranchServer) -> dict[bytes, Reply]:
    """The only other region, as AB.PEERS shows it."""
    with server.client(resp=3) as client:
        rows = client.call("AB.PEERS")[1]
    return {name[1]: value for name, value in rows[0][1]} if rows else {}


def told(server: AnabranchServer, words: str) -> Callable[[], bool]:
    return lambda: words in server.log_text()


def both_tell(servers: list[AnabranchServer], eu: str, us: str) -> None:
    """What the logs of both must have said, and that they stay apart."""
    for server, words in zip(servers, (eu, us), strict=True):
        wait_until(told(server, words), f"{server.directory.name}: {words}")
        assert peer(server).get(b"state", ("$", b"unheard of"))[1] != b"in_sync"
        assert not mistakes(server)


def test_regions_that_show_certificates_are_in_sync(tmp_path: Path, authority: trustme.CA) -> None:
    ends = datetime.now(UTC) + 100 * DAY
    for name in ("eu", "us"):
        write(place(tmp_path, name), authority, authority, name, not_after=ends)
    servers = start(tmp_path)
    wait_until(in_sync(servers), "both are in sync")
    for server in servers:
        assert peer(server)[b"certificate-expires"] == (":", int(ends.timestamp()))
        with server.client() as client:
            left = int(info(client, "replication")["tls_server_cert_expires_in_seconds"])
        assert 99 * 86400 < left <= 100 * 86400
        assert not mistakes(server)
        assert "certificate" not in server.log_text()
        assert "tls_refused" not in server.log_text()
    with servers[0].client() as client:
        client.call("XADD", "s", "*", "f", b"v" * 3_000_000)
        assert client.call("WAIT", "1", "60000") == (":", 1)


def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, authority: trustme.CA, stranger: trustme.CA
) -> None:
    write(place(tmp_path, "eu"), authority, authority, "eu")
    write(place(tmp_path, "us"), stranger, authority, "us")
    servers = start(tmp_path)
    both_tell(
        servers,
        "unable to get local issuer certificate",
        "its log has the reason",
    )
    assert "region.certificate_bad" in servers[1].log_text(), "it was warned at the start"
    # The right one is taken as it comes, and nobody is restarted.
    write(place(tmp_path, "us"), authority, authority, "us")
    wait_until(in_sync(servers), "both are in sync")
    assert "region.certificate_renewed" in servers[1].log_text()


def test_an_authority_that_only_one_side_trusts_is_not_enough(
    tmp_path: Path, authority: trustme.CA, stranger: trustme.CA
) -> None:
    write(place(tmp_path, "eu"), authority, authority, "eu")
    write(place(tmp_path, "us"), authority, stranger, "us")
    both_tell(
        start(tmp_path),
        "it broke off the handshake: it has no TLS, or does not accept our certificate",
        "unable to get local issuer certificate",
    )


def test_an_expired_certificate_is_refused(tmp_path: Path, authority: trustme.CA) -> None:
    now = datetime.now(UTC)
    write(place(tmp_path, "eu"), authority, authority, "eu")
    write(
        place(tmp_path, "us"), authority, authority, "us",
        not_before=now - 9 * DAY, not_after=now - DAY,
    )  # fmt: skip
    servers = start(tmp_path)
    both_tell(
        servers,
        "the certificate is not accepted: certificate has expired",
        "its log has the reason",
    )
    assert '"expired": true' in servers[1].log_text()


def test_a_certificate_that_ends_soon_is_warned_of_and_renewed(
    tmp_path: Path, authority: trustme.CA
) -> None:
    now = datetime.now(UTC)
    write(place(tmp_path, "eu"), authority, authority, "eu", not_after=now + 5 * DAY)
    write(place(tmp_path, "us"), authority, authority, "us")
    servers = start(tmp_path)
    eu = servers[0]
    wait_until(in_sync(servers), "both are in sync")
    wait_until(lambda: "region.certificate_expires" in eu.log_text(), "it was told")
    assert eu.log_text().count("region.certificate_expires") == 1
    (place(tmp_path, "eu") / "cert.pem").write_bytes(b"half a certif")
    wait_until(lambda: "region.certificate_refused" in eu.log_text(), "it cannot be used")
    assert in_sync(servers)()
    with eu.client() as client:
        answer = client.call("CONFIG", "SET", "tls-cert-file", "nowhere.pem")
        assert answer[0] == "-"
        assert client.call("CONFIG", "GET", "tls-cert-file")[1][1] == ("$", b"cert.pem")
    write(place(tmp_path, "eu"), authority, authority, "eu", not_after=now + 300 * DAY)
    wait_until(lambda: "region.certificate_renewed" in eu.log_text(), "the new one is used")
    with eu.client() as client:
        assert int(info(client)["tls_server_cert_expires_in_seconds"]) > 200 * 86400
    assert in_sync(servers)(), "the connection has stayed"
    assert peer(eu)[b"connects"] == (":", 1)


def test_a_certificate_of_another_region_is_refused(tmp_path: Path, authority: trustme.CA) -> None:
    write(place(tmp_path, "eu"), authority, authority, "eu")
    write(place(tmp_path, "us"), authority, authority, "ap", "ap.example")
    words = "region 2 is us, its certificate is for ap, ap.example"
    both_tell(start(tmp_path), words, words)


def test_a_side_without_tls_is_told_apart(tmp_path: Path, authority: trustme.CA) -> None:
    for name in ("eu", "us"):
        write(place(tmp_path, name), authority, authority, name)
    eu, us = start(tmp_path, eu=())
    wait_until(lambda: "tls-replication is no here" in eu.log_text(), "eu tells why")
    wait_until(lambda: "it has no TLS, or" in us.log_text(), "us guesses it")


def test_a_side_without_tls_is_not_let_in(tmp_path: Path, authority: trustme.CA) -> None:
    write(place(tmp_path, "eu"), authority, authority, "eu")
    eu, us = start(tmp_path, us=())
    wait_until(lambda: "it may have no TLS" in eu.log_text(), "eu tells why")
    assert peer(us) == {}


def test_a_secret_is_asked_for_on_top(tmp_path: Path, authority: trustme.CA) -> None:
    for name in ("eu", "us"):
        write(place(tmp_path, name), authority, authority, name)
    servers = start(
        tmp_path,
        (*DIRECTIVES, "--gossip-secret", "a" * 16),
        (*DIRECTIVES, "--gossip-secret", "b" * 16),
    )
    wait_until(lambda: "the secrets differ" in servers[1].log_text(), "it is told")
    assert peer(servers[1]) == {}


def test_a_region_without_authorities_does_not_start(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, authority, authority, "eu")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "anabranch", "serve", "--port", str(free_port())),
            *("--dir", str(tmp_path), "--region-id", "1", "--cluster-create", "yes"),
            *DIRECTIVES[:6],
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "tls-replication needs tls-ca-cert-file or tls-ca-cert-dir" in done.stderr
