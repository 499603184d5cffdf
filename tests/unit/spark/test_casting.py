"""Texts become what Spark's own `try_cast` makes of them, at a bounded cost."""

from __future__ import annotations

import json
import math
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.spark.decoding import casting

RECORDED: dict[str, list[tuple[str, Any]]] = json.loads(
    Path(__file__).with_name("casts_of_spark.json").read_text()
)
"""Answers of Spark 4.3, in UTC: of dates the days, of timestamps the microseconds since 1970."""

UTC = pa.timestamp("us", "UTC")
KINDS = {
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ntz": pa.timestamp("us"),
}


def kind_of(name: str) -> pa.DataType:
    return KINDS.get(name) or pa.decimal128(*map(int, re.findall(r"[0-9]+", name)))


def expected(name: str, answer: Any) -> Any:
    """The recorded answer as the value of the column."""
    if answer is None or name in {"date", "timestamp", "timestamp_ntz"}:
        return answer
    if name == "boolean":
        return answer == "true"
    if name in {"double", "float"}:
        number = float(answer)
        return float(np.float32(number)) if name == "float" else number
    return Decimal(answer) if name.startswith("decimal") else int(answer)


def read(kind: pa.DataType, *texts: bytes) -> list[Any]:
    found, wrong = casting.cast(pa.array(texts, pa.binary()), kind)
    assert (
        (found.null_count == 0) if wrong is None else (wrong == np.asarray(found.is_null())).all()
    )
    if pa.types.is_timestamp(kind):
        found = found.cast(pa.int64())
    if pa.types.is_date32(kind):
        found = found.cast(pa.int32())
    return ["NaN" if each != each else each for each in found.to_pylist()]  # noqa: PLR0124


@pytest.mark.parametrize("name", RECORDED)
def test_a_text_is_what_spark_makes_of_it_alone_and_among_others(name: str) -> None:
    texts = [text.encode() for text, _ in RECORDED[name]]
    wanted = [expected(name, answer) for _, answer in RECORDED[name]]
    wanted = ["NaN" if isinstance(x, float) and math.isnan(x) else x for x in wanted]
    kind = kind_of(name)
    together = read(kind, *texts)
    alone = [read(kind, text)[0] for text in texts]
    assert list(zip(texts, together, strict=True)) == list(zip(texts, wanted, strict=True))
    assert list(zip(texts, alone, strict=True)) == list(zip(texts, wanted, strict=True))


@pytest.mark.parametrize("first", ["2024-01-01 10:05:06", "2024-01-01T10:05:06Z", "1.5.2024"])
def test_the_first_value_decides_only_about_the_way(first: str) -> None:
    for name in ("timestamp", "timestamp_ntz"):
        texts = [first.encode(), *(text.encode() for text, _ in RECORDED[name])]
        assert read(KINDS[name], *texts)[1:] == [answer for _, answer in RECORDED[name]]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (UTC, b"10:00"),
        (UTC, b"T10:00:00Z"),
        (UTC, b"2024-07-01T10:05:06 SystemV/PST8"),
        (pa.decimal128(10, 2), "\u0665".encode()),
        (pa.string(), b"\xed\xa0\x80"),
        (pa.string(), b"\xc0\x80"),
        (pa.date32(), b"\xff2024-01-01"),
    ],
)
def test_what_depends_on_today_or_is_of_java_alone_is_null(kind: pa.DataType, text: bytes) -> None:
    assert read(kind, text) == [None]


def test_a_string_is_null_only_where_it_is_not_utf_8() -> None:
    edges = ("\0 \x7f \x80 \u07ff \u0800 \ud7ff \ue000 \uffff \U00010000 \U0010ffff").split(" ")
    texts = [*(each.encode() for each in edges), b"a\nb", b"\xf4\x90\x80\x80", b""]
    assert read(pa.string(), *texts) == [*edges, "a\nb", None, ""]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), b"%d.5"),
        (pa.int32(), b"1700000%06d"),
        (pa.float64(), b"%d,5"),
        (pa.decimal128(9, 2), b"x%d"),
        (pa.decimal128(5, 2), b"1%03d.5"),
        (pa.bool_(), b"%d%%"),
        (pa.date32(), b"%d/1/2024"),
        (pa.date32(), b"2024-02-30 %d"),
        (UTC, b"17%08d"),
        (UTC, b"2024-02-30T10:00:00.%06dZ"),
        (UTC, b"2024-02-28T10:00:00.%06d Europe/Nowhere"),
        (pa.string(), b"\xff%d"),
    ],
)
def test_many_values_that_do_not_fit_cost_one_exception(kind: pa.DataType, text: bytes) -> None:
    values = pa.array([*(text % (number + 2) for number in range(1000)), None], pa.binary())
    raised: list[Any] = []

    def trace(_frame: Any, event: str, given: Any) -> Any:
        if event == "exception" and not issubclass(given[0], StopIteration | GeneratorExit):
            raised.append(given)
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        found, wrong = casting.cast(values, kind)
    finally:
        sys.settrace(former)
    assert (found.null_count, int(wrong.sum())) == (1001, 1000)
    assert len({id(error) for _, error, _ in raised}) <= 1
