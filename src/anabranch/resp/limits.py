"""Every length and count limit of the protocol, each with its reason. Values follow Redis."""

from __future__ import annotations

from msgspec import Struct

INLINE_MAX = 64 * 1024
"""Longest inline request and longest length header, in bytes: a line without end costs no more."""

ARGUMENT_BYTES = 41
"""What an argument takes beside its payload: a list slot and the head of a bytes object."""

REQUEST_BYTES = 120
"""What a request takes beside its arguments: a list, and where it is kept a tuple and a slot."""


class RequestLimits(Struct, frozen=True):
    """What one request may declare before a single byte of it is stored."""

    arguments_max: int
    bulk_bytes_max: int

    @property
    def is_ordinary(self) -> bool:
        """Whether requests below a million arguments and bytes need no check of their own."""
        return self.arguments_max >= 1_000_000 and self.bulk_bytes_max >= 1_000_000


AUTHENTICATED = RequestLimits(arguments_max=(1 << 31) - 1, bulk_bytes_max=512 * 1024 * 1024)
"""Redis's limits for ordinary clients (``proto-max-bulk-len`` defaults to 512 MiB)."""

UNAUTHENTICATED = RequestLimits(arguments_max=10, bulk_bytes_max=16384)
"""Enough for HELLO 3 AUTH user password SETNAME name; strangers may not make us allocate."""
