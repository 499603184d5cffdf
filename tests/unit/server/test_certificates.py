"""Certificates of a region: what they say, when they are read again, when somebody is warned."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from anabranch.config.settings import Settings
from anabranch.errors import ConfigError
from anabranch.server.region_links import Certificates
from anabranch.server.tls import RegionTls, expiry_of, names_in
from tests.support.region_certificates import write

NOW = datetime.now(UTC).replace(microsecond=0)
DAY_S = 86400


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def settings_for(directory: Path) -> Settings:
    settings = Settings()
    settings.tls_cert_file = str(directory / "cert.pem")
    settings.tls_key_file = str(directory / "key.pem")
    settings.tls_ca_cert_file = str(directory / "ca.pem")
    return settings


class Noted(list[tuple[str, dict[str, Any]]]):
    def __call__(self, event: str, **facts: object) -> None:
        self.append((event, facts))

    def take(self) -> list[str]:
        events = [event for event, _ in self]
        self.clear()
        return events


@pytest.mark.parametrize("days", [-3, 40])
def test_the_end_of_a_certificate_is_read_also_when_it_is_over(
    tmp_path: Path, authority: trustme.CA, days: int
) -> None:
    end = NOW + timedelta(days=days)
    write(tmp_path, authority, authority, "eu", not_before=NOW - timedelta(days=9), not_after=end)
    tls = RegionTls(settings_for(tmp_path))
    assert tls.expires == int(end.timestamp())
    assert tls.fault() == (
        "" if days > 0 else "the certificate is not accepted: certificate has expired"
    )


def test_what_is_no_certificate_has_no_end(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, authority, authority, "eu")
    assert expiry_of(str(tmp_path / "nothing"), "", "") is None
    (tmp_path / "cert.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    assert expiry_of(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"), "") is None


def test_the_first_of_two_certificates_to_end_counts(tmp_path: Path, authority: trustme.CA) -> None:
    soon = NOW + timedelta(days=2)
    write(tmp_path, authority, authority, "eu")
    write(tmp_path / "dialling", authority, authority, "eu", not_after=soon)
    settings = settings_for(tmp_path)
    settings.tls_client_cert_file = str(tmp_path / "dialling" / "cert.pem")
    settings.tls_client_key_file = str(tmp_path / "dialling" / "key.pem")
    assert RegionTls(settings).expires == int(soon.timestamp())


def test_names_are_the_common_name_and_dns_names() -> None:
    certificate = {
        "subject": ((("organizationName", "o"),), (("commonName", "eu"),)),
        "subjectAltName": (("DNS", "eu.example"), ("IP Address", "10.0.0.1")),
    }
    assert names_in(certificate) == {"eu", "eu.example"}
    assert names_in({}) == frozenset()


def test_somebody_is_warned_once_at_each_step(tmp_path: Path, authority: trustme.CA) -> None:
    end = NOW + timedelta(days=400)
    write(tmp_path, authority, authority, "eu", not_after=end)
    noted = Noted()
    certificates = Certificates(settings_for(tmp_path), noted)
    end_s = end.timestamp()
    told = []
    for hours in range(40 * 24, -48, -6):
        assert not certificates.check_files((40 * 24 - hours) * 1e6, end_s - hours * 3600)
        told += [(hours / 24, facts["expired"]) for _, facts in noted]
        noted.clear()
    assert told == [(30, False), (7, False), (1, False), (0, True)]


def test_files_are_read_again_when_they_have_changed(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, authority, authority, "eu")
    noted = Noted()
    certificates = Certificates(settings_for(tmp_path), noted)
    first = certificates.tls
    assert not certificates.check_files(10_000, time.time())
    (tmp_path / "key.pem").write_text("half")
    assert not certificates.check_files(20_000, time.time())
    assert certificates.tls is first
    assert noted.take() == ["certificate_refused"]
    assert not certificates.check_files(30_000, time.time())
    assert noted.take() == [], "the same is told once"
    write(tmp_path, authority, authority, "eu")
    os.utime(tmp_path / "cert.pem", (1, 1))
    assert not certificates.check_files(30_500, time.time()), "it looks once a second"
    assert certificates.check_files(31_500, time.time())
    assert certificates.tls is not first
    assert noted.take() == ["certificate_renewed"]


def test_an_authority_is_needed(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, authority, authority, "eu")
    settings = settings_for(tmp_path)
    settings.tls_ca_cert_file = ""
    with pytest.raises(ConfigError, match="tls-replication needs tls-ca-cert-file"):
        RegionTls(settings)
    settings = settings_for(tmp_path)
    settings.tls_protocols = "TLSv1.1"
    with pytest.raises(ConfigError, match=r"only TLSv1\.2 and TLSv1\.3"):
        RegionTls(settings)
