"""Counters and present rates of one server, as INFO reports them."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_ERROR_CODES_MAX: Final = 128
_ERROR_CODE_BYTES_MAX: Final = 128
"""Scripts may answer with any code."""

RELEASES: Final = ("connection", "heartbeat", "time", "consumer-ttl")
"""What releases entries: a lease by its mode, or the policy that removes consumers."""


class CommandStats:
    """Calls and times of one command.

    ``histogram[n]`` counts calls that took between 2**(n-1) and 2**n - 1 nanoseconds; its sum is
    the number of calls, so the hot path has one counter less to raise.
    """

    def __init__(self) -> None:
        self.histogram = [0] * 64
        self._zero()

    def _zero(self) -> None:
        self.total_ns = 0
        self.rejected = 0
        self.failed = 0
        self.slow_count = 0  # of those that entered the slow log
        self.slow_total_ns = 0
        self.slow_longest_ns = 0

    def note_slow(self, spent_ns: int) -> None:
        """A call enters the slow log."""
        self.slow_count += 1
        self.slow_total_ns += spent_ns
        self.slow_longest_ns = max(self.slow_longest_ns, spent_ns)

    def reset(self) -> None:
        """CONFIG RESETSTAT. The list stays the same: the dispatching loop holds on to it."""
        self.histogram[:] = [0] * 64
        self._zero()

    @property
    def calls(self) -> int:
        """Finished executions, failed ones included."""
        return sum(self.histogram)


class Stats:
    """Counters of a server. Attributes are plain integers."""

    def __init__(self) -> None:
        self.started_ms = 0
        self.reset()

    def reset(self) -> None:
        """What CONFIG RESETSTAT zeroes."""
        self.connections_received = 0
        self.commands_processed = 0
        self.reads = 0  # from the sockets of clients
        self.writes = 0
        self.net_input_bytes = 0
        self.net_output_bytes = 0
        self.used_memory_peak = 0  # the most that data and buffers ever held, in bytes
        self.used_memory_peak_ms = 0  # when that was
        self.rejected_connections = 0
        self.evicted_clients = 0
        self.query_limit_closed = 0  # clients closed by client-query-buffer-limit
        self.output_limit_closed = 0  # and by client-output-buffer-limit
        self.expired_keys = 0
        self.keyspace_hits = 0
        self.keyspace_misses = 0
        self.duplicate_ids = 0
        self.idmp_collapsed = 0
        self.ids_ahead_ms = 0
        self.merged_effects = 0  # effects of other regions that were applied
        self.merged_states = 0  # full syncs and single keys of other regions that were joined
        self.policy_released_by = dict.fromkeys(RELEASES, 0)
        """Entries that a policy took away, by the policy."""
        self.policy_given_up = 0  # entries acknowledged without a copy
        self.policy_dead_lettered = 0
        self.policy_halted = 0  # keys that an entry has stopped
        self.policy_redriven = 0
        self.policy_removed_consumers = 0
        self.policy_trimmed = 0  # entries that retention removed
        self.policy_created_groups = 0  # that readers made
        self.scheduled_added = 0  # scheduled entries that were added
        self.scheduled_late_ms = 0  # the one that was added, or tried, last
        self.scheduled_failed = 0  # attempts to add one that failed, and are made again
        self.policy_redelivered = 0  # released entries that plain reads got
        self.prunes = 0  # how often tombstones were looked at, because the watermark had moved
        self.error_replies = 0
        self.errors: dict[str, int] = {}
        self.payloads_checked = 0  # of RESTORE
        self.acl_denied_auth = 0
        self.acl_denied_cmd = 0
        self.acl_denied_key = 0
        self.acl_denied_channel = 0

    @property
    def policy_released(self) -> int:
        """Entries that a lease or a consumer-ttl took away."""
        return sum(self.policy_released_by.values())

    def count_error(self, text: bytes) -> None:
        """An error reply leaves the server; ``text`` is the line without the sign."""
        self.error_replies += 1
        code = text.split(b" ", 1)[0][:_ERROR_CODE_BYTES_MAX].decode("latin-1")
        if len(self.errors) < _ERROR_CODES_MAX or code in self.errors:
            self.errors[code] = self.errors.get(code, 0) + 1


_SAMPLES_MAX: Final = 17  # 16 intervals, 1.6 seconds at the shortest distance
_DISTANCE_MS: Final = 100


class PerSecond(NamedTuple):
    """What happens in a second at present."""

    commands: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0


class Rates:
    """A few samples of counters that only grow.

    A rate is the difference between the oldest and the newest sample, per second.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int, int, int]] = deque(maxlen=_SAMPLES_MAX)

    def sample(self, now_ms: int, stats: Stats) -> None:
        """Note where the counters stand; a call soon after the last one does nothing."""
        samples = self._samples
        if samples and (
            now_ms < samples[-1][0] or stats.commands_processed < samples[-1][1]
        ):  # the clock was put back, or the counters were
            samples.clear()
        if not samples or now_ms - samples[-1][0] >= _DISTANCE_MS:
            samples.append(
                (now_ms, stats.commands_processed, stats.net_input_bytes, stats.net_output_bytes)
            )

    def per_second(self) -> PerSecond:
        """The rates; 0 until there are two samples."""
        if len(self._samples) < 2:
            return PerSecond()
        first, last = self._samples[0], self._samples[-1]
        seconds = (last[0] - first[0]) / 1000
        return PerSecond(
            *[max(new - old, 0) / seconds for old, new in zip(first[1:], last[1:], strict=True)]
        )
