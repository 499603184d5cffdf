"""redis-py for transfers: one connection, no automatic retries, replies as bytes."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.cli.address import CONNECT_SECONDS_MAX, Address
from anabranch.cli.transfer.record import TransferFailed
from anabranch.rdb.payload import RDB_VERSION

__all__ = ["connect", "message", "payload_bytes_max", "rdb_version_of"]

_BULK_BYTES_DEFAULT = 512 << 20

_RDB_VERSIONS = (((8, 8), 14), ((8, 6), 13), ((7, 4), 12), ((7, 2), 11), ((7, 0), 10))
"""The RDB versions that versions of Redis read, the newest first."""


def connect(address: Address, db: int) -> Any:
    """A client on one database; nothing is sent yet.

    A command that may have been executed is not sent again: the key would be refused because it
    exists.
    """
    options: dict[str, Any] = {
        "db": db,
        "username": address.user and os.fsencode(address.user),
        "password": address.password and os.fsencode(address.password),
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": address.timeout,
        "socket_connect_timeout": min(address.timeout, CONNECT_SECONDS_MAX),
        "socket_keepalive": True,
    }
    if address.path is not None:
        return redis.Redis(unix_socket_path=address.path, **options)
    if address.tls:
        options |= {
            "ssl": True,
            "ssl_ca_certs": address.cacert,
            "ssl_certfile": address.cert,
            "ssl_keyfile": address.key,
            "ssl_cert_reqs": "none" if address.insecure else "required",
            "ssl_check_hostname": not address.insecure,
        }
    return redis.Redis(host=address.host, port=address.port, **options)


_CONNECTING: Final = re.compile(r"^Error -?\d+ connecting to \S+ ")
"""The text that redis-py puts before the reason of the system; the address is named anyway."""

_CURES: Final = (
    ("Authentication required", "give -a PASSWORD, and --user NAME, or set REDISCLI_AUTH"),
    ("invalid username-password pair", "check -a, --user and REDISCLI_AUTH"),
    ("has no permissions", "ACL SETUSER on the server allows more, --user names another user"),
    ("Connection refused", "no server listens there, -h and -p name another one"),
    ("Name or service not known", "-h names another host"),
    ("unknown command 'AB.", "this is another server, and the command needs Anabranch"),
)

_CURES_OF_OTHER: Final = (
    ("Authentication required", "put user:password@ into its URL, or set ANABRANCH_OTHER_AUTH"),
    ("invalid username-password pair", "check its URL and ANABRANCH_OTHER_AUTH"),
    ("has no permissions", "ACL SETUSER on the server allows more, its URL names the user"),
    ("Connection refused", "no server listens where the URL says"),
    ("Name or service not known", "check the host of the URL"),
)
"""For the side of a transfer that a URL names."""


def message(problem: Exception, address: Address | None = None) -> str:
    """The error and, if there is one, its remedy, on one line."""
    cures = _CURES_OF_OTHER if address is not None and address.is_other else _CURES
    text = " ".join(str(problem).split()) or type(problem).__name__
    text = _CONNECTING.sub("cannot connect: ", text)
    cure = next((cure for sign, cure in cures if sign in text), None)
    return text if cure is None else f"{text.rstrip('.')}: {cure}"


def rdb_version_of(client: Any, address: Address) -> int:
    """The newest RDB version that the server reads, by the Redis version it claims."""
    try:
        text = str(client.info("server")["redis_version"])
    except (redis.ResponseError, KeyError) as problem:
        raise TransferFailed(
            f"{address} does not report its version ({message(problem, address)}): name what it "
            f"reads with --rdb-version 10 ... {RDB_VERSION}"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", text)
    release = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    for since, version in _RDB_VERSIONS:
        if release >= since:
            return version
    raise TransferFailed(f"{address} is Redis {text}; 7.0 or newer is needed")


def payload_bytes_max(client: Any) -> int:
    """``proto-max-bulk-len``, or its default where the server does not report it."""
    try:
        return int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"])
    except (redis.ResponseError, KeyError, ValueError):
        return _BULK_BYTES_DEFAULT
