"""Writes a lake for ever, from where it is: `python writing_lake.py LAKE`. Made to be killed."""

from __future__ import annotations

import sys

from anabranch.spark.lake.table import Lake
from tests.spark.lakes import add

ROWS = 50


def main(root: str) -> None:
    """Each batch is written twice, as by a driver that died between a commit and its note of it."""
    lake = Lake(root)
    batch = 0
    if lake.version() >= 0:
        batch = lake.table().transaction_version("q") or 0
    while True:
        for _ in range(2):
            add(lake, batch, (batch * ROWS, batch * ROWS + ROWS - 1), ms=3_600_000)
        batch += 1
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
