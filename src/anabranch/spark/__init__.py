"""Anabranch on Apache Spark, through PySpark: streams as tables, tables as streams.

``pip install "anabranch[spark]"`` is the whole installation. `session` gives a Spark session that
works at once; in any other one ``format("anabranch")`` is known as soon as the package is
installed. Importing this package imports neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.spark.progress import Lag, LagListener
    from anabranch.spark.regions import committed_offsets, read_by_region
    from anabranch.spark.sessions import session
    from anabranch.spark.source import AnabranchSource

__all__ = [
    "AnabranchSource", "Lag", "LagListener", "committed_offsets", "read_by_region", "session",
]  # fmt: skip

_HOMES: Final = {
    "AnabranchSource": "source",
    "Lag": "progress",
    "LagListener": "progress",
    "committed_offsets": "regions",
    "read_by_region": "regions",
    "session": "sessions",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
