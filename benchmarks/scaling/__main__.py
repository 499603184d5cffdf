"""The command line: `python -m benchmarks.scaling`, from the root of the repository."""

from __future__ import annotations

import sys

from benchmarks.shared.program import Program, command
from benchmarks.shared.report import Page

from . import chart
from .catalogue import catalogue

PAGE = Page(
    "scaling",
    "Cost against size, and latency under load",
    "A cost is server CPU per command, 16 commands under way; its growth is the cost at the "
    "largest size over that at the smallest, and may be 1.2, or as much as Redis's.",
)

main = command(
    Program(PAGE, catalogue, {}, draw=chart.draw),
    "Measure how costs grow with the data, and latencies under load, beside redis-server.",
)

if __name__ == "__main__":
    sys.exit(main())
