"""redis-py for transfers: one connection, no automatic retries, replies as bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.cli.address import CONNECT_SECONDS_MAX, Address
from anabranch.cli.failures import Failed, message
from anabranch.rdb.payload import RDB_VERSION

_BULK_BYTES_DEFAULT = 512 << 20

_RDB_VERSIONS = (((8, 8), 14), ((8, 6), 13), ((7, 4), 12), ((7, 2), 11), ((7, 0), 10))
"""The RDB versions that versions of Redis read, the newest first."""


def connect(address: Address, db: int, **form: Any) -> Any:
    """A client on one database; nothing is sent yet. ``form`` is that of its replies.

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
        **form,
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


@contextmanager
def told_with(address: Address) -> Iterator[None]:
    """Raise :class:`Failed`, with the address and the remedy, if a server fails meanwhile."""
    try:
        yield
    except (redis.RedisError, OSError) as problem:
        raise Failed(f"{address}: {message(problem, address)}") from None


def fields_of(flat: Sequence[Any]) -> dict[Any, Any]:
    """A map in the form of RESP2."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def rdb_version_of(client: Any, address: Address) -> int:
    """The newest RDB version that the server reads, by the Redis version it claims."""
    try:
        text = str(client.info("server")["redis_version"])
    except (redis.ResponseError, KeyError) as problem:
        raise Failed(
            f"{address} does not report its version ({message(problem, address)}): name what it "
            f"reads with --rdb-version 10 ... {RDB_VERSION}"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", text)
    release = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    for since, version in _RDB_VERSIONS:
        if release >= since:
            return version
    raise Failed(f"{address} is Redis {text}; 7.0 or newer is needed")


def payload_bytes_max(client: Any) -> int:
    """``proto-max-bulk-len``, or its default where the server does not report it."""
    try:
        return int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"])
    except (redis.ResponseError, KeyError, ValueError):
        return _BULK_BYTES_DEFAULT


def require_databases(address: Address, databases: Iterable[int]) -> None:
    """Raise :class:`Failed` if a server lacks one of these databases."""
    for db in sorted(databases):
        try:
            with connect(address, db) as client:
                client.ping()
        except redis.exceptions.NoPermissionError:
            continue  # for PING: the database was selected
        except redis.RedisError as problem:
            raise Failed(f"{address}: database {db}: {message(problem, address)}") from None
