"""The scripts that a server knows, by the hash of their source. They are not part of its data."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from anabranch.metrics.holdings import NAME_BYTES

EVALUATED_MAX: Final = 500
"""The most scripts that were only evaluated; those of SCRIPT LOAD are kept until SCRIPT FLUSH."""

_SCRIPT_BYTES: Final = 2 * NAME_BYTES + 40 + 150
"""What a script takes beside its source: its hash, and a place in a table with an order."""


def sha1_of(source: bytes) -> bytes:
    """The hash by which EVALSHA names a script."""
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


class Scripts:
    """Sources of scripts by their hashes."""

    def __init__(self) -> None:
        self._loaded: dict[bytes, bytes] = {}
        self._evaluated: OrderedDict[bytes, bytes] = OrderedDict()
        self.flushes = 0
        """How often they have been forgotten."""
        self.used_bytes = 0
        """The memory of the sources."""

    def __len__(self) -> int:
        """How many scripts there are of both kinds."""
        return len(self._loaded) + len(self._evaluated)

    def __contains__(self, sha1: bytes) -> bool:
        """Whether EVALSHA finds a script."""
        return sha1 in self._loaded or sha1 in self._evaluated

    def get(self, sha1: bytes) -> bytes | None:
        """The source; None if it is not known."""
        source = self._loaded.get(sha1)
        if source is None:
            source = self._evaluated.get(sha1)
            if source is not None:
                self._evaluated.move_to_end(sha1)
        return source

    def load(self, source: bytes) -> bytes:
        """Keep a script until :meth:`clear`; its hash."""
        sha1 = sha1_of(source)
        if self._evaluated.pop(sha1, None) is None and sha1 not in self._loaded:
            self.used_bytes += _SCRIPT_BYTES + len(source)
        self._loaded[sha1] = source
        return sha1

    def cache(self, sha1: bytes, source: bytes) -> None:
        """Keep an evaluated script; drops the one that was not evaluated for the longest time."""
        if sha1 not in self._loaded:
            if sha1 not in self._evaluated:
                self.used_bytes += _SCRIPT_BYTES + len(source)
            self._evaluated[sha1] = source
            self._evaluated.move_to_end(sha1)
            if len(self._evaluated) > EVALUATED_MAX:
                _, dropped = self._evaluated.popitem(last=False)
                self.used_bytes -= _SCRIPT_BYTES + len(dropped)

    def clear(self) -> None:
        """Forget all scripts, as SCRIPT FLUSH does."""
        self._loaded.clear()
        self._evaluated.clear()
        self.flushes += 1
        self.used_bytes = 0
