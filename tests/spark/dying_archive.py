"""An archive without Spark, killed at each of its steps: `python dying_archive.py LAKE URL`.

The archive that is killed at a step is ``LAKE-<step>``. The last one was completed. If there is a
lake, it goes on from a copy of that, and follows deletions.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from anabranch.spark.jobs.archive import archive
from tests.spark.lakes import copies, die_at, table


def main(root: Path, url: str) -> None:
    table([1])  # imports a lot, and once is enough; the library does not survive a fork, though
    step = 0
    goes_on = root.exists()
    while True:
        if goes_on:
            shutil.copytree(root, copies(root, step))
        child = os.fork()
        if child == 0:
            die_at(step)
            options = {"url": url, "subscribe": "s", "maxEntriesPerTrigger": "150"}
            archive(None, copies(root, step), options=options, follow_deletions=goes_on)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return
        step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
