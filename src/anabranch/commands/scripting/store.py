"""The scripts that a server knows, by the hash of their source. They are not part of its data."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

__all__ = ["EVALUATED_MAX", "Scripts", "sha1_of"]

EVALUATED_MAX: Final = 500
"""The most scripts that were only evaluated; those of SCRIPT LOAD are kept until SCRIPT FLUSH."""


def sha1_of(source: bytes) -> bytes:
    """The hash by which EVALSHA names a script."""
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


class Scripts:
    """Sources by hash."""

    def __init__(self) -> None:
        self._loaded: dict[bytes, bytes] = {}
        self._evaluated: OrderedDict[bytes, bytes] = OrderedDict()
        self.flushes = 0
        """How often they have been forgotten."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._loaded) + len(self._evaluated)

    def __contains__(self, sha1: bytes) -> bool:
        """Whether EVALSHA finds a script."""
        return sha1 in self._loaded or sha1 in self._evaluated

    @property
    def used_bytes(self) -> int:
        """The memory of the sources."""
        return sum(
            len(source) for kept in (self._loaded, self._evaluated) for source in kept.values()
        )

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
        self._evaluated.pop(sha1, None)
        self._loaded[sha1] = source
        return sha1

    def cache(self, sha1: bytes, source: bytes) -> None:
        """Keep an evaluated script; drops the one that was not evaluated for the longest time."""
        if sha1 not in self._loaded:
            self._evaluated[sha1] = source
            self._evaluated.move_to_end(sha1)
            if len(self._evaluated) > EVALUATED_MAX:
                self._evaluated.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        self._loaded.clear()
        self._evaluated.clear()
        self.flushes += 1
