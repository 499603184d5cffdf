"""TLS by the ``tls-*`` directives, towards clients and between regions.

Towards clients there is only the side of the server. Regions dial each other, so each needs both
sides, and each shows a certificate that the other checks. The common name or one of the DNS names
of the certificate must be the name of the region; addresses may change and are not checked.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.config.settings import Settings
from anabranch.errors import ConfigError

_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which Python has no name."""

_ROUNDS: Final = 10
"""More bytes than a handshake has."""


class HalfClosingTls(ssl.SSLObject):
    """One connection that can be written to when the other side has sent its last byte.

    An event loop closes both directions as soon as it reads the other side's end (close_notify), so
    replies that are not written by then are lost. This class hides that end from the event loop: it
    calls ``on_end`` instead, and the callee has to close the connection.
    """

    on_end: Callable[[], None] | None = None
    """Called once; set by the owner of the connection."""
    _has_ended = False

    def read(self, len: int = 1024, buffer: bytearray | None = None) -> bytes:  # type: ignore[override]  # noqa: A002 - the name of the base
        """Bytes that were received; at the end as if nothing had been received yet."""
        data = super().read(len, buffer)
        if not data and self.on_end is not None:
            if not self._has_ended:
                self._has_ended = True
                self.on_end()
            raise ssl.SSLWantReadError
        return data


def client_facing(settings: Settings) -> ssl.SSLContext:
    """The context for clients; ConfigError names the directive that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = HalfClosingTls
    _show(context, *_own(settings))
    if settings.tls_auth_clients != "no":
        _trust(
            context,
            settings,
            "tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir; "
            "set one of them, or tls-auth-clients no",
        )
        required = settings.tls_auth_clients == "yes"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    _limit(context, settings)
    return context


class RegionTls:
    """Both sides of TLS between regions, as the files were when this was made."""

    def __init__(self, settings: Settings) -> None:
        """Read the files; ConfigError names the directive that is wrong."""
        needed = "tls-replication needs tls-ca-cert-file or tls-ca-cert-dir"
        self.accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.dialling.check_hostname = False  # see above: regions, not machines, have names
        shown = {self.accepting: _own(settings), self.dialling: _own_when_dialling(settings)}
        for context, files in shown.items():
            _show(context, *files)
            _trust(context, settings, needed)
            context.verify_mode = ssl.CERT_REQUIRED
            _limit(context, settings)
        ends = [expiry_of(*files[:3]) for files in shown.values()]
        self.expires = min((each for each in ends if each is not None), default=None)
        """When the first own certificate expires, in seconds since 1970; None: unknown."""

    def fault(self) -> str:
        """Why a region with the same settings would refuse the certificate; empty if not."""
        try:
            _meet(self.accepting, self.dialling)
        except ssl.SSLError as problem:
            return sentence(problem)
        return ""


def files_of(settings: Settings) -> dict[str, tuple[int, int]]:
    """Modification time and size of each file that :class:`RegionTls` reads and that exists."""
    found = {}
    for path in (
        settings.tls_cert_file,
        settings.tls_key_file,
        settings.tls_client_cert_file,
        settings.tls_client_key_file,
        settings.tls_ca_cert_file,
    ):
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = status.st_mtime_ns, status.st_size
    return found


def _own(settings: Settings) -> tuple[str, str, str, str]:
    """Certificate, key and password, with the names of their directives."""
    return (
        settings.tls_cert_file,
        settings.tls_key_file,
        settings.tls_key_file_pass,
        "tls-cert-file and tls-key-file",
    )


def _own_when_dialling(settings: Settings) -> tuple[str, str, str, str]:
    """Certificate and key when dialling: as in Redis separate ones, if they are set."""
    if not settings.tls_client_cert_file:
        return _own(settings)
    return (
        settings.tls_client_cert_file,
        settings.tls_client_key_file,
        settings.tls_client_key_file_pass,
        "tls-client-cert-file and tls-client-key-file",
    )


def _show(context: ssl.SSLContext, certificate: str, key: str, password: str, what: str) -> None:
    names = what.split(" and ")
    for name, path in zip(names, (certificate, key), strict=True):
        _readable(name, path)
    try:
        context.load_cert_chain(certificate, key, password or "")
    except ssl.SSLError as problem:
        reason = (problem.reason or str(problem)).replace("_", " ").lower()
        try:
            ssl.create_default_context(cafile=certificate)
        except ssl.SSLError:
            raise ConfigError(f"{names[0]} {certificate}: no certificate in PEM") from None
        if "mismatch" in reason:
            raise ConfigError(
                f"{names[1]} {key}: it is not the key of {names[0]} {certificate}"
            ) from None
        raise ConfigError(
            f"{names[1]} {key}: no key in PEM, or another password is needed ({reason})"
        ) from None
    except OSError as problem:
        raise ConfigError(f"{what}: {problem.strerror or problem}") from None


def _readable(name: str, path: str) -> None:
    """Raise ConfigError with directive and path if a file cannot be read."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as problem:
        raise ConfigError(f"{name} {path}: {problem.strerror or problem}") from None


def _trust(context: ssl.SSLContext, settings: Settings, needed: str) -> None:
    if not (settings.tls_ca_cert_file or settings.tls_ca_cert_dir):
        raise ConfigError(needed)
    if settings.tls_ca_cert_file:
        _readable("tls-ca-cert-file", settings.tls_ca_cert_file)
    try:
        context.load_verify_locations(
            settings.tls_ca_cert_file or None, settings.tls_ca_cert_dir or None
        )
    except OSError as problem:
        name = "tls-ca-cert-file" if settings.tls_ca_cert_file else "tls-ca-cert-dir"
        path = settings.tls_ca_cert_file or settings.tls_ca_cert_dir
        raise ConfigError(f"{name} {path}: {problem.strerror or problem}") from None


def _limit(context: ssl.SSLContext, settings: Settings) -> None:
    """Apply the settings for versions and ciphers to a context."""
    try:
        if settings.tls_ciphers:
            context.set_ciphers(settings.tls_ciphers)
    except OSError as problem:
        raise ConfigError(f"tls-ciphers: {problem.strerror or problem}") from None
    versions = settings.tls_protocols.lower().split()
    unknown = set(versions) - {"tlsv1.2", "tlsv1.3"}
    if unknown:
        raise ConfigError(f"tls-protocols: only TLSv1.2 and TLSv1.3, not {', '.join(unknown)}")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if versions == ["tlsv1.2"]:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif versions == ["tlsv1.3"]:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if settings.tls_prefer_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE


# -- what a certificate says ----------------------------------------------------------------------


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The names in a checked certificate: its common name and its DNS names."""
    subject = [pair for group in certificate.get("subject", ()) for pair in group]
    return frozenset(
        [value for kind, value in subject if kind == "commonName"]
        + [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    )


def expires_in(certificate: Mapping[str, Any]) -> int | None:
    """When a checked certificate expires, in seconds since 1970."""
    end = certificate.get("notAfter")
    return None if end is None else ssl.cert_time_to_seconds(end)


def expiry_of(certificate: str, key: str, password: str) -> int | None:
    """When the certificate in a file expires, or has expired; None if unknown.

    Python shows the contents of checked certificates only, so it is checked against itself.
    """
    showing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname = False
    looking.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    looking.verify_flags |= _NO_CHECK_TIME
    try:
        showing.load_cert_chain(certificate, key, password or "")
        looking.load_verify_locations(certificate)
        return expires_in(_meet(showing, looking))
    except OSError:
        return None


def _meet(accepting: ssl.SSLContext, dialling: ssl.SSLContext) -> Mapping[str, Any]:
    """Check a certificate as the dialling side does; raises :class:`ssl.SSLError`."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = accepting.wrap_bio(up, down, server_side=True)
    client = dialling.wrap_bio(down, up)
    for _ in range(_ROUNDS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return client.getpeercert() or {}


def sentence(problem: OSError) -> str:
    """Why a handshake has failed, as a text for operators."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {problem.verify_message}"
    if not isinstance(problem, ssl.SSLError):
        return "it broke off the handshake: it has no TLS, or does not accept our certificate"
    reason = (problem.reason or str(problem)).replace("_", " ").lower()
    _, alert, name = reason.partition("alert ")
    if alert:
        return f"the other side does not accept our certificate or version: {name}"
    return f"no handshake: {reason}; it may have no TLS"
