"""Logging in the processes that Spark starts for sources and sinks."""

from __future__ import annotations

import logging

__all__ = ["audible"]


def audible() -> None:
    """Let what is logged be seen in this process, if nobody has said where it goes.

    Nobody can set logging up in a process of Spark's; its stderr is that of the driver.
    """
    ours = logging.getLogger("anabranch")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("anabranch: %(message)s"))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)
