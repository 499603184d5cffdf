"""Anabranch: a stream server that speaks the Redis protocol.

Importing the package costs next to nothing; the server is ``anabranch.server``, the command line
``anabranch.cli`` (also ``python -m anabranch``).
"""

from __future__ import annotations

from anabranch.version import __version__

__all__ = ["__version__"]
