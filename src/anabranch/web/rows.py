"""What a survey found of each stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from anabranch.scheduling import Steps
from anabranch.web.plain import shown_name

SHARDS: Final = 256
"""With a million streams a shard has 4,000: to copy it takes a fraction of a millisecond."""

ROWS_PER_STEP: Final = 200


class StreamRow(msgspec.Struct, frozen=True, gc=False):
    """One stream at a survey; rates are per second.

    The garbage collector of the interpreter does not visit rows: they hold numbers and bytes.
    """

    at_s: float
    """When the survey began, by the monotonic clock."""
    db: int
    key: bytes
    length: int
    added: int
    delivered: int
    acknowledged: int
    added_rate: float
    delivered_rate: float
    acknowledged_rate: float
    groups: int
    lag: int
    pending: int
    size: int
    duplicates: int
    remembered: int
    attempts: int
    window_ms: int
    duration_s: int
    room: int
    """How many idempotent IDs its producers may have remembered in all."""
    regions: int
    """The numbers of the regions that have written it, as bits."""

    def described(self) -> dict[str, Any]:
        """The row for JSON."""
        found = {**msgspec.structs.asdict(self), "key": shown_name(self.key)}
        del found["at_s"]
        found["regions"] = [n for n in range(self.regions.bit_length()) if self.regions >> n & 1]
        return found


class Rows:
    """The latest row of each stream.

    They are in shards, because a table of a million rows takes long to copy and to grow. A reader
    may go through them while a survey puts rows.
    """

    def __init__(self) -> None:
        self._shards: list[dict[tuple[int, bytes], StreamRow]] = [{} for _ in range(SHARDS)]

    def find(self, db: int, key: bytes) -> StreamRow | None:
        """The row of a stream."""
        place = db, key
        return self._shards[hash(place) % SHARDS].get(place)

    def put(self, row: StreamRow) -> None:
        """Add a row, or replace the one of its stream."""
        place = row.db, row.key
        self._shards[hash(place) % SHARDS][place] = row

    def some(self) -> Iterator[list[StreamRow]]:
        """All rows, some at a time."""
        rows: list[StreamRow] = []
        for shard in self._shards:
            rows += shard.values()
            if len(rows) >= ROWS_PER_STEP:
                for start in range(0, len(rows), ROWS_PER_STEP):
                    yield rows[start : start + ROWS_PER_STEP]
                rows = []
        yield rows

    def forget_before(self, at_s: float) -> Steps[None]:
        """Remove the rows of surveys that began earlier: these streams are gone."""
        for rows in self.some():
            for row in rows:
                if row.at_s < at_s:
                    place = row.db, row.key
                    self._shards[hash(place) % SHARDS].pop(place, None)
            yield
