"""Garbage in the Python workers of Spark: what they have imported is none, and is not looked at.

After every call of a worker, each task and each step of planning, Spark has Python collect garbage.
That goes over all objects there are, and what PySpark, pandas and Arrow import are so many that it
takes 30 ms of a core: more than the call, for a batch of a streaming query. What the first of these
collections leaves stays as long as the worker does, so later ones need not see it.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

__all__ = ["spare_what_stays"]

_DAEMON: Final = "pyspark.daemon"
_BETWEEN_CALLS: Final = "manager"
"""The function of the daemon that calls, and collects when a call has ended."""


def spare_what_stays() -> None:
    """In a worker of Spark, and nowhere else: freeze what is left after its first call."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == _DAEMON and _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, info: dict[str, Any]) -> None:
    # Collections within a call come when Python likes: much is not imported yet, or not to stay.
    if phase == "stop" and sys._getframe(1).f_code.co_name == _BETWEEN_CALLS:  # noqa: SLF001
        gc.callbacks.remove(_freeze)
        gc.freeze()
