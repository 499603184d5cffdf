"""Pieces of a stream read by hand, while wires are cut, entries go, and readers stop early."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch.spark.connection.client import ServerClient, ServerRefused, connect
from anabranch.spark.decoding.columns import Projection
from anabranch.spark.options import ReadOptions, ServerOptions
from anabranch.spark.reading.executor import read_partition
from anabranch.spark.reading.losses import DataLossError
from anabranch.spark.reading.offsets import Range, parse_id
from anabranch.spark.reading.server_logs import ServerLogs
from tests.spark.cutting import CuttingWire, ReturningServer
from tests.spark.reading import fill, planned_and_read, talking, url
from tests.support.servers import AnabranchServer

ENTRIES = 3000
SCHEMA = pa.schema([("position", pa.int64()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[AnabranchServer]:
    with AnabranchServer() as running:
        fill(running, "s", ENTRIES)
        yield running


def options_of(port: int, **options: str) -> ReadOptions:
    server = {"url": f"redis://127.0.0.1:{port}", "retries": "8", "retryIntervalMs": "20"}
    return ReadOptions.parse({"subscribe": "s", "maxBatchBytes": "4096", **server, **options})


def piece_of(client: ServerClient, key: str = "s") -> Range:
    ((row,),) = client.command("AB.OFFSETS", "STREAMS", key)
    return Range(key, row[0].decode(), row[1], 0, ENTRIES, "0-0", "0-0")


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def read(port: int, piece: Range, **options: str) -> Iterator[pa.RecordBatch]:
    return read_partition((piece,), options_of(port, **options), Projection(SCHEMA))


@pytest.fixture
def client(server: AnabranchServer) -> Iterator[ServerClient]:
    with connect(ServerOptions(url=f"redis://127.0.0.1:{server.port}")) as connected:
        yield connected


@pytest.mark.parametrize("codec", ["none", "nodes", "zstd"])
@pytest.mark.parametrize("seed", range(3))
def test_a_wire_that_is_cut_loses_and_doubles_nothing(
    server: AnabranchServer, client: ServerClient, seed: int, codec: str
) -> None:
    most = 10_000 if codec == "zstd" else 60_000
    with CuttingWire(server.port, cuts=6, most=most, seed=seed) as wire:
        found = numbers(read(wire.port, piece_of(client), exportCodec=codec))
        assert found == list(range(ENTRIES))
        assert wire.cut > 1


def test_entries_travel_compressed_if_that_is_asked_for(
    server: AnabranchServer, client: ServerClient
) -> None:
    sizes = []
    for codec in ("none", "zstd"):
        with talking(server) as other:
            before = other.info("stats")["total_net_output_bytes"]
            batches = list(read(server.port, piece_of(client), exportCodec=codec))
            sizes.append(other.info("stats")["total_net_output_bytes"] - before)
        assert numbers(iter(batches)) == list(range(ENTRIES))
    assert sizes[1] < sizes[0] / 3, sizes


def test_a_server_that_is_killed_under_way_is_waited_for() -> None:
    with ReturningServer(extra=["--appendfsync", "always"]) as returning:
        fill(returning, "s", ENTRIES)
        with connect(ServerOptions(url=f"redis://127.0.0.1:{returning.port}")) as other:
            piece = piece_of(other)
        found = []
        for place, batch in enumerate(read(returning.port, piece)):
            found += batch.column("n").to_pylist()
            if place in (2, 5):
                returning.crash()
        assert found == list(range(ENTRIES))


def test_who_stops_early_leaves_no_reply_behind(
    server: AnabranchServer, client: ServerClient
) -> None:
    piece = piece_of(client)
    for _ in range(3):
        batches = read(server.port, piece)
        assert next(batches).column("n")[0].as_py() == 0
        batches.close()
        with connect(options_of(server.port).server) as kept:
            assert kept.command("PING") == b"PONG"
    assert numbers(read(server.port, piece)) == list(range(ENTRIES))


def test_what_was_trimmed_under_way_is_a_loss(
    server: AnabranchServer, client: ServerClient
) -> None:
    fill(server, "trimmed", ENTRIES)
    batches = read(server.port, piece_of(client, "trimmed"))
    first = next(batches).column("n").to_pylist()
    with talking(server) as other:
        other.xtrim("trimmed", maxlen=10, approximate=False)
    with pytest.raises(DataLossError, match="were trimmed before they were read"):
        numbers(batches)
    assert first[0] == 0


def test_what_was_deleted_one_by_one_is_none(server: AnabranchServer, client: ServerClient) -> None:
    ids = fill(server, "holes", ENTRIES)
    with talking(server) as other:
        other.xdel("holes", *ids[10:20], ids[1500])
    expected = [n for n in range(ENTRIES) if not (10 <= n < 20 or n == 1500)]
    assert numbers(read(server.port, piece_of(client, "holes"))) == expected


@pytest.mark.parametrize("first", [0, ENTRIES + 5])
def test_a_log_that_ends_before_a_piece_does_is_a_loss(
    server: AnabranchServer,
    client: ServerClient,
    caplog: pytest.LogCaptureFixture,
    first: int,
) -> None:
    piece = replace(piece_of(client), first=first, stop=ENTRIES + 10)
    with pytest.raises(
        DataLossError,
        match=f"stream s ends at position {ENTRIES}, and should be read up to {ENTRIES + 10}: "
        "the server lost .*, was restored from a backup.* failOnDataLoss=false",
    ):
        numbers(read(server.port, piece))
    with caplog.at_level(logging.WARNING):
        found = numbers(read(server.port, piece, failOnDataLoss="false"))
    assert found == list(range(first, ENTRIES))
    assert [each.message.split(",")[0] for each in caplog.records] == [
        f"stream s ends at position {ENTRIES}"
    ]


def test_a_piece_whose_end_was_deleted_is_whole(
    server: AnabranchServer, client: ServerClient
) -> None:
    ids = fill(server, "shorter", ENTRIES)
    with talking(server) as other:
        other.xdel("shorter", *ids[-20:])
    assert numbers(read(server.port, piece_of(client, "shorter"))) == list(range(ENTRIES - 20))
    piece = replace(piece_of(client, "shorter"), first=ENTRIES - 5)
    assert numbers(read(server.port, piece)) == []


def test_a_command_that_was_begun_is_answered_as_any_other(client: ServerClient) -> None:
    assert client.begin([("ECHO", "a"), ("ECHO", "c")])() == [b"a", b"c"]
    refused = client.begin([("XRANGE", "s", "x", "y")])
    with pytest.raises(ServerRefused, match="Invalid stream ID"):
        client.checked(refused())
    reply = client.begin([("ECHO", "b")])
    client.close()
    assert reply() == [b"b"]


@pytest.mark.parametrize("seed", range(3))
def test_places_are_found_among_entries_that_are_gone(
    server: AnabranchServer, client: ServerClient, seed: int
) -> None:
    chance = random.Random(seed)
    server_logs = ServerLogs(options_of(server.port, subscribe="places"), client)
    for count in (1, 5, 300):
        client.command("DEL", "places")
        times = sorted(chance.choices(range(1, count + 1), k=count))
        made = [client.command("XADD", "places", f"{ms}-*", "n", "1").decode() for ms in times]
        for gone in chance.sample(made, chance.randrange(count)):
            client.command("XDEL", "places", gone)
        client.command("XTRIM", "places", "MAXLEN", "=", chance.randrange(count))
        live = [entry[0].decode() for entry in client.command("XRANGE", "places", "-", "+")]
        log = server_logs.logs()["places"][""]
        position = {each: log.incarnation + at for at, each in enumerate(made)}
        assert server_logs.first_id("places", "", log) == (live[0] if live else None)
        for wanted in [*chance.sample(made, min(count, 20)), "0-1", f"{count + 1}-0"]:
            found = server_logs.locate("places", "", log, wanted)
            behind = [each for each in live if position[each] >= found.position]
            assert behind == [each for each in live if parse_id(each) >= parse_id(wanted)]
            before = [each for each in live if position[each] < found.position]
            if found.position < log.next:
                assert found.last_id == (before[-1] if before else "0-0")


def test_pages_of_a_server_without_positions_are_as_large_as_a_batch_at_most(plain):
    with talking(plain) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(2_000):
            pipe.execute_command("XADD", "s", f"{number + 1}-0", "n", number, "v", "x" * 10_000)
        pipe.execute()

        def pages(**options):
            client.execute_command("CONFIG", "RESETSTAT")
            given = {"url": url(plain), "subscribe": "s", "maxBatchBytes": "1m", **options}
            found = planned_and_read(given)
            return len(found), client.info("commandstats")["cmdstat_xrange"]["calls"]

        count, calls = pages()
        assert count == 2_000
        assert 20 <= calls <= 30
        count, calls = pages(startingOffsets='{"s": "1001-0"}')  # counts what follows, then reads
        assert count == 1_000
        assert 20 <= calls <= 30
