"""Who writes: what is the same in every attempt of a task.

It decides between exactly once and at least once. The query, the batch and the partition are the
same when a task is repeated and after every restart from the checkpoint, so by them rows that came
before are recognised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import redis

from anabranch.errors import AnabranchError
from anabranch.spark.options import WriteOptions
from anabranch.spark.task import Task

if TYPE_CHECKING:
    from anabranch.spark.client import Client

__all__ = ["Identity", "WriteFailed", "needs_identity", "require_same_producer"]

_OF_QUERY: Final = re.compile(r"spark/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")
_same: set[tuple[str, bytes, str, str]] = set()  # what this process has found to be in order


class WriteFailed(AnabranchError):
    """Rows could not be written; what was written stays, and a repetition goes on behind it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes, the same in every attempt."""

    producer: str
    """``spark/<query>/<sink>``; the partition is added where rows are told apart by place."""
    partition: int
    batch: int
    chosen: bool
    """The batch number comes from the user, who then may well give an old one."""
    query: str | None = None
    """The streaming query, if one writes. Each checkpoint is another one."""
    named: bool = False
    """The producer has its name from the user."""

    @property
    def task(self) -> str:
        """Producer and partition."""
        return f"{self.producer}/{self.partition}"

    @classmethod
    def of_task(cls, options: WriteOptions, job: str | None) -> Self:
        """Of the task that runs this. `job` is what stands for the query in a plain batch write.

        A streaming write of which Spark does not tell them is refused: guessing would be
        duplicates. So is a plain batch write with a name and no number: all its runs would be one
        batch, and the rows of the second one would be taken for repetitions.
        """
        task = Task.running()
        if task is None:
            raise WriteFailed("a writer only works within a task of Spark")
        known = (task.query or options.producer_id) and task.batch is not None
        if job is None and not known and needs_identity(options):
            raise WriteFailed(
                "this Spark does not tell its tasks which query and batch they belong to (local "
                "properties sql.streaming.queryId and streaming.sql.batchId), so repeated rows "
                "could not be recognised. Write in foreachBatch with options producerId and "
                "batchId, or choose idempotence=none"
            )
        if (
            task.batch is None
            and options.producer_id is not None
            and options.batch_id is None
            and needs_identity(options)
            and options.idempotence != "column"
        ):
            raise WriteFailed(
                f"producerId={options.producer_id} names a job and not its run: give batchId as "
                "well, a number that is greater in each run and the same when a run is repeated, "
                "or leave producerId out, and each save() is new data"
            )
        number = options.batch_id if options.batch_id is not None else task.batch or 0
        name = options.producer_id or task.query or job
        return cls(
            f"spark/{name}/{options.sink_id}",
            task.partition,
            number,
            options.batch_id is not None,
            task.query,
            options.producer_id is not None,
        )


def needs_identity(options: WriteOptions) -> bool:
    """Whether rows are told apart by who writes them."""
    return options.idempotence != "none" and not options.preserve_ids


def require_same_producer(client: Client, key: bytes, identity: Identity, way: str) -> None:
    """Refuse a query that would write to a stream as somebody else than before.

    A new checkpoint is a new query: the stream does not recognise the rows that it writes again. So
    is a query that gets a name, or another way (option idempotence) to know rows. Raises
    `WriteFailed`. Nothing is asked of servers without AB.PRODUCERS, which list no producers.
    """
    asked = (client.address, key, identity.producer, way)
    if identity.query is None or asked in _same or not client.has_bulk:
        return
    (reply,) = client.pipeline([("AB.PRODUCERS", key)], repeatable=True)
    if isinstance(reply, redis.RedisError):
        if "no such key" in str(reply):
            return
        raise client.refusal(reply)
    found: dict[str, set[str]] = {}
    for row in reply:
        facts = dict(zip(row[::2], row[1::2], strict=True))
        name = facts[b"producer"].decode("utf-8", "replace")
        start = "/".join(name.split("/")[:3])
        found.setdefault(start, set()).add(_way(name[len(start) + 1 :], facts))
    ways = found.get(identity.producer, set())
    stream = key.decode("utf-8", "backslashreplace")
    advice = (
        "If this stream has none of the rows that this query writes from now on, give "
        "allowProducerChange=true"
    )
    if ways and way not in ways:
        raise WriteFailed(
            f"this query wrote to stream {stream} with idempotence={'/'.join(sorted(ways))}, and "
            f"now it has {way}: a batch that is repeated would be written again. {advice}"
        )
    others = {match[1] for each in found if (match := _OF_QUERY.match(f"{each}/"))}
    if not ways and identity.named and identity.query in others:
        raise WriteFailed(
            f"this query wrote to stream {stream} without a producerId, and now it has one: a "
            f"batch that is repeated would be written again. Leave it out again. {advice}"
        )
    if not ways and not identity.named and others - {identity.query}:
        raise WriteFailed(
            f"stream {stream} has rows of another query ({sorted(others - {identity.query})[0]}) "
            f"and none of this one ({identity.query}). Was the checkpoint made anew? Rows that are "
            "read again would be written again: go on with the old checkpoint, or write to a new "
            f"stream. {advice}. A producerId names a query, whatever its checkpoint"
        )
    _same.add(asked)


def _way(rest: str, facts: Mapping[bytes, Any]) -> str:
    """By which option a producer knows rows: its name tells, behind that of the sink."""
    if facts[b"batches"]:
        return "ledger"
    kind = rest.partition("/")[0]
    return kind if kind in ("content", "column") else "position"
