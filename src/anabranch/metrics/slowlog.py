"""The slow log: the latest requests that took longer than a threshold.

Kept small on purpose: at most ``max_len`` entries, each with at most 32 arguments of at most 128
bytes, cut the way Redis cuts them. The client's name, which Redis keeps whole, is cut like them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from sys import getsizeof
from typing import Final, NamedTuple, Protocol

from anabranch.metrics.holdings import bytes_of

NEVER_NS: Final = (1 << 62) - 1
"""A threshold that no request reaches: switched off. The greatest short integer in machine code."""

_ARGUMENT_BYTES_MAX: Final = 128


class Named(Protocol):
    """Who has sent a request, as SLOWLOG shows it."""

    address: str
    name: bytes


class SlowRequest(NamedTuple):
    """One entry of the slow log."""

    id: int
    unix_seconds: int
    usec: int
    args: list[bytes]
    address: str
    client_name: bytes
    args_count: int
    """Of the request as it came, its name included."""
    cpu_usec: int
    """The time for which a processor worked on it: at most ``usec``."""


class SlowLog:
    """Slow requests, newest first.

    ``threshold_ns``, ``max_len`` and ``max_args`` are set from outside.
    """

    def __init__(self, threshold_us: int = 10_000, max_len: int = 128) -> None:
        self.threshold_ns = NEVER_NS
        self.max_len = max_len
        self.max_args = 32
        """How many arguments of a request are kept; the last one counts those that are not."""
        self.entries: deque[SlowRequest] = deque()
        self.used_bytes = 0
        """The memory of the entries."""
        self._next_id = 0
        self.set_threshold_us(threshold_us)

    def set_threshold_us(self, threshold_us: int) -> None:
        """Take over ``slowlog-log-slower-than``: 0 logs every request, negative none."""
        self.threshold_ns = threshold_us * 1000 if threshold_us >= 0 else NEVER_NS

    def record(
        self, unix_seconds: int, times: tuple[int, int], args: Sequence[bytes], client: Named
    ) -> None:
        """Remember a request and drop the oldest ones beyond ``max_len``.

        ``times`` are the whole time and that of the processor, in nanoseconds.
        """
        spent_ns, cpu_ns = times
        request = SlowRequest(
            self._next_id,
            unix_seconds,
            spent_ns // 1000,
            _brief(args, self.max_args),
            client.address,
            shortened(client.name),
            len(args),
            cpu_ns // 1000,
        )
        self._next_id += 1
        self.entries.appendleft(request)
        self.used_bytes += _size(request)
        while len(self.entries) > self.max_len:
            self.used_bytes -= _size(self.entries.pop())

    def reset(self) -> None:
        """Forget every entry; IDs go on from where they were."""
        self.entries.clear()
        self.used_bytes = 0


def shortened(data: bytes) -> bytes:
    """A name or argument as logs keep it: at most 128 bytes, and how many there were beside."""
    if len(data) <= _ARGUMENT_BYTES_MAX:
        return data
    return data[:_ARGUMENT_BYTES_MAX] + b"... (%d more bytes)" % (len(data) - _ARGUMENT_BYTES_MAX)


def _size(request: SlowRequest) -> int:
    size = getsizeof(request) + getsizeof(request.address) + getsizeof(request.client_name)
    return size + 3 * getsizeof(1) + bytes_of(request.args)


def _brief(args: Sequence[bytes], count: int) -> list[bytes]:
    kept = list(args)
    if len(kept) > count:
        kept = kept[: count - 1]
    shown = [shortened(arg) for arg in kept]
    if len(kept) < len(args):
        shown.append(b"... (%d more arguments)" % (len(args) - len(kept)))
    return shown
