"""Anabranch on Apache Spark, through PySpark: streams as tables, tables as streams.

``pip install "anabranch[spark]"`` is the whole installation. `session` gives a Spark session that
works at once; in any other one ``format("anabranch")`` is known as soon as the package is
installed. Importing this package imports neither Spark nor Arrow.

=============  ====================================================================================
`source`       ``format("anabranch")``: leads Spark to the readers and writers
`options`      the options of reads and writes as values
`connection/`  one server: commands, what it can do, names of regions
`reading/`     the driver plans (`planner`: the next batch; `server_logs`: what a server has;
               `offsets`: how far was read; `losses`; `holes`: what was deleted since;
               `partitions`: what each task reads), and executors read (`executor`)
`decoding/`    replies to entries (`exports` by position, `pages` by ID), these to `columns`
`writing/`     rows to commands (`layout`, `encode`), and these to a stream once each (`ledger`,
               `adding`); `sink` has the writers that Spark calls
`runtime/`     Java, sessions, queries that are watched and started again
`lake/`        streams as a Delta `table` of Parquet `files`
`jobs/`        what ``anabranch spark ...`` runs; `signatures` has the parameters of all
=============  ====================================================================================

Words: an *entry* is one of a stream; the *log* of a region is what it has added to a stream, in
the order of *positions*; a *range* is a part of one log, a *partition* the ranges that one task
reads. An *export* is a reply of AB.EXPORT, a *page* one of XRANGE.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.spark.reading.by_region import committed_offsets, read_by_region
    from anabranch.spark.runtime.progress import Lag, LagListener
    from anabranch.spark.runtime.sessions import session
    from anabranch.spark.runtime.supervise import supervise
    from anabranch.spark.source import AnabranchSource

__all__ = [
    "AnabranchSource", "Lag", "LagListener", "committed_offsets", "read_by_region", "session",
    "supervise",
]  # fmt: skip

_HOMES: Final = {
    "AnabranchSource": "source",
    "Lag": "runtime.progress",
    "LagListener": "runtime.progress",
    "committed_offsets": "reading.by_region",
    "read_by_region": "reading.by_region",
    "session": "runtime.sessions",
    "supervise": "runtime.supervise",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
