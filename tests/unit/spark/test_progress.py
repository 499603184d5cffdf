"""What a metrics page says of queries."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from anabranch.spark.reading.offsets import LogCursor, Vector
from anabranch.spark.runtime.progress import LagListener


def event(stream: str) -> Any:
    """After a batch that read 3 of 5 entries."""
    ends = [
        json.dumps(Vector({stream: {"eu": LogCursor(0, position, "0-0")}}).to_dict())
        for position in (3, 5)
    ]
    source = SimpleNamespace(endOffset=ends[0], latestOffset=ends[1])
    progress = SimpleNamespace(name="zähler", id="1", batchId=7, sources=[source])
    return SimpleNamespace(progress=progress)


def test_names_stand_in_the_labels_as_the_text_format_wants_them() -> None:
    listener = LagListener(lambda _: None)
    listener.onQueryProgress(event('größe\t"\\n"\n€'))
    assert listener.prometheus().splitlines()[2:] == [
        r'anabranch_spark_lag_entries{query="zähler",'
        'stream="größe\t' + r'\"\\n\"\n€",region="eu"} 2'
    ]
