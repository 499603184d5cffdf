"""The two versions: the package's own, and that of the Redis whose behaviour it shows."""

from __future__ import annotations

from typing import Final

__version__ = "0.2.0"

REDIS_VERSION = "8.10.0"
"""Clients switch features on by this number (HELLO, INFO): the newest Redis we follow."""

IS_COMPILED: Final = not __file__.endswith(".py")
"""Whether the core runs as machine code (see docs/decisions/0021-hot-modules-are-compiled.md)."""
