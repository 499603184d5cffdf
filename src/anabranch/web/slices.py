"""Work of the HTTP side in slices of time: between two of them clients are served."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import Final, TypeVar

from anabranch.scheduling import Steps

__all__ = ["SLICE_NS", "in_slices"]

_T = TypeVar("_T")

SLICE_NS: Final = 2_000_000
"""One step may take a little longer; the loop stands still for no more than that."""


async def in_slices(steps: Steps[_T]) -> _T:
    """Do all steps; returns what they return."""
    while True:
        end_ns = perf_counter_ns() + SLICE_NS
        try:
            while perf_counter_ns() < end_ns:
                next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        await asyncio.sleep(0)
