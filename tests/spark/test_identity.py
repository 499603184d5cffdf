"""Who writes: a sink that would not recognise its own rows refuses, and says so."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.spark.connection.client import connect
from anabranch.spark.options import ServerOptions
from anabranch.spark.writing.identity import WriteFailed, WriterIdentity
from anabranch.spark.writing.recognition import require_same_producer
from tests.spark.accidents import broken_source
from tests.spark.test_sink import accidents, fill, forget_last, load, save, start, url, values
from tests.support.servers import AnabranchServer
from tests.unit.commands.test_bulk import payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2000


def copy(spark: SparkSession, server: AnabranchServer, place: Path, **options: Any) -> None:
    """Stream ``s`` to stream ``t``, to its end."""
    table = load(spark, server, "s").select("fields")
    start(table, server, place, stream="t", **options).awaitTermination()


@pytest.mark.parametrize("way", ["ledger", pytest.param("position", marks=pytest.mark.long)])
def test_a_new_checkpoint_doubles_nothing_unless_it_is_told_to(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, way: str
) -> None:
    fill(ours, "s", ROWS)
    copy(spark, ours, tmp_path / "one", idempotence=way)
    with pytest.raises(Exception, match=r"stream t has rows of another query .*made anew"):
        copy(spark, ours, tmp_path / "two", idempotence=way)
    assert sorted(values(ours, "t")) == list(range(ROWS))
    fill(ours, "s", 10)
    copy(spark, ours, tmp_path / "one", idempotence=way)
    assert len(values(ours, "t")) == ROWS + 10
    copy(spark, ours, tmp_path / "two", idempotence=way, allowProducerChange="true")
    assert len(values(ours, "t")) == 2 * ROWS + 20


def test_a_query_with_a_name_recognises_its_rows_with_any_checkpoint(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    for place in ("one", "two"):
        copy(spark, ours, tmp_path / place, producerId="copies")
    assert values(ours, "t") == list(range(ROWS))
    fill(ours, "s", 10)
    copy(spark, ours, tmp_path / "two", producerId="copies")
    with pytest.raises(Exception, match=r"comes too late: stream t .* made anew"):
        copy(spark, ours, tmp_path / "three", producerId="copies")
    assert values(ours, "t") == [*range(ROWS), *range(10)]
    # A query without a name stays one of its own beside it.
    copy(spark, ours, tmp_path / "four", sinkId="other")
    assert len(values(ours, "t")) == 2 * ROWS + 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"producerId": "copies"}, "without a producerId, and now it has one"),
        pytest.param(
            {"idempotence": "position"},
            "with idempotence=ledger, and now it has position",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_batch_that_is_repeated_as_somebody_else_is_refused(
    spark: SparkSession,
    ours: AnabranchServer,
    tmp_path: Path,
    options: dict[str, str],
    message: str,
) -> None:
    fill(ours, "s", 100)
    copy(spark, ours, tmp_path)
    forget_last(tmp_path, "commits")
    with pytest.raises(Exception, match=message):
        copy(spark, ours, tmp_path, **options)
    copy(spark, ours, tmp_path)
    assert values(ours, "t") == list(range(100))


@pytest.mark.parametrize("name", ["etl", "team/etl", "/"])
def test_another_way_is_refused_under_any_name(ours: AnabranchServer, name: str) -> None:
    query = str(uuid.uuid4())
    identity = WriterIdentity(f"spark/{name}/0", 0, 1, False, query, True)
    with connect(ServerOptions(url=url(ours))) as client, ours.client() as filling:
        words = ("PRODUCER", identity.task, "BATCH", 1, "EXPECT", 0, "CRC", 0)
        filling.call("AB.IMPORT", "t", *words, payload([b"n", b"1"]))
        with pytest.raises(WriteFailed, match=r"idempotence=ledger, and now it has position"):
            require_same_producer(client, b"t", identity, "position")
        require_same_producer(client, b"t", identity, "ledger")
        unnamed = WriterIdentity(f"spark/{query}/0", 0, 1, False, query)
        require_same_producer(client, b"t", unnamed, "position")


def test_a_batch_in_any_order_is_written_once_by_values_and_sorted_partitions(
    spark: SparkSession, ours: AnabranchServer
) -> None:
    words = [each % 1_700 for each in range(2_500)]
    job = {"stream": "t", "producerId": "job", "batchId": 1, "deterministicOrder": "sort"}
    spark.dataSource.register(broken_source("kill", ours.port, 300))
    for number, some in enumerate((words, words[::-1], sorted(words))):
        table = spark.createDataFrame([(each,) for each in some], "n int").repartition(3, "n")
        # Each worker of the first attempt dies in the middle of its rows.
        save(table, ours, "broken" if number == 0 else "anabranch", **job)
        assert sorted(values(ours, "t")) == sorted(words)
    assert accidents(ours) == 3


def test_a_batch_that_is_repeated_with_fewer_partitions_is_refused(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", 100)
    reader = spark.readStream.format("anabranch").options(url=url(ours), subscribe="s")
    reader = reader.options(startingOffsets="earliest", minPartitions="4")
    table = reader.load().select("fields")
    start(table, ours, tmp_path, stream="t").awaitTermination()
    forget_last(tmp_path, "commits")
    with pytest.raises(Exception, match="has 1 partitions, and had 4 or more"):
        start(table.coalesce(1), ours, tmp_path, stream="t").awaitTermination()
    fewer = {"stream": "t", "allowProducerChange": "true"}
    start(table.coalesce(1), ours, tmp_path, **fewer).awaitTermination()
    assert set(values(ours, "t")) == set(range(100))
