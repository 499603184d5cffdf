"""Makes ``format("anabranch")`` known to Spark.

PySpark looks at every top-level module whose name begins with ``pyspark_`` for a class called
`DefaultSource`. It imports them all, on every start, so this one imports nothing until asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.spark.source import AnabranchSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        from anabranch.spark.source import AnabranchSource  # noqa: PLC0415 - heavy

        return AnabranchSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
