"""Payloads of DUMP and their values, at once."""

from __future__ import annotations

from anabranch.rdb.payload import RDB_VERSION, decode_body, encode_body, frame, unframe
from anabranch.rdb.values import Value


def encode_payload(value: Value, *, rdb_version: int = RDB_VERSION) -> bytes:
    """The payload of a value for servers that know a version."""
    return frame(encode_body(value, rdb_version=rdb_version), rdb_version)


def decode_payload(payload: bytes) -> Value:
    """The value inside a payload; raises :class:`anabranch.rdb.errors.PayloadError`."""
    return decode_body(unframe(payload)[0])
