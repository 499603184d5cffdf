"""What a server forbids or is not made for: who gets by with it, and what others are told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.spark.connection.client import ServerRefused, ServerUnreachable, connect
from anabranch.spark.options import ServerOptions
from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, AnabranchServer, RedisServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def guarded() -> Iterator[AnabranchServer]:
    """A server of its own: users outlive FLUSHALL."""
    with AnabranchServer() as server:
        with server.client() as client:
            client.pipeline([("XADD", "s", "*", "n", str(each)) for each in range(10)])
        yield server


def let(server: AnabranchServer, *rules: str) -> dict[str, str]:
    """A user with these rules, as options."""
    with server.client() as client:
        client.call("ACL", "SETUSER", "lim", "reset", "on", ">pw", *rules)
    address = f"redis://127.0.0.1:{server.port}"
    return {"url": address, "username": "lim", "password": "pw", "retries": "0"}


def read(spark: SparkSession, key: str, **options: str) -> DataFrame:
    reader = spark.read.format("anabranch").schema("n bigint").options(**options)
    return reader.option("subscribe", key).load()


def save(table: DataFrame, key: str, **options: Any) -> None:
    writer = table.write.format("anabranch").options(**options)
    writer.option("stream", key).mode("append").save()


@pytest.mark.parametrize(
    "rules",
    [("~s", "+@all", "-@admin"), ("~s", "+ab.offsets", "+ab.export", "+ab.import")],
    ids=["all commands", "three commands"],
)
def test_a_user_of_one_key_reads_and_writes_it(
    spark: SparkSession, guarded: AnabranchServer, rules: tuple[str, ...]
) -> None:
    options = let(guarded, *rules)
    assert sorted(row.n for row in read(spark, "s", **options).collect()) == list(range(10))
    save(spark.range(10, 20).selectExpr("id as n"), "s", **options)
    assert sorted(row.n for row in read(spark, "s", **options).collect()) == list(range(20))
    with guarded.client() as client:  # by the ledger, and not by a way that needs more
        assert len(client.call("AB.LEDGER", "s")[1]) == 2


MARKED = "+ab.offsets +xadd +xrange +xinfo +xcfgset +xgroup +watch +unwatch +multi +exec +command"


def test_the_other_ways_to_write_and_read_need_what_the_guide_says(
    spark: SparkSession, guarded: AnabranchServer
) -> None:
    guide = (REPOSITORY / "docs" / "spark.md").read_text()
    table = spark.range(10).selectExpr("id as n").coalesce(1)
    assert f"`{MARKED}`" in guide
    save(table, "position", idempotence="position", **let(guarded, "~position", *MARKED.split()))
    assert "`+xadd +xrange`" in guide
    kept = table.selectExpr("n", "(n + 1) || '-1' as id")
    for _ in range(2):
        save(kept, "ids", preserveIds="true", **let(guarded, "~ids", "+xadd", "+xrange"))
    options = let(guarded, "~ids", "+ab.offsets", "+ab.export", "+scan")
    reader = spark.read.format("anabranch").schema("n bigint").options(**options)
    assert reader.option("subscribePattern", "i*").load().count() == 10
    with guarded.client() as client:
        client.call("XGROUP", "CREATE", "ids", "g", "5-1")
    group = "+xinfo +multi +exec +ab.lag +ab.count"
    assert f"`{group}`" in guide
    options = let(guarded, "~ids", "+ab.offsets", "+ab.export", *group.split())
    assert read(spark, "ids", startingOffsets="group:g", **options).count() == 5


def test_whoever_lacks_a_permission_is_told_which(
    spark: SparkSession, guarded: AnabranchServer
) -> None:
    table = spark.range(3).selectExpr("id as n")
    options = let(guarded, "~s", "+@all", "-ab.offsets")
    with pytest.raises(Exception, match=r"ACL SETUSER with \+ab\.offsets"):
        read(spark, "s", **options).collect()
    with pytest.raises(Exception, match=r"ACL SETUSER with \+ab\.offsets"):
        save(table, "s", **options)
    with pytest.raises(Exception, match=r"refused rows.*ACL SETUSER with \+ab\.import"):
        save(table, "s", **let(guarded, "~s", "+@all", "-ab.import"))
    options = let(guarded, "~s", "+@all")
    with pytest.raises(Exception, match="with a pattern for the key"):
        read(spark, "t", **options).collect()
    with pytest.raises(Exception, match=r"refused rows.*with a pattern for the key"):
        save(table, "t", **options)


def test_a_pattern_is_refused_by_a_node_that_has_a_part_of_the_keys(
    spark: SparkSession, plain: RedisServer
) -> None:
    told = r"is a node of a Redis Cluster and knows its own keys only: streams like '{}' on other"
    with RedisServer(extra=["--cluster-enabled", "yes"]) as node:
        options = {"url": f"redis://127.0.0.1:{node.port}", "retries": "0"}
        reader = spark.read.format("anabranch").options(**options)
        with pytest.raises(Exception, match=told.format(r"a:\*")):
            reader.option("subscribePattern", "a:*").load().collect()
        growing = spark.readStream.format("anabranch").options(**options)
        table = growing.option("subscribePattern", "a:*").load()
        query = table.writeStream.format("noop").trigger(availableNow=True).start()
        with pytest.raises(Exception, match=told.format(r"a:\*")):
            query.awaitTermination()
    # Who may use few commands may use patterns on a server that has all keys.
    with plain.client() as client:
        client.call("XADD", "a:1", "*", "n", "7")
        rules = ("~*", "+scan", "+xinfo", "+xrange", "+xread")
        client.call("ACL", "SETUSER", "lim", "reset", "on", ">pw", *rules)
        options = {"url": f"redis://127.0.0.1:{plain.port}", "username": "lim", "password": "pw"}
        reader = spark.read.format("anabranch").schema("n bigint").options(**options)
        found = reader.option("subscribePattern", "a:*").load().collect()
        client.call("ACL", "DELUSER", "lim")
    assert [row.n for row in found] == [7]


def test_a_node_of_a_cluster_says_what_it_is(spark: SparkSession) -> None:
    settings = ["--cluster-enabled", "yes"]
    with RedisServer(extra=settings) as low, RedisServer(extra=settings) as high:
        with low.client() as one, high.client() as another:
            one.call("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
            another.call("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
            another.call("CLUSTER", "MEET", "127.0.0.1", str(low.port))
            # "foo" is in slot 12182
            wait_until(lambda: one.call("XLEN", "foo")[1][:5] == b"MOVED", "they have met", 300)
            wait_until(lambda: another.call("XADD", "foo", "*", "n", "7")[0] == "$", "all up", 300)
        options = {"url": f"redis://127.0.0.1:{low.port}", "retries": "0"}
        told = r"MOVED 12182 127\.0\.0\.1:\d+; the server is a node of a Redis Cluster"
        with pytest.raises(Exception, match=told):
            read(spark, "foo", **options).collect()
        with pytest.raises(Exception, match=told):
            save(spark.range(3).selectExpr("id as n"), "foo", idempotence="none", **options)
        options["url"] = f"redis://127.0.0.1:{high.port}"
        assert [row.n for row in read(spark, "foo", **options).collect()] == [7]


def said_by(port: int, *words: str, scheme: str = "redis", **options: Any) -> str:
    """How the error of a command at a server is told."""
    given = ServerOptions(url=f"{scheme}://127.0.0.1:{port}", retries=0, **options)
    with pytest.raises((ServerRefused, ServerUnreachable)) as caught, connect(given) as client:
        client.command(*words)
    return str(caught.value)


def test_what_a_server_refuses_says_what_to_do() -> None:
    add = ("XADD", "s", "*", "n", "1")
    with RedisServer() as server, server.client() as client:
        port = server.port
        assert said_by(port, "PING", db=99).endswith("; check the option db")
        assert "an ID is such as 1718000000000-0" in said_by(port, "XADD", "s", "x", "n", "1")
        tls = "Is the port one for TLS, and has every worker the files of tls.ca and so on?"
        assert tls in said_by(port, "PING", scheme="rediss", tls_ca="/there/is/none")
        client.call("CONFIG", "SET", "maxmemory", "1")
        assert "or raise its maxmemory" in said_by(port, *add)
        client.call("CONFIG", "SET", "maxmemory", "0", "min-replicas-to-write", "1")
        assert "as many others are connected as min-replicas-to-write says" in said_by(port, *add)
        client.call("CONFIG", "SET", "min-replicas-to-write", "0")
        client.call("REPLICAOF", "127.0.0.1", "1")
        assert said_by(port, *add).endswith("; give the address of its primary in option url")
        client.call("CONFIG", "SET", "requirepass", "pw")
        assert said_by(port, *add).endswith("; check the options username and password")


def test_a_server_that_is_loading_is_not_called_absent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as peer:
                while peer.recv(4096):
                    peer.sendall(b"-LOADING Redis is loading the dataset in memory\r\n" * 2)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        told = said_by(listener.getsockname()[1], "PING")
        assert "takes no commands yet (Redis is loading the dataset in memory): retries and" in told
        thread.join(10)
