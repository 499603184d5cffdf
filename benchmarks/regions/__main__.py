"""The command line: `python -m benchmarks.regions`, from the root of the repository."""

from __future__ import annotations

import sys

from benchmarks.shared.program import Program, command
from benchmarks.shared.report import Page

from .catalogue import catalogue
from .goals import GOALS

PAGE = Page("regions", "Regions on one machine", "Real processes on loopback.")

main = command(
    Program(PAGE, catalogue, GOALS),
    "Run regions on this machine and print how they do beside what is expected of them.",
)

if __name__ == "__main__":
    sys.exit(main())
