"""Reads keys from a running server with SCAN and DUMP.

The result is not a snapshot: a key that changes meanwhile may arrive in its old or new state, but
always as a whole. SCAN may name a key twice; it is copied once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import redis

from anabranch.cli.address import Address
from anabranch.cli.failures import message
from anabranch.cli.transfer.client import connect, told_with
from anabranch.cli.transfer.record import KeyRecord, Selection
from anabranch.rdb.errors import PayloadChecksumError
from anabranch.rdb.kinds import SUPPORTED, StreamType
from anabranch.rdb.older import losses_of
from anabranch.rdb.payload import stream_type_of, unframe

_SCAN_COUNT = 500
_BATCH_KEYS = 200
_BATCH_BYTES = 16 << 20
_UNKNOWN_BYTES = 1 << 20
"""The assumed size of a value whose size the server does not report."""
_NO_SUCH_KEY = -2
_NO_DEADLINE = -1


class ScanSource:
    """A server; connects when it is made."""

    unit = "keys"

    def __init__(self, address: Address, selection: Selection) -> None:
        """Raises :class:`Failed` if the server does not report its databases."""
        self.done = 0
        self._address = address
        self._selection = selection
        self._absolute = True  # whether the server knows PEXPIRETIME
        self._is_ours = True  # whether the server knows more of streams than their payloads contain
        with told_with(address), connect(address, 0) as client:
            keyspace = client.info("keyspace")
        sizes = {int(name[2:]): facts["keys"] for name, facts in keyspace.items()}
        wanted = selection.databases
        self._databases = sorted(db for db in sizes if not wanted or db in wanted)
        self.total: int | None = sum(sizes[db] for db in self._databases)

    def records(self, value_bytes_max: int) -> Iterator[KeyRecord]:
        """All keys, database by database, large values included: the caller decides."""
        del value_bytes_max  # the size is known only when the value has arrived
        for db in self._databases:
            with told_with(self._address), connect(self._address, db) as client:
                yield from self._database(client, db)

    def losing(self, rdb_version: int) -> Iterator[tuple[int, bytes, list[str]]]:
        """Streams of this server that a version cannot hold, and what they would lose.

        Found by XINFO, so that nobody waits for the values; a stream of which that is refused is
        not named.
        """
        for db in self._databases:
            with told_with(self._address), connect(self._address, db) as client:
                yield from _losing_in(client, db, self._selection, stream_type_of(rdb_version))

    def passed_over(self) -> dict[str, int]:
        """Empty: only keys are visible."""
        return {}

    def close(self) -> None:
        """Do nothing: connections end with the keys of their database."""

    def _database(self, client: Any, db: int) -> Iterator[KeyRecord]:
        seen: set[bytes] = set()
        cursor = 0
        while True:
            cursor, found = client.scan(cursor, match=self._selection.pattern, count=_SCAN_COUNT)
            keys = [key for key in dict.fromkeys(found) if key not in seen]
            seen.update(keys)
            yield from self._keys(client, db, keys)
            if not cursor:
                return

    def _keys(self, client: Any, db: int, keys: list[bytes]) -> Iterator[KeyRecord]:
        """Ask for kinds and sizes first, so that the values that are fetched together fit."""
        with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.type(key)
                pipe.execute_command("MEMORY", "USAGE", key, "SAMPLES", "5")
            replies = pipe.execute(raise_on_error=False)
        batch: list[tuple[bytes, str]] = []
        batch_bytes = 0
        for key, kind, usage in zip(keys, replies[::2], replies[1::2], strict=True):
            self.done += 1
            if isinstance(kind, redis.ResponseError):
                yield _unreadable(db, key, "unknown", message(kind))
                continue
            name = kind.decode("utf-8", "replace")
            if name not in SUPPORTED:
                if name != "none":  # gone meanwhile
                    yield KeyRecord(db, key, name, None, None, 0, 0)
                continue
            batch_bytes += usage if isinstance(usage, int) else _UNKNOWN_BYTES
            if batch and (batch_bytes > _BATCH_BYTES or len(batch) == _BATCH_KEYS):
                yield from self._values(client, db, batch)
                batch_bytes = usage if isinstance(usage, int) else _UNKNOWN_BYTES
                batch = []
            batch.append((key, name))
        if batch:
            yield from self._values(client, db, batch)

    def _values(self, client: Any, db: int, batch: list[tuple[bytes, str]]) -> Iterator[KeyRecord]:
        deadline = "PEXPIRETIME" if self._absolute else "PTTL"
        with client.pipeline(transaction=False) as pipe:
            for key, _ in batch:
                pipe.execute_command("DUMP", key)
                pipe.execute_command(deadline, key)
            replies = pipe.execute(raise_on_error=False)
        beside = self._beside(client, [key for key, kind in batch if kind == "stream"])
        if self._absolute and _unknown_command(replies[1]):  # before Redis 7.0
            self._absolute = False
            yield from self._values(client, db, batch)
            return
        now_ms = 0 if self._absolute else time.time_ns() // 1_000_000
        for (key, kind), payload, left in zip(batch, replies[::2], replies[1::2], strict=True):
            for problem in (payload, left):
                if isinstance(problem, redis.ResponseError):
                    yield _unreadable(db, key, kind, message(problem))
                    break
            else:
                if payload is None or left == _NO_SUCH_KEY:  # gone meanwhile
                    continue
                expire_at_ms = None if left == _NO_DEADLINE else now_ms + left
                yield _record(db, key, kind, expire_at_ms, payload, beside.get(key, (0, 0)))

    def _beside(self, client: Any, keys: list[bytes]) -> dict[bytes, tuple[int, int]]:
        """How many entries of streams have other IDs in their payloads, and ledger records."""
        if not self._is_ours or not keys:
            return {}
        with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.execute_command("AB.EQUALIDS", key)
                pipe.execute_command("AB.LEDGER", key)
            replies = pipe.execute(raise_on_error=False)
        self._is_ours = not all(isinstance(each, redis.ResponseError) for each in replies[:2])
        return {
            key: (
                count if isinstance(count, int) else 0,
                len(records) if isinstance(records, list) else 0,
            )
            for key, count, records in zip(keys, replies[::2], replies[1::2], strict=True)
        }


def _losing_in(
    client: Any, db: int, selection: Selection, stream_type: StreamType
) -> Iterator[tuple[int, bytes, list[str]]]:
    found = client.scan_iter(match=selection.pattern, count=_SCAN_COUNT, _type="stream")
    keys = (key for key in dict.fromkeys(found) if selection.takes(db, key))
    while some := list(islice(keys, _BATCH_KEYS)):
        with client.pipeline(transaction=False) as pipe:
            for key in some:
                pipe.xinfo_stream(key, full=True)
            replies = pipe.execute(raise_on_error=False)
        for key, facts in zip(some, replies, strict=True):
            if not isinstance(facts, dict):
                continue
            lost = losses_of(
                stream_type,
                nacked=sum(group.get("nacked-count", 0) for group in facts["groups"]),
                iids=facts.get("iids-tracked", 0),
                idmp_settings=(facts.get("idmp-duration"), facts.get("idmp-maxsize")),
            )
            if lost:
                yield db, key, lost


def _record(
    db: int,
    key: bytes,
    kind: str,
    expire_at_ms: int | None,
    payload: bytes,
    beside: tuple[int, int],
) -> KeyRecord:
    try:
        body, version = unframe(payload)
    except PayloadChecksumError as problem:
        return _unreadable(db, key, kind, f"its payload cannot be read: {problem}")
    found = KeyRecord(db, key, kind, expire_at_ms, body, version, len(body))
    renumbered, ledger = beside
    return replace(found, renumbered=renumbered, ledger=ledger)


def _unreadable(db: int, key: bytes, kind: str, problem: str) -> KeyRecord:
    return KeyRecord(db, key, kind, None, None, 0, 0, problem)


def _unknown_command(reply: object) -> bool:
    return isinstance(reply, redis.ResponseError) and "unknown command" in str(reply)
