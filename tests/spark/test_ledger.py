"""The two exactly-once protocols, driven by hand: attempts that die, repeat, race and change."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.spark.connection.client import ServerClient, connect
from anabranch.spark.options import ServerOptions, WriteOptions
from anabranch.spark.writing.adding import Adder, Marks
from anabranch.spark.writing.encode import EncodedRows, encode, runs_by_stream
from anabranch.spark.writing.identity import WriteFailed
from anabranch.spark.writing.layout import Layout
from anabranch.spark.writing.ledger import (
    ChangedReplay,
    LedgerWriter,
    Superseded,
)
from tests.spark.cutting import CuttingWire, ReturningServer
from tests.support.servers import AnabranchServer


@pytest.fixture(scope="module")
def server() -> Iterator[AnabranchServer]:
    with AnabranchServer(extra=["--enable-debug-command", "yes"]) as running:
        yield running


@pytest.fixture
def client(server: AnabranchServer) -> Iterator[ServerClient]:
    with options_connect(server.port) as connected:
        connected.command("FLUSHALL")
        yield connected


def options_connect(port: int, retries: int = 8, pause_ms: int = 50) -> ServerClient:
    url = f"redis://127.0.0.1:{port}"
    return connect(ServerOptions(url=url, retries=retries, retry_interval_ms=pause_ms))


def rows_of(values: list[str], **columns: list[Any]) -> EncodedRows:
    batch = pa.record_batch({"v": values, **columns})
    options = WriteOptions(ServerOptions(), preserve_ids="id" in columns)
    return encode(batch, Layout.of(batch.schema.names, options))


def numbers(start: int, stop: int) -> EncodedRows:
    return rows_of([f"row-{each}" for each in range(start, stop)])


def numbers_of(lane: str, start: int, stop: int) -> EncodedRows:
    return replace(numbers(start, stop), lanes=pa.array([lane.encode()] * (stop - start)))


def ledger(client: ServerClient, batch: int = 1, rows_max: int = 7, **more: Any) -> LedgerWriter:
    return LedgerWriter(client, producer="spark/q/0/0", batch=batch, rows_max=rows_max, **more)


def write(target: LedgerWriter, rows: EncodedRows, key: bytes = b"s") -> LedgerWriter:
    target.append(key, rows)
    target.finish(key)
    return target


def values(client: ServerClient, key: bytes = b"s") -> list[str]:
    return [fields[1].decode() for _, fields in client.command("XRANGE", key, "-", "+")]


def names(start: int, stop: int) -> list[str]:
    return [f"row-{each}" for each in range(start, stop)]


# ----------------------------------------------------------------------------------- the ledger


def test_a_second_attempt_goes_on_where_the_first_one_died(client: ServerClient) -> None:
    first = ledger(client, rows_max=7)
    first.append(b"s", numbers(0, 40))
    first.finish()
    second = ledger(client, rows_max=11)
    for start in range(0, 100, 10):  # other slices, other chunks
        second.append(b"s", numbers(start, start + 10))
    second.finish()
    assert values(client) == names(0, 100)
    assert (second.known, second.appended) == (40, 60)


def test_the_next_batch_begins_anew(client: ServerClient) -> None:
    write(ledger(client, batch=1), numbers(0, 20))
    write(ledger(client, batch=2), numbers(20, 40))
    write(ledger(client, batch=2), numbers(20, 40))
    assert values(client) == names(0, 40)


def test_attempts_at_the_same_time_share_the_work(
    server: AnabranchServer, client: ServerClient
) -> None:
    for seed in range(12):
        client.command("DEL", "s")
        failures: list[BaseException] = []

        def attempt(number: int, seed: int, failures: list[BaseException]) -> None:
            chance = random.Random(seed * 100 + number)
            try:
                with options_connect(server.port) as own:
                    target = ledger(own, batch=seed, rows_max=chance.randrange(1, 60))
                    at = 0
                    while at < 700:
                        stop = min(700, at + chance.randrange(1, 200))
                        target.append(b"s", numbers(at, stop))
                        at = stop
                    target.finish()
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=attempt, args=(number, seed, failures)) for number in range(3)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not failures
        assert values(client) == names(0, 700)


def test_rows_of_several_streams_are_counted_apart(client: ServerClient) -> None:
    streams = [f"s{each % 50}" for each in range(1000)]
    batch = pa.record_batch({"stream": streams, "v": names(0, 1000)})
    layout = Layout.of(["stream", "v"], WriteOptions(ServerOptions()))
    for size in (300, 1000):  # the first attempt dies after 300 rows
        target = ledger(client, rows_max=4)
        for key, run in runs_by_stream(encode(batch.slice(0, size), layout), None):
            target.append(key, run)
        target.finish()
    for stream in range(50):
        assert values(client, b"s%d" % stream) == names(0, 1000)[stream::50]


def changed_value() -> EncodedRows:
    return rows_of([*names(0, 10), "another", *names(11, 30)])


@pytest.mark.parametrize("rows_max", [3, 100])
def test_each_lane_may_have_more_in_a_repetition_and_nothing_overtakes(
    client: ServerClient, rows_max: int
) -> None:
    first = ledger(client, rows_max=rows_max)
    first.append(b"s", numbers_of("eu", 0, 5))
    first.append(b"s", numbers_of("us", 50, 52))
    first.finish()
    second = ledger(client, rows_max=rows_max)
    for start, stop, lane in ((0, 10, "eu"), (50, 60, "us"), (10, 20, "eu"), (90, 95, "ap")):
        second.append(b"s", numbers_of(lane, start, stop))
    second.finish()
    old = [*names(0, 5), *names(50, 52)]
    assert values(client) == [*old, *names(5, 10), *names(52, 60), *names(10, 20), *names(90, 95)]
    assert (second.known, second.appended) == (7, 28)
    assert {row[0]: row[2] for row in client.command("AB.LEDGER", "s")} == {
        b"spark/q/0/0/eu": 20, b"spark/q/0/0/us": 10, b"spark/q/0/0/ap": 5
    }  # fmt: skip
    third = ledger(client, rows_max=rows_max)
    third.append(b"s", numbers_of("eu", 1, 3))
    with pytest.raises(ChangedReplay, match="spark/q/0/0/eu was replayed with different rows"):
        third.finish()


@pytest.mark.parametrize(
    ("second", "how"),
    [
        (changed_value, "its first 20 rows are others"),
        (lambda: numbers(1, 30), "its first 20 rows are others"),
        (lambda: numbers(0, 12), "it has only 12 rows now"),
        (lambda: numbers(0, 0), "it has only 0 rows now"),
    ],
)
def test_a_changed_replay_is_refused(
    client: ServerClient, second: Callable[[], EncodedRows], how: str
) -> None:
    write(ledger(client), numbers(0, 20))
    with pytest.raises(ChangedReplay, match=how):
        write(ledger(client), second())
    assert values(client) == names(0, 20)


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_other_rows_are_not_added_even_where_they_would_fit(
    client: ServerClient, chunks: int
) -> None:
    write(ledger(client, rows_max=7), numbers(0, 7 * chunks))
    with pytest.raises(ChangedReplay, match="are others"):
        write(ledger(client, rows_max=7), numbers(100, 150))
    assert values(client) == names(0, 7 * chunks)
    assert client.command("PING") == b"PONG"


def test_the_message_of_a_changed_replay_says_what_to_do(client: ServerClient) -> None:
    write(ledger(client, batch=17), numbers(0, 20))
    with pytest.raises(ChangedReplay) as raised:
        write(ledger(client, batch=17), numbers(5, 30))
    text = str(raised.value)
    for part in ("batch 17 of spark/q/0/0", "stream s", "deterministicOrder=sort", "sinkId"):
        assert part in text


def test_an_old_batch_is_an_error_unless_it_was_asked_for(client: ServerClient) -> None:
    write(ledger(client, batch=5), numbers(0, 20))
    with pytest.raises(Superseded, match=r"batch 4 .* too late"):
        write(ledger(client, batch=4), numbers(20, 40))
    skipping = write(ledger(client, batch=4, skip_old=True), numbers(20, 40))
    assert (skipping.known, skipping.appended) == (20, 0)
    assert values(client) == names(0, 20)


def test_a_stream_deleted_under_way_is_noticed_and_the_next_attempt_fills_it(
    client: ServerClient,
) -> None:
    target = write(ledger(client), numbers(0, 20))
    client.command("DEL", "s")
    with pytest.raises(WriteFailed, match=r"had accepted 20 rows .* knows of 0.*begins again"):
        write(target, numbers(20, 40))
    write(ledger(client), numbers(0, 40))
    assert values(client) == names(0, 40)


def test_an_error_of_the_server_names_the_stream(client: ServerClient) -> None:
    client.command("SET", "text", "x")
    with pytest.raises(WriteFailed, match=r"stream text .* WRONGTYPE"):
        write(ledger(client), numbers(0, 2), b"text")


def test_trimming_goes_along(client: ServerClient) -> None:
    write(ledger(client, trim=(b"MAXLEN", b"=", b"5")), numbers(0, 50))
    assert values(client) == names(45, 50)


@pytest.mark.parametrize("seed", range(6))
def test_a_wire_that_is_cut_anywhere_doubles_nothing(
    server: AnabranchServer, client: ServerClient, seed: int
) -> None:
    with (
        CuttingWire(server.port, cuts=12, most=20_000, seed=seed) as wire,
        options_connect(wire.port, retries=20, pause_ms=1) as through,
    ):
        target = ledger(through, rows_max=50)
        for at in range(0, 2000, 200):
            target.append(b"s", numbers(at, at + 200))
            target.append(b"t", numbers(at, at + 200))
        target.finish()
        assert wire.cut
    assert values(client) == names(0, 2000)
    assert values(client, b"t") == names(0, 2000)


def test_a_server_killed_in_mid_batch_keeps_what_it_confirmed(tmp_path: Path) -> None:
    extra = ["--appendonly", "yes", "--appendfsync", "always"]
    with ReturningServer(tmp_path, extra) as server:
        killer = threading.Thread(target=kill_at, args=(server, [200, 900, 1500]))
        killer.start()
        with options_connect(server.port, 60) as client:
            target = ledger(client, rows_max=10)
            for at in range(0, 2000, 25):
                target.append(b"s", numbers(at, at + 25))
            target.finish()
        killer.join()
        assert server.starts == 4
        with options_connect(server.port, 60) as client:
            assert values(client) == names(0, 2000)


def kill_at(server: ReturningServer, lengths: list[int], key: str = "s") -> None:
    """Crash the server as soon as the stream has so many entries."""
    for length in lengths:
        with server.client() as watcher:
            while int(watcher.call("XLEN", key)[1]) < length:
                pass
        server.crash()


# ------------------------------------------------------------------------------ XADD and its marks


def position(batch: int = 1) -> Marks:
    return Marks("position", "spark/q/0/0", batch)


def add(client: ServerClient, marks: Any, *several: EncodedRows) -> Adder:
    adder = Adder(client, marks, rows_max=500)
    for rows in several:
        adder.append(b"s", rows)
    adder.finish()
    return adder


def test_25000_rows_by_position_are_recognised_after_half(client: ServerClient) -> None:
    add(client, position(), numbers(0, 12_345))
    add(client, position(), numbers(0, 5), numbers(5, 25_000))
    add(client, position(), numbers(0, 25_000))
    assert values(client) == names(0, 25_000)
    facts = client.command("XINFO", "STREAM", "s")
    told = dict(zip(facts[::2], facts[1::2], strict=True))
    assert (told[b"idmp-maxsize"], told[b"idmp-duration"]) == (10_000, 86_400)


def test_other_rows_at_the_same_positions_are_refused(client: ServerClient) -> None:
    add(client, position(), numbers(0, 1_000))
    with pytest.raises(
        WriteFailed, match="batch 1 of spark/q/0/0 was replayed with different rows"
    ):
        add(client, position(), numbers(0, 700), numbers(5_000, 5_400))
    assert values(client)[:1_000] == names(0, 1_000)
    client.command("XTRIM", "s", "MAXLEN", 0)
    add(client, position(), numbers(0, 500), numbers(5_000, 5_400))  # nothing to compare with


def test_the_next_batch_is_new_by_position(client: ServerClient) -> None:
    for batch in (1, 2):
        add(client, position(batch), numbers(0, 10))
    assert values(client) == names(0, 10) * 2


def test_without_marks_a_repetition_is_there_twice(client: ServerClient) -> None:
    for _ in range(2):
        add(client, Marks("none", "spark/q/0", 1, (b"MAXLEN", b"=", b"15")), numbers(0, 10))
    assert values(client) == names(5, 10) + names(0, 10)


def test_ids_are_kept_and_a_repetition_is_accepted(client: ServerClient) -> None:
    rows = rows_of(names(0, 30), id=[f"{each + 1}-7" for each in range(30)])
    add(client, Marks("id", "spark/q/0", 1), rows.slice(0, 20))
    again = add(client, Marks("id", "spark/q/0", 1), rows)
    assert (again.known, again.appended) == (20, 10)
    assert [each.decode() for each, _ in client.command("XRANGE", "s", "-", "+")] == [
        f"{each + 1}-7" for each in range(30)
    ]


def test_rows_that_are_there_are_looked_at_by_the_page(
    client: ServerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(names(0, 3_000), id=[f"{each + 1}-0" for each in range(3_000)])
    add(client, Marks("id", "spark/q/0", 1), rows)
    asked: list[object] = []
    command = client.command
    monkeypatch.setattr(client, "command", lambda *a, **k: asked.append(a) or command(*a, **k))
    again = add(client, Marks("id", "spark/q/0", 1), rows)
    assert (again.known, again.appended, len(asked)) == (3_000, 0, 6)  # one for each 500 rows


def test_an_id_that_another_entry_has_is_refused(client: ServerClient) -> None:
    add(client, Marks("id", "spark/q/0", 1), rows_of(["a", "b"], id=["5-0", "7-0"]))
    with pytest.raises(WriteFailed, match=r"ID 5-0 .* holds another entry"):
        add(client, Marks("id", "spark/q/0", 1), rows_of(["x"], id=["5-0"]))
    with pytest.raises(WriteFailed, match=r"ID 6-0 .* behind it already.*repartition"):
        add(client, Marks("id", "spark/q/0", 1), rows_of(["x"], id=["6-0"]))


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_wire_doubles_nothing_by_position(
    server: AnabranchServer, client: ServerClient, seed: int
) -> None:
    with (
        CuttingWire(server.port, cuts=7, most=60_000, seed=seed) as wire,
        options_connect(wire.port, retries=20, pause_ms=1) as through,
    ):
        require_before(client)
        add(through, position(), *(numbers(at, at + 500) for at in range(0, 3000, 500)))
        assert wire.cut
    assert values(client) == names(0, 3000)


def require_before(client: ServerClient) -> None:
    """The stream is there, and configured: what asks for that is not repeated by itself."""
    client.command("XADD", "s", "1-1", "v", "x")
    client.command("XCFGSET", "s", "IDMP-DURATION", 86_400, "IDMP-MAXSIZE", 10_000)
    client.command("XTRIM", "s", "MAXLEN", 0)


def test_a_wire_cut_without_marks_ends_the_attempt(
    server: AnabranchServer, client: ServerClient
) -> None:
    from anabranch.spark.connection.client import ServerUnreachable

    with (
        CuttingWire(server.port, cuts=1, most=9_000, seed=3) as wire,
        options_connect(wire.port) as through,
        pytest.raises(ServerUnreachable),
    ):
        add(through, Marks("none", "spark/q/0", 1), numbers(0, 3000))


def test_a_window_in_use_is_never_changed(client: ServerClient) -> None:
    client.command("XADD", "s", "IDMP", "mine", "1", "*", "v", "x")
    with pytest.raises(
        WriteFailed, match=r"give: XCFGSET s IDMP-DURATION 86400 IDMP-MAXSIZE 10000 "
    ):
        add(client, position(), numbers(0, 3))
    assert values(client) == ["x"]


def test_a_longer_window_is_left_as_it_is(client: ServerClient) -> None:
    client.command("XADD", "s", "1-1", "v", "x")
    client.command("XCFGSET", "s", "IDMP-DURATION", 7200, "IDMP-MAXSIZE", 50)
    add(client, position(), numbers(0, 3))
    facts = client.command("XINFO", "STREAM", "s")
    told = dict(zip(facts[::2], facts[1::2], strict=True))
    assert (told[b"idmp-maxsize"], told[b"idmp-duration"]) == (10_000, 7_200)
