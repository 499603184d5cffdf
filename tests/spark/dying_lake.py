"""A change to a lake, killed at each of its steps: `python dying_lake.py LAKE CHANGE`.

For each step the lake is copied to ``LAKE-<step>``, and a process that makes the change there is
killed at this step. The last copy is the one whose change was completed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from anabranch.spark.jobs.compact import compact
from anabranch.spark.lake.table import Lake
from tests.spark.lakes import add, copies, die_at, table


def change(root: Path, name: str) -> None:
    """Make it, as often as one likes."""
    if name == "compact":
        compact(None, root, target_mib=1, retain_hours=0)
    elif name == "erase":
        Lake(root).erase("q", [("s", ("eu", 20, 60))])
    else:
        add(Lake(root), 7, (101, 150), (151, 200))


def main(root: Path, name: str) -> None:
    table([1])  # imports a lot, and once is enough; the library does not survive a fork, though
    step = 0
    while True:
        copy = copies(root, step)
        shutil.copytree(root, copy)
        child = os.fork()
        if child == 0:
            die_at(step)
            change(copy, name)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return
        step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
