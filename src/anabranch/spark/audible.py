"""Logging in the processes that Spark starts for sources and sinks."""

from __future__ import annotations

import logging

__all__ = ["audible"]


def audible() -> None:
    """Send log records to stderr, if logging is not configured in this process.

    Users cannot configure logging in processes of Spark; their stderr is that of the driver.
    """
    ours = logging.getLogger("anabranch")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("anabranch: %(message)s"))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)
