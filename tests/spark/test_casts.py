"""Fields into columns as Spark's CSV reader does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.servers import AnabranchServer
from tests.unit.spark.test_casting import RECORDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE = """
    5 +5 -5 05 -0 +0 + - +-5 --5 0x10 -0x10 +0x10 0X1f 1.0 1.5 1e2 5L 1_0 127 128 +127 32768
    2147483647 2147483648 -2147483648 9223372036854775807 +9223372036854775807 9223372036854775808
""".split()
BROKEN = """
    1.234 1.235 1.245 -1.235 -1.225 +5 0x10 1e2 1E-3 5e-3 12.3456e-1 .5 5. 1. -.5 00012.50 -0.001
    12345678 123456789.1 99999999.994 99999999.995 -99999999.995 NaN Infinity 1d --1 +-1 + . 1e 1e+2
    1e400 1e-400 1_0e1 0e5 e5 1e10 1.2.3 1_0 12345678901234567890123456789012345678
    0.4999999999999999999999999
    0.00000000000000000000000000000000000000000000000000000000001 1.00000000000000000000000000000001
    99999999999999999999999999999999999999.4 99999999999999999999999999999999999999.5 1e37 1e38
""".split()


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        *((kind, WHOLE) for kind in ("tinyint", "smallint", "int", "bigint")),
        *((f"decimal({size})", BROKEN) for size in ("10,2", "4,4", "38,0", "38,10", "38,38")),
    ],
)
def test_numbers_are_what_sparks_csv_reader_makes_of_them(
    spark: SparkSession, ours: AnabranchServer, kind: str, texts: list[str]
) -> None:
    with ours.client() as client:
        client.pipeline([("XADD", "s", "*", "x", text) for text in texts])
    reader = spark.read.format("anabranch").option("url", f"redis://127.0.0.1:{ours.port}")
    table = reader.option("subscribe", "s").schema(f"x {kind}, position bigint").load()
    found = [row.x for row in table.orderBy("position").collect()]
    rows = spark.createDataFrame(list(enumerate(texts)), "n int, text string").coalesce(1)
    made = rows.selectExpr("n", f"from_csv(text, 'x {kind}', map('sep', '|')).x as x")
    wanted = [row.x for row in made.orderBy("n").collect()]
    assert list(zip(texts, found, strict=True)) == list(zip(texts, wanted, strict=True))


NUMBERS = {
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "unix_micros(cast({} as timestamp))",
}
"""How to take from Spark what Python has no type for."""


@pytest.mark.parametrize("kind", RECORDED)
def test_odd_texts_are_what_sparks_own_cast_makes_of_them(
    spark: SparkSession, ours: AnabranchServer, kind: str
) -> None:
    texts = [text for text, _ in RECORDED[kind]]
    number = NUMBERS.get(kind, "string({})")
    with ours.client() as client:
        client.pipeline([("XADD", "s", "*", "x", text) for text in texts])
    reader = spark.read.format("anabranch").option("url", f"redis://127.0.0.1:{ours.port}")
    table = reader.option("subscribe", "s").schema(f"x {kind}, position bigint").load()
    rows = spark.createDataFrame(list(enumerate(texts)), "position int, text string").coalesce(1)

    def answers(frame: DataFrame, expression: str) -> list[Any]:
        made = frame.selectExpr("position", f"{number.format(expression)} as x")
        return [row.x for row in made.orderBy("position").collect()]

    found = answers(table, "x")
    wanted = answers(rows, f"try_cast(text as {kind})")
    assert list(zip(texts, found, strict=True)) == list(zip(texts, wanted, strict=True))
    assert wanted == [answer for _, answer in RECORDED[kind]]
