"""Runs many pieces of work in rounds, here or on executors; the driver sees the progress.

Executors do the work in a function of SQL, which needs no pandas and is the same over Spark
Connect. Without a session threads of this process do it.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUND: Final = 64
"""Items between two reports of progress."""

_Item = TypeVar("_Item")
_NAME: Final = "anabranch_round"
_THREADS: Final = 4


def in_rounds(
    spark: SparkSession | None,
    items: Sequence[_Item],
    work: Callable[[_Item], Any],
    size: int = ROUND,
) -> Iterator[Any]:
    """The results of `work` for all items, in order; executors get `size` items at a time.

    Without `spark` it is done here. On executors a piece of work is a task of its own and may be
    repeated; what it returns must be fit for JSON. Raises what Spark raises.
    """
    if spark is None:
        with ThreadPoolExecutor(_THREADS) as threads:
            yield from threads.map(work, items)
        return
    for at in range(0, len(items), size):
        some = items[at : at + size]
        # The function travels to executors with the items.
        spark.udf.register(
            _NAME, lambda number, some=some: json.dumps(work(some[number])), "string"
        )
        rows = spark.range(0, len(some), 1, len(some)).selectExpr("id", f"{_NAME}(id) as said")
        yield from (json.loads(row.said) for row in sorted(rows.collect()))


@cache
def leave_imports_alone() -> None:
    """Let no collection of garbage look at what this process has imported.

    PySpark collects the garbage of a worker after each task. To look at all modules took 30 ms.
    """
    gc.collect()
    gc.freeze()
