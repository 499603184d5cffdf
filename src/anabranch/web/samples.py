"""The samples of one scrape: kept in columns, written as text in short steps.

A scrape may find 100,000 samples. Their label values and numbers are in lists of texts and numbers,
which the garbage collector of the interpreter does not visit: a tuple for each sample would cost
the scrape a long collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.exposition import generate_latest

from anabranch.scheduling import Steps
from anabranch.web.metric_rows import METRICS, Metric

PREFIX: Final = "anabranch_"

SAMPLES_PER_STEP: Final = 50
"""Written as text in one step: less than half a millisecond."""

FREED_PER_STEP: Final = 2_000
"""Cells of a column that are freed in one step."""

PARTS_OF_CHUNK: Final = 16
"""A chunk is the text of so many steps."""


class _Table:
    """The samples of the families that have the same labels."""

    __slots__ = ("labels", "values")

    def __init__(self, labels: int) -> None:
        self.labels: list[list[str]] = [[] for _ in range(labels)]
        self.values: dict[str, list[float | None]] = {}

    def columns(self) -> Iterator[list[Any]]:
        """All columns."""
        yield from self.labels
        yield from self.values.values()


class Samples:
    """The samples of all families of ``METRICS``."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, ...], _Table] = {}
        self._table_of: dict[str, _Table] = {}
        self._histograms: dict[str, list[HistogramMetricFamily]] = {}
        for row in METRICS:
            if row.kind == "histogram":
                self._histograms[row.name] = []
                continue
            table = self._tables.setdefault(row.labels, _Table(len(row.labels)))
            table.values[row.name] = []
            self._table_of[row.name] = table

    def add(self, labels: tuple[str, ...], values: Mapping[str, float | None]) -> None:
        """Add samples with these label values, by the names of their families.

        All these families have the same labels. None stands for an unknown value: there is no
        sample then.
        """
        for name in values:
            table = self._table_of[name]
            break
        else:
            return
        for label, cell in zip(table.labels, labels, strict=True):
            label.append(cell)
        for name, column in table.values.items():
            column.append(values.get(name))

    def add_histogram(
        self, name: str, labels: tuple[str, ...], buckets: list[tuple[str, float]], total: float
    ) -> None:
        """Add a histogram: how many values are up to each bound, and the sum of all values."""
        row = next(each for each in METRICS if each.name == name)
        family = HistogramMetricFamily(PREFIX + name, row.meaning, labels=row.labels)
        family.add_metric(labels, buckets, total)
        self._histograms[name].append(family)

    def written(self) -> Steps[list[bytes]]:
        """Their text in chunks of moderate size; frees the samples."""
        chunks: list[bytes] = []
        parts: list[bytes] = []
        for row in METRICS:
            for text in self._family(row):
                parts.append(text)
                if len(parts) >= PARTS_OF_CHUNK:
                    chunks.append(b"".join(parts))
                    parts.clear()
                yield
        chunks.append(b"".join(parts))
        for table in self._tables.values():
            for column in table.columns():
                while column:
                    del column[-FREED_PER_STEP:]
                    yield
        return chunks

    def _family(self, row: Metric) -> Iterator[bytes]:
        """The text of one family in short pieces; without samples there is none."""
        is_first = True
        for piece in self._pieces(row):
            if not piece.samples:
                yield b""
                continue
            # A registry is all that has a list of families to collect.
            text: bytes = generate_latest(SimpleNamespace(collect=[piece].copy))  # type: ignore[arg-type]
            # The lines of HELP and TYPE stand before the first piece only.
            yield text if is_first else text.split(b"\n", 2)[2]
            is_first = False

    def _pieces(self, row: Metric) -> Iterator[MetricFamily]:
        """Families of prometheus-client, each with some of the samples."""
        if row.kind == "histogram":
            yield from self._histograms[row.name]
            return
        table = self._table_of[row.name]
        kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
        for start in range(0, len(table.values[row.name]), SAMPLES_PER_STEP):
            family = kind(PREFIX + row.name, row.meaning, labels=row.labels)
            rows = slice(start, start + SAMPLES_PER_STEP)
            labels = [column[rows] for column in table.labels]
            for number, value in enumerate(table.values[row.name][rows]):
                if value is not None:
                    family.add_metric([column[number] for column in labels], value)
            yield family
