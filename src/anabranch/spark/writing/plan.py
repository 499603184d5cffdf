"""The plan of a write, which the driver sends to every task, and the answer of a task."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.datasource import WriterCommitMessage

from anabranch.spark.options import OptionError, WriteOptions
from anabranch.spark.writing.layout import EncodeError, Layout

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_NO_TEXT: Final = re.compile(r"(?:array|map|struct|variant|interval|time\()")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one task."""

    batch: int
    rows: int
    """Rows of the task."""
    known: int | None
    """Rows of these that the stream had before; None where the server does not report it."""
    waited_s: float = 0.0
    """How long ago the batch was planned, if it may be a repetition."""
    memory_s: int | None = None
    """For how long idempotent IDs are remembered; None where nothing depends on that."""
    partitions: int = 0
    """How many partitions the batch had in the stream, at least, as far as the task knows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of the driver for every task."""

    options: WriteOptions
    layout: Layout
    job: str | None
    """A name for a plain batch write; None for a query, which has an ID."""
    waited_s: float = 0.0
    """See `Written`."""

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType) -> Self:
        """Make all checks that are possible before the first row."""
        options = WriteOptions.parse(given)
        if options.preserve_ids and options.idempotence not in (None, "none"):
            raise OptionError(
                "preserveIds=true recognises rows by their IDs; leave option idempotence out"
            )
        if options.stream is None and "stream" not in schema.names:
            raise OptionError("where to? Give option stream, or a column called stream")
        layout = Layout.of(schema.names, options)
        for name, _ in layout.payload:
            kind = schema[name].dataType.simpleString()
            if _NO_TEXT.match(kind):
                raise EncodeError(
                    f"column {name} is {kind}, which has no text form: use to_json, or cast it"
                )
        return cls(options, layout, uuid.uuid4().hex)
