"""Made-up events into files that `ingest` takes; see `anabranch.spark.samples`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.spark.samples import LATENESS_MS, SITES, SampleError, Shape, digest, events

__all__ = ["Generated", "generate"]

_CHUNK: Final = 50_000  # rows that are text at the same time


@dataclass(frozen=True, slots=True)
class Generated:
    """What was made, or would be."""

    rows: int
    repeats: int
    """Of these, rows that were there before."""
    files: tuple[str, ...]
    sha256: str
    """Of the values, the same for every kind of file."""
    lateness_ms: int
    """A watermark with this delay loses none of them."""
    dry_run: bool


def generate(
    path: str | Path,
    shape: Shape | None = None,
    *,
    split: bool = False,
    dry_run: bool = False,
) -> Generated:
    """Write events to a new file, whose name ends in .parquet or .jsonl, in order of arrival.

    With `split` there is a file for each site (``events-eu.parquet`` ...), as each region has its
    own. In JSON lines a payload is in hexadecimal digits. Raises `SampleError`.
    """
    shape = shape or Shape()
    whole = Path(path)
    if whole.suffix not in _WRITERS:
        raise SampleError(f"{whole}: the name must end in {' or '.join(_WRITERS)}")
    names = [whole.with_stem(f"{whole.stem}-{site}") for site in SITES] if split else [whole]
    for each in names:
        if each.exists():
            raise SampleError(f"{each} exists already; events go to a new file")
    table = events(shape)
    if not dry_run:
        tables = (
            [table.filter(pc.equal(table["site"], site)) for site in SITES] if split else [table]
        )
        for each, part in zip(names, tables, strict=True):
            draft = each.with_name(f".{uuid.uuid4().hex}.tmp")
            _WRITERS[whole.suffix](part, draft)
            draft.rename(each)
    repeats = table.num_rows - len(pc.unique(table["event"]))
    files = tuple(map(str, names))
    return Generated(table.num_rows, repeats, files, digest(table), LATENESS_MS, dry_run)


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("wb") as out:
        for batch in table.combine_chunks().to_batches(_CHUNK):
            out.write(_lines(batch))


def _lines(batch: pa.RecordBatch) -> bytes:
    """All rows as text; nothing in them has to be escaped."""
    at = pc.replace_substring(batch["at"].cast(pa.string()), " ", "T")
    pieces = (
        *('{"event":', batch["event"].cast(pa.string()), ',"at":"', at, '","site":"'),
        *(batch["site"], '","key":"', batch["key"], '","amount":'),
        *(batch["amount"].cast(pa.string()), ',"payload":"', _hexadecimal(batch["payload"]), '"}'),
    )
    lines = pc.binary_join_element_wise(*pieces, "")
    return "\n".join([*lines.to_pylist(), ""]).encode()


def _hexadecimal(values: pa.BinaryArray) -> pa.StringArray:
    return pa.array([each.hex() for each in values.to_pylist()])


_WRITERS: Final = {".parquet": _write_parquet, ".jsonl": _write_lines}
