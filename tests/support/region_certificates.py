"""Certificates of regions, as files that are found by `tls-*` directives."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import trustme

DIRECTIVES = (
    *("--tls-replication", "yes", "--tls-cert-file", "cert.pem"),
    *("--tls-key-file", "key.pem", "--tls-ca-cert-file", "ca.pem"),
)
"""Of a server whose directory holds what :func:`write` writes."""


def write(
    directory: Path,
    signer: trustme.CA,
    trusted: trustme.CA,
    *names: str,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
) -> None:
    """A certificate for `names`, and whom its owner trusts; the key last, as it must fit."""
    directory.mkdir(parents=True, exist_ok=True)
    made = signer.issue_cert(*names, not_before=not_before, not_after=not_after)
    trusted.cert_pem.write_to_path(str(directory / "ca.pem"))
    chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
    (directory / "cert.pem").write_bytes(chain)
    made.private_key_pem.write_to_path(str(directory / "key.pem"))
