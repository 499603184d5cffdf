"""Work of the HTTP side in slices of time: between two of them clients are served."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns, thread_time_ns
from typing import TypeVar

from anabranch.scheduling import SLICE_NS, Steps

_T = TypeVar("_T")


class Spent:
    """The processor time that steps have taken, without that of others between the slices."""

    ns = 0


async def in_slices(steps: Steps[_T], spent: Spent | None = None) -> _T:
    """Do all steps; returns what they return. A slice ends with the step that exceeds it."""
    while True:
        began_ns = thread_time_ns()
        now_ns = perf_counter_ns()
        end_ns = now_ns + SLICE_NS
        try:
            while now_ns < end_ns:
                next(steps)
                now_ns = perf_counter_ns()
        except StopIteration as end:
            result: _T = end.value
            return result
        finally:
            if spent is not None:
                spent.ns += thread_time_ns() - began_ns
        await asyncio.sleep(0)
