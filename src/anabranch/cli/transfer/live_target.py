"""Writes keys into a running server with RESTORE, many at a time."""

from __future__ import annotations

from typing import Any, Final

import redis

from anabranch.cli.address import Address
from anabranch.cli.failures import Failed, message
from anabranch.cli.transfer.client import connect, payload_bytes_max, rdb_version_of, told_with
from anabranch.cli.transfer.record import Item, TransferOptions
from anabranch.cli.transfer.summary import Summary
from anabranch.rdb.payload import frame

_BATCH_KEYS: Final = 500
_BATCH_BYTES: Final = 8 << 20
_EXISTS: Final = "the key exists; --replace overwrites it"


class LiveTarget:
    """A server; connects when it is made."""

    def __init__(self, address: Address, summary: Summary, options: TransferOptions) -> None:
        """The server is asked for the RDB version that it reads, unless the options name one.

        In a dry run keys are only looked up.
        """
        self._address = address
        self._summary = summary
        self._replace = options.replace
        self._dry_run = options.dry_run
        self._batch: list[Item] = []
        self._batch_bytes = 0
        self._db = 0
        self._no_database: dict[int, str] = {}
        self._client = connect(address, 0)
        with told_with(address):
            self.rdb_version = options.rdb_version or rdb_version_of(self._client, address)
            self.value_bytes_max = payload_bytes_max(self._client)

    def put(self, item: Item) -> None:
        """Collect keys, and send them when there are enough."""
        if item.db != self._db:
            self._flush()
            self._select(item.db)
        if item.db in self._no_database:
            self._summary.refused(self._no_database[item.db], item.db, item.key)
            return
        if self._batch and self._batch_bytes + len(item.body) > _BATCH_BYTES:
            self._flush()
        self._batch.append(item)
        self._batch_bytes += len(item.body)
        if len(self._batch) == _BATCH_KEYS:
            self._flush()

    def finish(self, *, complete: bool) -> None:
        """Send the rest, complete or not: keys that were sent stay."""
        del complete
        self._flush()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _select(self, db: int) -> None:
        self._client.close()
        self._client = connect(self._address, db)
        self._db = db
        if db in self._no_database:
            return
        with told_with(self._address):
            try:
                self._client.ping()
            except redis.ResponseError as problem:
                reason = message(problem, self._address)
                self._no_database[db] = f"{self._address}: SELECT {db}: {reason}"

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        self._batch_bytes = 0
        if not batch:
            return
        try:
            with told_with(self._address), self._client.pipeline(transaction=False) as pipe:
                for item in batch:
                    self._ask(pipe, item)
                replies = pipe.execute(raise_on_error=False)
        except Failed as problem:
            if self._dry_run:
                raise
            raise Failed(
                f"{problem}; up to {len(batch)} keys may have arrived that are not counted"
            ) from None
        for item, reply in zip(batch, replies, strict=True):
            self._account(item, reply)

    def _ask(self, pipe: Any, item: Item) -> None:
        if self._dry_run:
            pipe.execute_command("EXISTS", item.key)
            return
        words: list[bytes | int | str] = [item.key, item.expire_at_ms or 0]
        words.append(frame(item.body, self.rdb_version))
        if self._replace:
            words.append("REPLACE")
        if item.expire_at_ms is not None:
            words.append("ABSTTL")
        pipe.execute_command("RESTORE", *words)

    def _account(self, item: Item, reply: object) -> None:
        if isinstance(reply, redis.ResponseError):
            text = message(reply)
            reason = _EXISTS if "BUSYKEY" in text or "Target key name" in text else text
            self._summary.refused(reason, item.db, item.key)
        elif self._dry_run and reply and not self._replace:
            self._summary.refused(_EXISTS, item.db, item.key)
        else:
            self._summary.arrived(item)
