"""The command line: `python -m benchmarks.spark`, from the root of the repository."""

from __future__ import annotations

import sys

from benchmarks.shared.program import Program, command
from benchmarks.shared.report import Page

from .catalogue import catalogue
from .goals import GOALS

PAGE = Page(
    "spark",
    "Spark on one machine",
    "Server, driver and executors share the machine; ratios are those of paired runs.",
)

main = command(
    Program(PAGE, catalogue, GOALS),
    "Read and write streams from Spark and print how that does beside what is expected of it.",
)

if __name__ == "__main__":
    sys.exit(main())
