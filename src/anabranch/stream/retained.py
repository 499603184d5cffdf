"""The policies of a stream as a whole, as values, and what keeping to them needs beside them.

Both are of this process alone: they follow from the rules of the keyspace
(``keyspace/policies.py``), are in no file and no effect, and are made again at every start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anabranch.config.policies import NO_KEEP_LIMIT, KeepLimit

if TYPE_CHECKING:
    from anabranch.stream.groups.group import Group
    from anabranch.stream.region_log import RegionLog

UNREAD: Final = "unread"
UNACKED: Final = "unacked"


class StreamPolicy:
    """The values in force for a stream. Those that nobody has set remove nothing."""

    __slots__ = (
        "exact",
        "idle_ms",
        "keep",
        "keep_limit",
        "max_age_ms",
        "max_bytes",
        "max_length",
        "values",
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        """``values`` are those that were set, by the names of policies."""
        self.values = dict(values)
        self.max_age_ms: int = values.get("max-age", 0)
        self.max_length: int = values.get("max-length", 0)
        self.max_bytes: int = values.get("max-bytes", 0)
        self.exact: bool = values.get("exact", False)
        self.keep: str = values.get("keep", "none")
        self.keep_limit: KeepLimit = values.get("keep-limit", NO_KEEP_LIMIT)
        self.idle_ms: int = values.get("ignore-groups-idle", 0)
        """Groups that nobody has used for so long count no more; 0: all count."""

    @property
    def has_limits(self) -> bool:
        """Whether there is a limit of age, length or bytes."""
        return bool(self.max_age_ms or self.max_length or self.max_bytes)

    @property
    def retains(self) -> bool:
        """Whether something may have to be removed."""
        return self.has_limits or self.keep == UNACKED

    @property
    def counts_each(self) -> bool:
        """Whether a single new entry may be one too many."""
        return self.exact and self.max_length > 0


class _Sign(NamedTuple):
    """What a group looked like, and since when."""

    of: tuple[int, int, int, int]
    since_ms: int


class Retained:
    """What a stream with retention has beside it: ``stream.retained`` is None without any."""

    __slots__ = ("_deadlines", "_key", "_signs", "_weights", "policy")

    def __init__(
        self, policy: StreamPolicy, key: bytes, deadlines: MutableMapping[bytes, int]
    ) -> None:
        """``deadlines`` say when to look at which key."""
        self.policy = policy
        self._key = key
        self._deadlines = deadlines
        self._signs: dict[bytes, _Sign] = {}
        self._weights: dict[int, _Weights] = {}

    def look(self) -> None:
        """The stream has changed: look at it soon."""
        self._deadlines[self._key] = 0

    def awake(
        self, groups: Mapping[bytes, Group], now_ms: int
    ) -> tuple[Mapping[bytes, Group], int]:
        """The groups that count, and when the next of them is to be looked at again, 0: never.

        A sign of life is whatever moves a group, a consumer that reads, and the first look.
        """
        idle_ms = self.policy.idle_ms
        if not idle_ms:
            return groups, 0
        before, self._signs = self._signs, {}
        found: dict[bytes, Group] = {}
        next_ms = 0
        for name, group in groups.items():
            pending = group.pending
            looks = (
                id(group),
                group.progress.last_delivered_id,
                pending.count,
                pending.acknowledgements,
            )
            sign = before.get(name)
            if sign is None or sign.of != looks:
                sign = _Sign(looks, now_ms)
            self._signs[name] = sign
            seen = [consumer.seen_ms for consumer in group.consumers.values()]
            end_ms = max(sign.since_ms, *seen, 0) + idle_ms
            if end_ms > now_ms:
                found[name] = group
                next_ms = min(next_ms or end_ms, end_ms)
        return found, next_ms

    def weight(self, logs: Mapping[int, RegionLog]) -> int:
        """The bytes of names and values of all entries, as nodes count them."""
        total = 0
        for replica_id, log in logs.items():
            weights = self._weights.get(replica_id)
            if weights is None:
                weights = self._weights[replica_id] = _Weights()
            total += weights.of(log)
        return total


class _Weights:
    """The weights of the blocks of a log, each read once."""

    __slots__ = ("_blocks", "_sum")

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int]] = deque()  # first position, weight; without the newest
        self._sum = 0

    def of(self, log: RegionLog) -> int:
        """The weight of all blocks."""
        first = log.oldest(0)
        if first is None:
            self._blocks.clear()
            self._sum = 0
            return 0
        blocks = self._blocks
        while blocks and blocks[0][0] < first.first_position:
            self._sum -= blocks.popleft()[1]
        while blocks and log.oldest(len(blocks)) is None:
            self._sum -= blocks.pop()[1]
        if blocks and not self._continues(log):  # blocks have gone in the middle
            blocks.clear()
            self._sum = 0
        newest = log.oldest(len(blocks))
        assert newest is not None
        while (after := log.oldest(len(blocks) + 1)) is not None:
            blocks.append((newest.first_position, newest.weight))
            self._sum += newest.weight
            newest = after
        return self._sum + newest.weight

    def _continues(self, log: RegionLog) -> bool:
        """Whether the blocks that are known are the first ones of the log."""
        last = log.oldest(len(self._blocks) - 1)
        return last is not None and last.first_position == self._blocks[-1][0]
