"""Checks by the producers of a stream whether it recognises the writing query."""

from __future__ import annotations

import re
from typing import Final

from anabranch.spark.connection.client import ServerClient, facts_of, shown
from anabranch.spark.writing.identity import WriteFailed, WriterIdentity

_OF_QUERY: Final = re.compile(r"spark/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")
_same: set[tuple[str, bytes, str, str, str | None]] = set()  # what this process has checked


def require_same_producer(
    client: ServerClient, key: bytes, identity: WriterIdentity, way: str
) -> int:
    """Refuse a query that would write to a stream under another identity than before.

    Returns how many partitions the batch has in the stream, at least, as far as is known.

    A new checkpoint makes a new query, whose repeated rows the stream does not recognise. The same
    holds for a query with a new name or another option `idempotence`. Raises `WriteFailed`. Does
    nothing for servers without AB.PRODUCERS.
    """
    asked = (client.address, key, identity.producer, way, identity.run)
    if identity.query is None or asked in _same or not client.has_bulk:
        return 0
    (reply,) = client.ask([("AB.PRODUCERS", key)])
    if reply is None:
        return 0
    partitions = 0
    own = f"{identity.producer}/"
    ways: set[str] = set()
    others: set[str] = set()
    for facts in map(facts_of, reply):
        name = facts["producer"].decode("utf-8", "replace")
        if name.startswith(own):
            ways.add("ledger" if facts["batches"] else "position")
            number = name.removeprefix(own).partition("/")[0]
            if number.isdigit() and identity.batch in (
                batch for _, _, batch, *_ in facts["batches"]
            ):
                partitions = max(partitions, int(number) + 1)
        elif match := _OF_QUERY.match(name):
            others.add(match[1])
    stream = shown(key)
    advice = (
        "If this stream has none of the rows that this query writes from now on, give "
        "allowProducerChange=true"
    )
    if ways and way not in ways:
        raise WriteFailed(
            f"this query wrote to stream {stream} with idempotence={'/'.join(sorted(ways))}, and "
            f"now it has {way}: a batch that is repeated would be written again. {advice}"
        )
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
    return partitions
