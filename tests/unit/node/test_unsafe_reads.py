"""What readers hear while the disk does not take what was written: nothing a crash takes back."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import hiredis
import pytest

from anabranch import scheduling
from anabranch.effects import kinds
from anabranch.node import durability
from anabranch.oplog import unsafe
from anabranch.region import turn
from anabranch.server.connection import ClientConnection
from anabranch.simulator.disk import DiskFault
from tests.support.batches import encode_batch
from tests.support.embedded import Client, World, turns, until
from tests.support.servers import free_port
from tests.support.wire import encode_command

ALWAYS = 1 << 30
POLICIES = pytest.mark.parametrize("policy", ["always", "everysec", "no"])
REFUSED = "MISCONF Errors writing to the AOF file: No space left on device. "
AGAIN = " not on the disk: this cannot be read until the disk accepts writes"


@pytest.fixture
async def world(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(durability, "RETRY_S", 0.01)
    monkeypatch.setattr(scheduling, "SLICE_NS", 1 << 40)  # a pipeline is one turn on any machine
    caplog.set_level("INFO", "anabranch")
    made = World(tmp_path, caplog)
    yield made
    await made.stop()


async def fails(world: World, writer: Client, *lines: str) -> None:
    """Have a turn fail on a disk that is full from now on."""
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=ALWAYS)]
    writer.send(*lines)
    await until(lambda: world.server.durability.trouble)


async def refusal(client: Client, line: str) -> str:
    """The error that a command gets."""
    reply = await client.do(line)
    assert isinstance(reply, hiredis.ReplyError), f"{line}: {reply!r}"
    return str(reply)


async def facts(client: Client, section: str) -> dict[bytes, bytes]:
    """A section of INFO."""
    lines = (await client.do(f"INFO {section}")).splitlines()[1:]
    return dict(line.split(b":", 1) for line in lines)


@POLICIES
async def test_a_key_with_a_change_in_no_file_cannot_be_read(world: World, policy: str) -> None:
    await world.start(policy)
    writer, reader = await world.clients(2)
    await writer.do("XADD safe 1-0 f v")
    await writer.do("XADD s 1-0 f v")
    await writer.do("XGROUP CREATE s g 0")
    await fails(world, writer, "XADD s 2-0 f v")
    for line in (
        *("XRANGE s - +", "XREVRANGE s + -", "XLEN s", "XINFO STREAM s", "XINFO GROUPS s"),
        *("XREAD STREAMS s 0", "XREAD STREAMS safe s 0 0", "XREAD BLOCK 0 STREAMS s $"),
        *("XPENDING s g", "EXISTS safe s", "TYPE s", "TTL s", "DUMP s", "OBJECT ENCODING s"),
        *("MEMORY USAGE s", "WATCH s", "AB.READ STREAMS s 0", "AB.EXPORT s 0 1 2"),
        *("AB.COUNT s - +", "AB.DIGEST s"),
    ):
        assert await refusal(reader, line) == f"{REFUSED}The last change of key 's' is{AGAIN}", line
    for line in ("KEYS *", "SCAN 0", "DBSIZE", "RANDOMKEY", "DEBUG DIGEST", "MEMORY STATS"):
        assert await refusal(reader, line) == f"{REFUSED}Changes of keys are{AGAIN}"
    assert (await refusal(reader, "XREADGROUP GROUP g c STREAMS safe >")).startswith("MISCONF")
    assert await reader.do("XLEN safe") == 1
    assert await reader.do("LOLWUT")
    assert await reader.do("ACL LIST")
    info = await facts(reader, "persistence")
    assert info[b"oplog_unsafe_keys"] == b"1"
    assert int(info[b"oplog_refused_reads"]) == 26
    assert (await facts(reader, "keyspace"))[b"db0"].startswith(b"keys=1,")
    await reader.do("SELECT 1")
    assert await reader.do("XLEN s") == 0, "it is another key"
    await reader.do("SELECT 0")
    world.disk.faults.clear()
    assert await writer.reply() == b"2-0"
    assert await reader.do("XLEN s") == 2
    assert await reader.do("DBSIZE") == 2
    info = await facts(reader, "persistence")
    assert info[b"oplog_unsafe_keys"] == b"0"
    assert (await facts(reader, "keyspace"))[b"db0"].startswith(b"keys=2,")
    world.check_recovery()


async def test_what_is_deleted_in_no_file_is_not_told_to_be_gone(world: World) -> None:
    await world.start("everysec")
    writer, reader = await world.clients(2)
    for line in ("SET a v", "SET b v", "XADD s 1-0 f v", "SET c v EX 1000"):
        await writer.do(line)
    await fails(world, writer, "DEL a", "RENAME b d", "XDEL s 1-0", "COPY c e", "PERSIST c")
    assert (await facts(reader, "keyspace"))[b"db0"].startswith(b"keys=0,expires=0,")
    for line in ("GET a", "GET b", "GET d", "XLEN s", "GET e", "TTL c"):
        assert (await refusal(reader, line)).endswith(AGAIN)
    assert await reader.do("GET f") is None


@pytest.mark.parametrize(
    ("lines", "served"),
    [
        (["FLUSHDB"], ["GET c"]),
        (["SWAPDB 0 2"], ["GET c"]),
        (["FLUSHALL"], []),
    ],
    ids=["a database", "two databases", "all"],
)
async def test_whole_databases_cannot_be_read(
    world: World, lines: list[str], served: list[str]
) -> None:
    await world.start("everysec")
    writer, reader, other = await world.clients(3)
    for line in ("SET a v", "SELECT 1", "SET c v", "SELECT 0"):
        await writer.do(line)
    await other.do("SELECT 1")
    await fails(world, writer, *lines)
    assert (await refusal(reader, "GET a")).endswith(AGAIN)
    for line in served:
        assert await other.do(line) == b"v"
    if not served:
        assert (await refusal(other, "GET c")).endswith(AGAIN)
        assert (await facts(reader, "persistence"))[b"oplog_unsafe_keys"] == b"-1"


async def test_inside_a_transaction_too(world: World) -> None:
    await world.start("everysec")
    writer, reader = await world.clients(2)
    await writer.do("SET safe v")
    await fails(world, writer, "SET k v")
    reader.send("MULTI", "GET safe", "GET k", "SELECT 1", "GET k", "EXEC")
    replies = [await reader.reply() for _ in range(6)]
    assert replies[:5] == [b"OK", *[b"QUEUED"] * 4]
    assert [replies[5][0], *replies[5][2:]] == [b"v", b"OK", None]
    assert str(replies[5][1]).endswith(AGAIN)


async def test_a_transaction_does_not_tell_that_a_watched_key_has_changed(world: World) -> None:
    await world.start("everysec")
    writer, reader = await world.clients(2)
    await writer.do("SET safe v")
    for line in ("WATCH k", "MULTI", "GET safe"):
        await reader.do(line)
    await fails(world, writer, "SET k v")
    assert (await refusal(reader, "EXEC")).startswith("EXECABORT")
    assert await reader.do("GET safe") == b"v"


async def connections(world: World, *clients: Client) -> list[ClientConnection]:
    """The server's ends: what they are handed in a row belongs to one turn."""
    numbers = [await client.do("CLIENT ID") for client in clients]
    return [world.server.region.sessions[number].connection for number in numbers]


async def test_a_wait_that_is_over_does_not_tell_that_nothing_came(world: World) -> None:
    await world.start("everysec")
    writer, reader, unblocked, other = await world.clients(4)
    await writer.do("XADD s 1-0 f v")
    await other.do("SET last 1")  # so the writer's next turn is not written before it is over
    ends = await connections(world, writer, reader, unblocked, other)
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=ALWAYS)]
    lines = (
        *("XDEL s 1-0", "XREAD BLOCK 50 STREAMS s 0"),
        *("XREAD BLOCK 0 STREAMS s 0", "XREAD BLOCK 50 STREAMS t 0"),
    )
    for end, line in zip(ends, lines, strict=True):
        end.data_received(encode_command(line.split()))
    await until(lambda: world.server.durability.trouble)
    assert str(await reader.reply()).endswith(AGAIN)
    assert await other.reply() is None
    number = ends[2].session.id
    assert await other.do(f"CLIENT UNBLOCK {number} TIMEOUT") == 1
    assert str(await unblocked.reply()).endswith(AGAIN)


async def test_messages_that_were_not_written_out_wait_when_the_write_has_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start("everysec")
    writer, *subscribers = await world.clients(6)
    (end,) = await connections(world, writer)
    for subscriber in subscribers:
        await subscriber.do("SUBSCRIBE c")
    monkeypatch.setattr(scheduling, "SLICE_NS", 0)  # one of them is written out in a turn
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=ALWAYS)]
    writer.send("MULTI", "SET k v", "PUBLISH c m", "EXEC")
    await until(lambda: world.server.durability.trouble)
    for subscriber in subscribers:
        assert await subscriber.has_nothing()
    world.disk.faults.clear()
    for subscriber in subscribers:
        assert (await subscriber.reply())[2] == b"m"
    assert not end.session.outbox


@pytest.mark.parametrize("slice_ns", [0, 1 << 40])
async def test_blocked_readers_are_not_told_of_an_entry_in_no_file(
    world: World, monkeypatch: pytest.MonkeyPatch, slice_ns: int
) -> None:
    await world.start("everysec")
    writer, *readers = await world.clients(6)
    for reader in readers:
        reader.send("XREAD BLOCK 0 STREAMS s 0")
    await until(lambda: len(world.server.region.keyspace.waiters.active) == len(readers))
    monkeypatch.setattr(scheduling, "SLICE_NS", slice_ns)  # with 0 one is woken in a turn
    await fails(world, writer, "XADD s 1-0 f v")
    await turns(50)
    refused = 0
    for reader in readers:
        if not await reader.has_nothing():
            assert str(await reader.reply()).endswith(AGAIN)
            refused += 1
    assert bool(refused) == (slice_ns == 0)
    world.disk.faults.clear()
    assert await writer.reply() == b"1-0"


@pytest.mark.parametrize("line", ["BGSAVE", "SAVE", "DEBUG RELOAD"])
async def test_what_writes_in_the_midst_of_a_pipeline_lets_no_reply_out(
    world: World, line: str
) -> None:
    await world.start("everysec")
    (writer,) = await world.clients(1)
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=ALWAYS)]
    writer.send("SET k v", "GET k", line)
    await until(lambda: world.server.durability.trouble)
    assert await writer.has_nothing()
    world.disk.faults.clear()
    assert [await writer.reply(), await writer.reply()] == [b"OK", b"v"]
    assert isinstance(await writer.reply(), hiredis.ReplyError)


async def test_keys_of_an_earlier_turn_that_is_not_synced_cannot_be_read(world: World) -> None:
    await world.start("always")
    first, second, reader = await world.clients(3)
    await first.do("SET safe v")
    world.disk.hold_syncs()
    first.send("SET a v")
    await world.sync_begins()
    await fails(world, second, "SET b v")
    for key in "ab":
        assert (await refusal(reader, f"GET {key}")).endswith(AGAIN)
    assert await reader.do("GET safe") == b"v"
    world.disk.let_all_sync()
    assert await first.reply() == b"OK"
    assert await reader.do("GET a") == b"v"
    assert (await refusal(reader, "GET b")).endswith(AGAIN)
    world.disk.faults.clear()
    assert await second.reply() == b"OK"
    assert await reader.do("GET b") == b"v"


@POLICIES
async def test_after_a_failed_sync_what_was_not_synced_cannot_be_read(
    world: World, policy: str
) -> None:
    await world.start(policy)
    writer, reader, subscriber = await world.clients(3)
    await writer.do("SET safe v")
    await subscriber.do("SUBSCRIBE c")
    world.server.durability.sync_all()
    world.disk.faults = [DiskFault("sync", errno.EIO)]
    world.disk.hold_syncs()
    writer.send("SET a v", "PUBLISH c m")
    await until(lambda: world.server.durability.unsynced_bytes)
    world.server.durability.begin_sync()
    writer.send("SET b v")
    await turns()
    world.disk.let_all_sync()
    await until(lambda: world.server.durability.broken)
    for key in "ab":
        assert (await refusal(reader, f"GET {key}")).endswith("this cannot be read until a restart")
    assert await reader.do("GET safe") == b"v"
    if policy == "always":
        assert await subscriber.is_closed()


async def test_expired_keys_are_told_of_when_it_can_be_told(world: World) -> None:
    await world.start("everysec", notify_keyspace_events="KEA")
    writer, subscriber = await world.clients(2)
    await writer.do("SET safe v PX 50")
    await subscriber.do("PSUBSCRIBE __keyevent@0__:expired")
    await fails(world, writer, "SET k v PX 50")
    assert (await subscriber.reply())[3] == b"safe"
    await until(lambda: not world.server.region.keyspace.databases[0].values)
    assert await subscriber.has_nothing()
    world.disk.faults.clear()
    assert (await subscriber.reply())[3] == b"k"


async def test_users_that_are_in_no_file_are_not_told_of(world: World) -> None:
    await world.start("everysec")
    writer, reader = await world.clients(2)
    await writer.do("SET k v")
    await fails(world, writer, "ACL SETUSER u")
    for line in ("ACL LIST", "ACL USERS", "ACL GETUSER u"):
        text = await refusal(reader, line)
        assert text == f"{REFUSED}Changes of users are{AGAIN}"
    assert [await reader.do("DBSIZE"), await reader.do("GET k")] == [1, b"v"]


async def test_libraries_that_are_in_no_file_cannot_be_read(world: World) -> None:
    await world.start("everysec")
    writer, reader = await world.clients(2)
    library = kinds.SetLibrary(b"l", b"#!lua name=l", [(b"f", b"", [b"no-writes"])])
    world.server.region.effects.emit(library)
    await writer.do("SET k v")
    await fails(world, writer, "FUNCTION DELETE l")
    for line in ("FUNCTION LIST", "FUNCTION DUMP", "FUNCTION STATS", "FCALL f 0", "FCALL_RO f 0"):
        text = await refusal(reader, line)
        assert text == f"{REFUSED}Changes of libraries of functions are{AGAIN}"
    assert await reader.do("GET k") == b"v"
    world.disk.faults.clear()
    await until(lambda: world.server.durability.trouble is None)
    assert await reader.do("FUNCTION LIST") == []


@pytest.mark.parametrize("limit", ["READ_BYTES_MAX", "EFFECTS_MAX"])
async def test_too_much_to_look_through_withholds_everything(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(unsafe, limit, 100)
    monkeypatch.setattr(turn, "BATCH_EFFECTS_MAX", 100)
    await world.start("everysec", oplog_compression=False)
    writer, reader = await world.clients(2)
    await writer.do("SET safe v")
    await fails(world, writer, "MULTI", *["SET k v"] * 250, "EXEC")
    assert (await refusal(reader, "GET safe")).endswith(AGAIN)
    world.disk.faults.clear()
    await until(lambda: world.server.durability.trouble is None)
    assert await reader.do("GET safe") == b"v"


async def test_what_other_regions_sent_is_told_when_it_is_written(world: World) -> None:
    await world.start("everysec")
    (reader,) = await world.clients(1)
    (end,) = await connections(world, reader)
    durable = world.server.durability
    data = encode_batch(
        [kinds.SetString(0, b"k", b"v")], region=0, epoch=0, first=1, wall_ms=1, flags=0
    )
    world.server.region.effects.apply_remote(kinds.SetString(0, b"k", b"v"))
    durable.append(data)
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=ALWAYS)]
    end.data_received(encode_command(["GET", "k"]))
    await until(lambda: durable.trouble)
    assert await reader.has_nothing()
    world.disk.faults.clear()
    assert await reader.reply() == b"v"


async def test_replies_keep_their_order_where_the_trouble_begins_in_the_midst_of_a_turn(
    world: World,
) -> None:
    await world.start("everysec")
    writer, reader = await world.clients(2)
    await writer.do("DEBUG SET-ACTIVE-EXPIRE 0")
    await writer.do("SET k v PX 5")
    (end,) = await connections(world, reader)
    due_ms = world.server.region.keyspace.databases[0].deadlines[b"k"]
    await until(lambda: world.server.clock.now_us() // 1000 > due_ms)
    end.data_received(encode_command(["GET", "k"]))  # which removes it, and waits for the log
    world.server.durability.disk.report("a sync that found no directory", 0)
    end.data_received(encode_command(["PING"]))
    assert [await reader.reply(), await reader.reply()] == [None, b"PONG"]


async def test_cursors_and_tokens_do_not_tell_of_numbers_that_may_be_given_out_again(
    world: World,
) -> None:
    await world.start("everysec", region_id=1, cluster_create=True, gossip_port=free_port())
    writer, reader, blocked = await world.clients(3)
    await writer.do("XADD safe * f v")
    ends = await connections(world, writer, blocked)
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=ALWAYS)]
    for end, line in zip(ends, ("XADD s * f v", "AB.READ BLOCK 50 STREAMS safe $"), strict=True):
        end.data_received(encode_command(line.split()))
    await until(lambda: world.server.durability.trouble)
    text = f"{REFUSED}Some of what this region has applied is{AGAIN}"
    assert str(await blocked.reply()) == text, "its cursor knew of the number"
    for line in ("AB.READ STREAMS safe 0", "AB.TOKEN", "AB.WAITFOR 0 1"):
        assert await refusal(reader, line) == text
    assert await reader.do("XLEN safe") == 1
    assert await reader.do("AB.INFO")
    world.disk.faults.clear()
    assert await writer.reply()
    assert await reader.do("AB.TOKEN")


async def test_an_operator_may_have_everything_served(world: World) -> None:
    await world.start("everysec")
    writer, operator = await world.clients(2)
    await fails(world, writer, "XADD s 1-0 f v")
    assert (await refusal(operator, "SCAN 0")).endswith(AGAIN)
    assert await operator.do("CONFIG SET serve-unsafe-reads yes") == b"OK"
    assert await operator.do("SCAN 0") == [b"0", [b"s"]]
    assert await operator.do("XLEN s") == 1
    assert (await facts(operator, "persistence"))[b"oplog_unsafe_keys"] == b"1"
    assert (await refusal(operator, "SET k v")).startswith("MISCONF")
    assert await operator.do("CONFIG SET serve-unsafe-reads no") == b"OK"
    assert (await refusal(operator, "XLEN s")).endswith(AGAIN)
