"""What goes wrong with the server: said so that one knows what to do, or waited out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.spark.options import ServerOptions
from tests.spark.cutting import ReturningServer
from tests.spark.test_sink import fill, save, start, url, values
from tests.support.servers import AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTAGE_SECONDS = 3.0

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"password": "secret"}, "check the options username and password"),
    ({"url": "redis://127.0.0.1:1", "retries": 0}, "no server at 127.0.0.1:1"),
    ({"retries": "many"}, "option retries: a whole number is needed, not 'many'"),
]


@pytest.mark.parametrize(
    ("options", "text"), [*WRONG, ({"stream": "text"}, "stream text .*WRONGTYPE")]
)
def test_a_write_that_cannot_work_says_what_to_do(
    spark: SparkSession, ours: AnabranchServer, options: dict[str, Any], text: str
) -> None:
    with ours.client() as client:
        client.call("SET", "text", "x")
    table = spark.range(0, 10, 1, 1).selectExpr("id as n")
    with pytest.raises(Exception, match=text) as caught:
        save(table, ours, **{"stream": "t", **options})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("options", "text"), [*WRONG, ({"subscribe": "text"}, "is no stream")])
def test_a_query_that_cannot_read_says_what_to_do(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    with ours.client() as client:
        client.call("SET", "text", "x")
    reader = spark.readStream.format("anabranch").options(subscribe="s", url=url(ours))
    table = reader.options(**options).load().select("fields")
    with pytest.raises(Exception, match=text) as caught:
        start(table, ours, tmp_path, stream="t").awaitTermination()
    assert "secret" not in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)  # PySpark's own, behind ours


@pytest.mark.slow
def test_a_server_that_is_away_for_three_seconds_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    usual = ServerOptions(url="")
    patience_ms = usual.retry_interval_ms * (2**usual.retries - 1)
    assert patience_ms > 2 * OUTAGE_SECONDS * 1000
    longer = {"retries": 9}  # on a busy machine the server may take seconds to start
    with ReturningServer(tmp_path / "server", ["--appendfsync", "always"]) as server:
        fill(server, "s", 500)
        reader = spark.readStream.format("anabranch").options(url=url(server), subscribe="s")
        table = reader.options(startingOffsets="earliest", **longer).load().select("fields")
        writer = table.writeStream.format("anabranch").options(url=url(server), stream="t")
        writer = writer.options(**longer)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            server.kill()
            back = threading.Timer(OUTAGE_SECONDS, server.come_back)  # the length of the outage
            back.start()
            back.join()
            fill(server, "s", 500)
            query.processAllAvailable()
            assert query.isActive
        finally:
            query.stop()
        assert values(server, "t") == [*range(500), *range(500)]
