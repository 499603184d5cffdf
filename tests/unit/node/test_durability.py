"""What clients hear while the disk is slow, full or broken.

A whole server in this event loop, on a disk in memory that syncs when the test lets it, and fails
when told to.
"""

from __future__ import annotations

import asyncio
import errno
import random
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import hiredis
import pytest

from anabranch import scheduling
from anabranch.effects import kinds
from anabranch.node import durability, persistence
from anabranch.oplog.batch import effects_in
from anabranch.oplog.errors import SyncFailedError
from anabranch.oplog.log import OpLog
from anabranch.oplog.recovery import TEMPORARY_SUFFIX
from anabranch.oplog.segment import first_position_of, segment_name, turns_in
from anabranch.oplog.snapshot import Snapshot, position_of
from anabranch.server import connection
from anabranch.server.stop import orderly_stop
from anabranch.simulator.disk import DiskFault
from tests.support.embedded import World, turns, until
from tests.support.gated_storage import GatedStorage
from tests.support.logged_server import recovered
from tests.support.wire import encode_command


@pytest.fixture
async def world(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(scheduling, "SLICE_NS", 1 << 40)  # a pipeline is one turn on any machine
    caplog.set_level("INFO", "anabranch")
    made = World(tmp_path, caplog)
    yield made
    await made.stop()


# -- appendfsync always -------------------------------------------------------------------------


async def test_neither_writer_nor_reader_hears_of_what_is_not_synced(world: World) -> None:
    await world.start()
    writer, reader, blocked = await world.clients(3)
    blocked.send("XREAD BLOCK 0 STREAMS s $")
    await turns()
    world.disk.hold_syncs()
    writer.send("XADD s 1-0 f v")
    await world.sync_begins()
    reader.send("XLEN s")
    for client in (writer, reader, blocked):
        assert await client.has_nothing()
    world.disk.let_sync()
    assert await writer.reply() == b"1-0"
    assert await reader.reply() == 1
    assert await blocked.reply() == [[b"s", [[b"1-0", [b"f", b"v"]]]]]


async def test_a_reader_of_something_else_waits_too_so_that_order_is_kept(world: World) -> None:
    await world.start()
    writer, reader = await world.clients(2)
    world.disk.hold_syncs()
    writer.send("SET k 1")
    await world.sync_begins()
    reader.send("PING", "GET k", "PING")
    assert await reader.has_nothing()
    world.disk.let_sync()
    assert [await reader.reply() for _ in range(3)] == [b"PONG", b"1", b"PONG"]


async def test_turns_that_end_during_a_sync_share_the_next(world: World) -> None:
    await world.start()
    first, *others = await world.clients(6)
    world.disk.hold_syncs()
    first.send("SET k0 v")
    await world.sync_begins()
    for number, other in enumerate(others, 1):
        other.send(f"SET k{number} v")
        await turns()
    world.disk.let_sync()
    assert await first.reply() == b"OK"
    await world.sync_begins()
    for other in others:
        assert await other.has_nothing()
    world.disk.let_sync()
    assert [await other.reply() for other in others] == [b"OK"] * 5
    assert len([name for name in world.disk.synced if name.startswith("log-")]) == 2


async def test_a_pipeline_is_one_turn_and_one_sync(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    client.send(*(f"XADD s {number}-0 f v" for number in range(1, 101)))
    for number in range(1, 101):
        assert await client.reply() == b"%d-0" % number
    assert len([name for name in world.disk.synced if name.startswith("log-")]) == 1
    assert len(logged_turns(world)) == 1


class Syncs:
    """Whether each sync of the log ran in the event loop."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_loop: list[bool] = []
        self.least_s = 0.0
        self._begin, self._loop_thread = world.disk.begin_sync, threading.get_ident()
        self._durability = world.server.durability
        monkeypatch.setattr(world.disk, "begin_sync", self._note)

    def all_were_quick(self) -> None:
        """Have the server take the disk for a quick one."""
        self._durability._quick_syncs = durability.QUICK_SYNCS_MIN

    def _note(self, name: str) -> None:
        if name.startswith("log-"):
            self.in_loop.append(threading.get_ident() == self._loop_thread)
        end = time.monotonic() + self.least_s
        while time.monotonic() < end:
            pass
        self._begin(name)


@pytest.fixture
async def syncs(world: World, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    await world.start()
    return Syncs(world, monkeypatch)


async def test_a_little_wakes_no_thread_while_the_disk_is_quick(world: World, syncs: Syncs) -> None:
    (client,) = await world.clients(1)
    assert await client.do("INCR n") == 1
    syncs.all_were_quick()
    assert await client.do("INCR n") == 2
    assert world.server.durability.synced == world.server.durability.position
    assert syncs.in_loop == [False, True]
    syncs.all_were_quick()
    syncs.least_s = durability.QUICK_SYNC_S
    assert await client.do("INCR n") == 3
    syncs.least_s = 0.0
    assert await client.do("INCR n") == 4
    assert syncs.in_loop == [False, True, True, False], "one sync was slow"
    world.check_recovery()


async def test_many_syncs_must_have_been_quick(world: World, syncs: Syncs) -> None:
    (client,) = await world.clients(1)
    for number in range(1, durability.QUICK_SYNCS_MIN + 1):
        assert await client.do("INCR n") == number
    assert not any(syncs.in_loop)


async def test_much_data_wakes_the_thread(world: World, syncs: Syncs) -> None:
    (client,) = await world.clients(1)
    assert await client.do("INCR n") == 1
    syncs.all_were_quick()
    assert await client.do("SET large " + random.Random(1).randbytes(5000).hex()) == b"OK"
    assert syncs.in_loop == [False, False]


async def test_clients_of_one_turn_share_a_sync_without_a_thread(
    world: World, syncs: Syncs
) -> None:
    clients = await world.clients(5)
    assert await clients[0].do("INCR n") == 1
    for _ in range(2):  # at first one of them may be taken for alone
        syncs.all_were_quick()
        for client in clients:
            client.send("INCR n")
        replies = {await client.reply() for client in clients}
    assert replies == set(range(7, 12))
    assert syncs.in_loop[0] is False
    assert syncs.in_loop[-1] is True
    assert len(syncs.in_loop) < 1 + 2 * len(clients)


async def test_a_sync_without_a_thread_answers_all_who_wait(world: World, syncs: Syncs) -> None:
    client, blocked, waiting = await world.clients(3)
    blocked.send("XREAD BLOCK 0 STREAMS s $")
    assert await client.do("XADD s 1-0 f v") == b"1-0"
    assert await blocked.reply() == [[b"s", [[b"1-0", [b"f", b"v"]]]]]
    blocked.send("XREAD BLOCK 0 STREAMS s $")
    await turns()
    syncs.all_were_quick()
    assert await client.do("XADD s 2-0 f v") == b"2-0"
    assert await blocked.reply() == [[b"s", [[b"2-0", [b"f", b"v"]]]]]
    syncs.all_were_quick()
    client.send("SET k v", "WAITAOF 1 0 0")
    assert [await client.reply() for _ in range(2)] == [b"OK", [1, 0]]
    assert await waiting.do("WAITAOF 1 0 0") == [1, 0]


async def test_who_waits_for_a_failed_sync_without_a_thread_is_cut_off(
    world: World, syncs: Syncs
) -> None:
    client, other = await world.clients(2)
    assert await client.do("SET k 1") == b"OK"
    syncs.all_were_quick()
    world.disk.faults = [DiskFault("sync", errno.EIO)]
    client.send("SET k 2", "GET k")
    assert await client.is_closed()
    assert syncs.in_loop == [False, True]
    assert world.server.durability.broken
    assert "MISCONF" in str(await other.do("SET k 3"))
    assert "MISCONF" in str(await other.do("GET k"))
    assert world.keys_on_disk() == {b"k"}


async def test_replies_do_not_wait_for_work_that_is_left_over(world: World) -> None:
    await world.start("no")
    (client,) = await world.clients(1)
    node, held = world.server.node, set[int]()

    def work() -> bool:
        held.add(len(node.durability.replies._this_turn))
        return True

    node.region.scheduler.schedule(work)
    for number in range(1, 4):
        assert await client.do(f"XADD s {number}-0 f v") == b"%d-0" % number
    node.region.scheduler.remove(work)
    assert held == {0}


async def test_nothing_waits_when_nothing_was_written(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    assert await client.do("SET k 1") == b"OK"
    world.disk.hold_syncs()
    assert await client.do("GET k") == b"1"


async def test_what_is_answered_survives_any_power_failure(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    rng = random.Random(3)
    for number in range(30):
        assert await client.do(f"SET k{number} v") == b"OK"
        keyspace, _ = recovered(world.disk.crash(rng))
        assert len(keyspace.databases[0].values) == number + 1


async def test_a_client_whose_replies_pile_up_is_not_read_from(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HELD_REPLY_BYTES_MAX", 1000)
    await world.start()
    (client,) = await world.clients(1)
    assert await client.do(f"SET k {'v' * 900}") == b"OK"
    world.disk.hold_syncs()
    client.send("SET other v")
    await world.sync_begins()
    for _ in range(20):
        client.send("GET k")
        await turns()
    (ours,) = world.server.connections
    assert ours._held_reply_bytes < 3000
    world.disk.let_all_sync()
    assert await client.reply() == b"OK"
    for _ in range(20):
        assert await client.reply() == b"v" * 900
    assert ours._held_reply_bytes == 0


async def test_messages_and_monitors_are_held_in_order(world: World) -> None:
    await world.start()
    writer, subscriber, monitor = await world.clients(3)
    await subscriber.do("SUBSCRIBE news")
    await monitor.do("MONITOR")
    world.disk.hold_syncs()
    writer.send("SET k 1", "PUBLISH news first")
    await world.sync_begins()
    writer.send("PUBLISH news second")
    assert await subscriber.has_nothing()
    assert await monitor.has_nothing()
    world.disk.let_sync()
    assert [(await subscriber.reply())[2] for _ in range(2)] == [b"first", b"second"]
    seen = [(await monitor.reply()).split(b"] ")[1] for _ in range(3)]
    assert seen == [b'"SET" "k" "1"', b'"PUBLISH" "news" "first"', b'"PUBLISH" "news" "second"']
    assert [await writer.reply() for _ in range(3)] == [b"OK", 1, 1]


async def test_quit_behind_a_write_is_answered_before_the_end(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.hold_syncs()
    client.send("SET k 1", "QUIT")
    await world.sync_begins()
    assert await client.has_nothing()
    world.disk.let_sync()
    assert [await client.reply(), await client.reply()] == [b"OK", b"OK"]
    assert await client.is_closed()


async def test_the_last_replies_of_a_long_turn_are_written_before_the_end(world: World) -> None:
    await world.start("everysec")
    client = await world.client()
    assert await client.do("PING") == b"PONG"
    (session,) = world.server.region.sessions.values()
    (served,) = [each for each in world.server.clients.connections if each.session is session]
    # Two reads in one turn: what the second one does is enough to write the turn at once.
    add, many = encode_command(["XADD", "s", "*", "f", "v"]), durability.MANY_EFFECTS
    served.data_received(add)
    served.data_received(add * many + encode_command(["QUIT"]))
    replies = [await client.reply() for _ in range(1 + many + 1)]
    assert replies[-1] == b"OK"
    assert await client.is_closed()


async def test_who_writes_alone_has_written_when_its_read_is_over(world: World) -> None:
    await world.start("everysec")
    client = await world.client()
    assert await client.do("SET a 1") == b"OK"
    (served,) = world.server.clients.connections
    served.data_received(encode_command(["SET", "b", "1"]))
    assert world.keys_on_disk() == {b"a", b"b"}  # the event loop has not run since
    assert await client.reply() == b"OK"


async def test_who_writes_in_one_turn_with_others_shares_their_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No sync meanwhile, which would be noted by a write of its own.
    monkeypatch.setitem(cast("dict[str, float]", durability.SYNC_EVERY_S), "everysec", 3600)
    await world.start("everysec")
    clients = await world.clients(3)
    assert [await client.do("SET a 1") for client in clients] == [b"OK"] * 3
    append, writes = OpLog.append, []

    def count(log: OpLog, *data: bytes) -> None:
        writes.append(len(data))
        append(log, *data)

    monkeypatch.setattr(OpLog, "append", count)
    order = sorted(world.server.clients.connections, key=lambda each: each.session.id)
    counts = []
    for _ in range(6):
        for served in reversed(order):  # first the one that was alone in the turn before
            served.data_received(encode_command(["SET", "a", "2"]))
        assert [await client.reply() for client in clients] == [b"OK"] * 3
        counts.append(len(writes))
        writes.clear()
    assert counts == [2, 1, 1, 1, 1, 1]


async def test_client_reply_off_and_skip_stay_silent(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    client.send("CLIENT REPLY OFF", "SET a 1", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "SET b 1")
    assert await client.reply() == b"OK"
    assert [await client.do("GET a"), await client.do("GET b")] == [b"1", b"1"]
    assert world.keys_on_disk() == {b"a", b"b"}


async def test_a_client_that_left_is_not_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSING_S", 0.05)
    await world.start()
    gone, client = await world.clients(2)
    world.disk.hold_syncs()
    gone.send("SET a 1")
    await world.sync_begins()
    gone.close()
    await until(lambda: len(world.server.connections) == 1)
    world.disk.let_all_sync()
    assert await client.do("GET a") == b"1"
    assert "server.internal_error" not in world.events()


async def test_a_stop_answers_what_waits(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.hold_syncs()
    client.send("SET a 1")
    await world.sync_begins()
    world.disk.let_all_sync()
    await orderly_stop(world.server, patient=True)
    assert await client.reply() == b"OK"
    assert await client.is_closed()


# -- everysec and no ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["everysec", "no"])
async def test_other_policies_do_not_wait_for_a_sync(world: World, policy: str) -> None:
    await world.start(policy)
    writer, reader = await world.clients(2)
    world.disk.hold_syncs()
    for number in range(3):
        assert await writer.do(f"SET k{number} v") == b"OK"
        assert await reader.do(f"GET k{number}") == b"v"
        assert b"k%d" % number in world.keys_on_disk()


async def test_everysec_syncs_in_the_background(world: World) -> None:
    await world.start("everysec")
    (client,) = await world.clients(1)
    await client.do("SET k v")
    await until(lambda: world.server.durability.unsynced_bytes == 0)
    keyspace, _ = recovered(world.disk.crash(random.Random(1)))
    assert len(keyspace.databases[0].values) == 1


async def test_whoever_settles_the_log_has_it_say_so_once(world: World) -> None:
    await world.start("everysec")
    (client,) = await world.clients(1)
    await client.do("SET k v")
    durable = world.server.durability
    for _ in range(3):
        durable.sync_all()
        last = [effect for turn in logged_turns(world) for effect in turn]
        assert [type(effect) for effect in last] == [kinds.SetString, kinds.Synced]
        assert durable.synced == durable.position


async def test_a_sync_that_takes_too_long_holds_replies_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start("everysec", hz=100)
    (client,) = await world.clients(1)
    world.disk.hold_syncs()
    assert await client.do("SET a v") == b"OK"
    await world.sync_begins()
    monkeypatch.setattr(durability, "SYNC_SLOW_S", 0.0)
    client.send("SET b v", "GET a")
    await until(lambda: b"b" in world.server.region.keyspace.databases[0].values)
    for _ in range(3):
        world.server.durability.tick()
        await turns()
    assert await client.has_nothing()
    world.disk.let_all_sync()
    assert [await client.reply(), await client.reply()] == [b"OK", b"v"]
    assert world.server.durability.delayed_syncs == 1


async def test_a_change_of_policy_holds_for_who_waits(world: World) -> None:
    await world.start("always")
    writer, other = await world.clients(2)
    world.disk.hold_syncs()
    writer.send("SET a v")
    await world.sync_begins()
    other.send("CONFIG SET appendfsync everysec")
    assert await other.reply() == b"OK"
    assert await writer.reply() == b"OK"
    assert await other.do("CONFIG SET appendfsync always") == b"OK"
    other.send("SET b v")
    assert await other.has_nothing()
    world.disk.let_all_sync()
    assert await other.reply() == b"OK"


async def test_waitaof_is_answered_as_soon_as_it_is_true(world: World) -> None:
    await world.start("everysec")
    waiter, other = await world.clients(2)
    world.disk.hold_syncs()
    assert await waiter.do("SET a v") == b"OK"
    waiter.send("WAITAOF 1 0 0")
    assert await waiter.has_nothing()
    world.server.stop_timers()  # nothing but the sync itself can bring the answer
    world.server.durability.begin_sync()
    assert await other.do("WAITAOF 0 0 0") == [0, 0]
    world.disk.let_all_sync()
    assert await waiter.reply() == [1, 0]


# -- a disk that does not take it -----------------------------------------------------------------

FULL = [
    pytest.param(errno.ENOSPC, 0, id="full"),
    pytest.param(errno.ENOSPC, 17, id="full in the middle"),
    pytest.param(errno.EIO, 0, id="broken"),
    pytest.param(errno.EIO, 50, id="broken in the middle"),
    pytest.param(errno.EFBIG, 3, id="too large"),
]


@pytest.mark.parametrize("policy", ["always", "everysec"])
@pytest.mark.parametrize(("code", "keep"), FULL)
async def test_writes_are_refused_and_reads_go_on_until_it_can_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str, code: int, keep: int
) -> None:
    monkeypatch.setattr(durability, "RETRY_S", 0.01)
    await world.start(policy)
    writer, other, reader = await world.clients(3)
    assert await writer.do("SET a before") == b"OK"
    fault = DiskFault("write", code, times=1 << 30, keep=keep)
    world.disk.faults = [fault]
    writer.send("SET b kept")
    await until(lambda: fault.times < (1 << 30) - 2)  # it was tried more than once
    refusal = await other.do("SET c refused")
    assert str(refusal).startswith("MISCONF Errors writing to the AOF file: ")
    assert await reader.do("GET a") == b"before"
    assert await reader.do("GET c") is None
    assert await reader.do("PING") == b"PONG"
    assert b"aof_last_write_status:err" in await reader.do("INFO persistence")
    writer.send("PING")  # its reply cannot overtake the one before it
    assert await writer.has_nothing()
    other.send("MULTI", "SET c refused", "EXEC")
    assert [str(await other.reply())[:7] for _ in range(3)] == ["b'OK'", "MISCONF", "EXECABO"]
    world.disk.faults.clear()
    assert [await writer.reply(), await writer.reply()] == [b"OK", b"PONG"]
    assert await other.do("SET c taken") == b"OK"
    assert b"aof_last_write_status:ok" in await reader.do("INFO persistence")
    assert world.keys_on_disk() == {b"a", b"b", b"c"}
    world.check_recovery()
    assert world.events().count("oplog.write_failed") == 1, "an operator needs one line"
    assert world.events().count("oplog.writes_again") == 1


async def test_a_turn_for_which_there_is_no_memory_is_written_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "RETRY_S", 0.01)
    await world.start("everysec")
    (client,) = await world.clients(1)
    append, failures = OpLog.append, [MemoryError(), MemoryError()]

    def short_of_memory(log: OpLog, *data: bytes) -> None:
        if failures:
            raise failures.pop()
        append(log, *data)

    monkeypatch.setattr(OpLog, "append", short_of_memory)
    assert await client.do("SET a kept") == b"OK"
    assert not failures
    assert await client.do("SET b kept") == b"OK"
    assert world.keys_on_disk() == {b"a", b"b"}
    world.check_recovery()
    assert "oplog.write_failed" in world.events()


async def test_a_kill_while_the_disk_is_full_loses_nothing_that_was_answered(
    world: World,
) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.free = 3000
    answered = set()
    number = 0
    while True:
        key = f"k{number}"
        client.send(f"SET {key} {'v' * 100}")
        await until(lambda: world.server.durability.trouble or client._reader._buffer)  # type: ignore[attr-defined]
        if world.server.durability.trouble:
            break
        assert await client.reply() == b"OK"
        answered.add(key.encode())
        number += 1
    assert len(answered) > 5
    assert world.keys_on_disk() == answered


async def test_keys_that_expire_while_the_disk_is_full_are_deleted_on_it_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "RETRY_S", 0.01)
    await world.start()
    writer, reader = await world.clients(2)
    await writer.do("SET k v PX 50")
    await writer.do("SET l v")
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=1 << 30)]
    writer.send("SET m v")
    await until(lambda: world.server.durability.trouble)
    await until(lambda: b"k" not in world.server.region.keyspace.databases[0].values)
    assert await reader.do("GET l") == b"v"
    assert await reader.do("GET k") is None
    world.disk.faults.clear()
    assert await writer.reply() == b"OK"
    assert await reader.do("GET m") == b"v"
    assert world.keys_on_disk() == {b"l", b"m"}


async def test_reads_go_on_while_the_disk_is_full_and_a_bulk_producers_record_comes_of_age(
    world: World,
) -> None:
    await world.start()
    writer, reader = await world.clients(2)
    row = b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
    words = "AB.IMPORT s PRODUCER p BATCH 1 EXPECT 0".split()
    writer._writer.write(encode_command([*words, struct.pack("<2I", 1, len(row)) + row]))
    assert (await writer.reply())[0] == 1
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=1 << 30)]
    writer.send("SET a v")
    await until(lambda: world.server.durability.trouble)
    writer.close()
    await until(lambda: len(world.server.connections) == 1)
    world.server.region.effects.emit(kinds.DropRecords(0, b"s", [b"p"]))
    (connection,) = world.server.connections
    connection.data_received(encode_command(["XLEN", "s"]))  # in the same turn
    assert await reader.reply() == 1
    assert world.server.durability.trouble


async def test_a_stop_writes_what_has_become_possible_to_write(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=1)]
    client.send("SET k v")
    await until(lambda: world.server.durability.trouble)
    await orderly_stop(world.server, patient=True)
    assert world.keys_on_disk() == {b"k"}
    assert await client.reply() == b"OK"


async def test_a_stop_says_what_it_could_not_write(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.faults = [DiskFault("write", errno.ENOSPC, times=1 << 30)]
    client.send("SET k v")
    await until(lambda: world.server.durability.trouble)
    await orderly_stop(world.server, patient=False)
    assert world.events().count("oplog.unwritten_at_stop") == 1
    assert await client.is_closed()


# -- a sync that fails ----------------------------------------------------------------------------


async def test_after_a_failed_sync_who_waits_is_cut_off_and_writes_are_refused(
    world: World,
) -> None:
    await world.start("always", hz=100)
    writer, other, waiting, reader = await world.clients(4)
    await other.do("SET a v PX 200")
    world.disk.hold_syncs()
    writer.send("SET b v")
    await world.sync_begins()
    other.send("SET c v")
    waiting.send("GET a")
    await turns()
    world.disk.faults = [DiskFault("sync", errno.EIO)]
    world.disk.let_all_sync()
    for client in (writer, other, waiting):
        assert await client.is_closed()
    synced = len(world.disk.synced)
    assert await reader.do("GET a") == b"v"
    refusal = await reader.do("SET d v")
    assert "MISCONF" in str(refusal)
    assert "fsync failed: Input/output error" in str(refusal)
    await until(lambda: b"a" not in world.server.region.keyspace.databases[0].values)
    assert await reader.do("GET a") is None, "reads go on although a key has expired"
    late = await world.client()
    assert await late.do("PING") == b"PONG"
    assert await late.do("WAITAOF 1 0 30") == [0, 0]
    for line in ("SAVE", "BGSAVE", "BGREWRITEAOF"):
        assert isinstance(await late.do(line), hiredis.ReplyError), line
    assert b"aof_last_write_status:err" in await late.do("INFO persistence")
    assert len(world.disk.synced) == synced, "a failed sync is never believed the second time"
    assert world.events().count("oplog.sync_failed") == 1
    assert "server.internal_error" not in world.events()


async def test_after_a_failed_sync_in_the_background_reads_of_other_keys_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast("dict[str, float]", durability.SYNC_EVERY_S), "everysec", 0.01)
    await world.start("everysec", hz=100)
    (client,) = await world.clients(1)
    assert await client.do("SET a v EX 60") == b"OK"
    await until(lambda: world.server.durability.unsynced_bytes == 0)
    world.disk.faults = [DiskFault("sync", errno.EIO)]
    assert await client.do("SET b v") == b"OK"
    await until(lambda: world.server.durability.broken)
    assert "MISCONF" in str(await client.do("SET a w"))
    assert await client.do("GET a") == b"v"
    assert "this cannot be read until a restart" in str(await client.do("GET b"))
    minute_later = world.server.region.clock.now_us() * 1000 + 61_000_000_000
    monkeypatch.setattr(world.server.region.clock, "_time_ns", lambda: minute_later)
    await until(lambda: b"a" not in world.server.region.keyspace.databases[0].values)
    assert await client.do("GET a") is None
    assert await client.do("PING") == b"PONG"


async def test_a_sync_that_ends_well_after_another_one_failed_changes_nothing(
    world: World,
) -> None:
    await world.start("always")
    first, other, third = await world.clients(3)
    await first.do("SET a v")
    world.disk.hold_syncs()
    first.send("SET b v")
    await world.sync_begins()
    durable = world.server.durability
    gate, world.disk._gate = world.disk._gate, None  # the one in the thread goes on waiting
    world.disk.faults = [DiskFault("write", errno.ENOSPC, keep=3, times=1)]
    other.send("SET c v")
    await until(lambda: durable.is_behind)
    world.disk.faults = [DiskFault("sync", errno.EIO, times=1)]
    with pytest.raises(SyncFailedError):
        durable.begin_segment()  # the part of a batch is cut off, and that is synced at once
    assert durable.is_syncing
    assert gate is not None
    gate.release()
    await until(lambda: durable._syncing is None)
    assert durable.broken
    assert "MISCONF" in str(await third.do("SET c v"))


async def test_a_restart_after_a_failed_sync_takes_writes_again(
    world: World,
) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.faults = [DiskFault("sync", errno.EIO)]
    client.send("SET a v")
    assert await client.is_closed()
    await orderly_stop(world.server, patient=False)
    world.server.persistence.close()
    world.disk = GatedStorage(world.disk.files())
    await world.start()
    (client,) = await world.clients(1)
    assert await client.do("SET b v") == b"OK"
    world.check_recovery()


async def test_a_failed_sync_of_the_directory_is_no_less_a_failure(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    world.disk.faults = [DiskFault("sync directory", errno.EIO)]
    client.send("SET a v")
    assert await client.is_closed()
    (client,) = await world.clients(1)
    assert "MISCONF" in str(await client.do("SET b v"))


# -- transactions -----------------------------------------------------------------------------


def logged_turns(world: World) -> list[list[kinds.Effect]]:
    """The turns in the log, in order."""
    files = world.disk.files()
    return [
        [effect for batch in item[1] for effect in effects_in(batch)]
        for name in sorted(files)
        if first_position_of(name) is not None
        for item in turns_in(files[name])
        if isinstance(item[1], list)
    ]


async def test_what_others_do_not_need_any_more_goes_without_a_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(hz=100)
    (client,) = await world.clients(1)
    log = world.server.durability.log
    assert log is not None
    log.needed_from = lambda: 0
    await client.do("SET a v")
    await client.do("BGREWRITEAOF")
    await until(lambda: world.server.persistence.snapshots.count)
    await client.do("SET b v")
    assert len(log.segments) == 2
    log.needed_from = lambda: log.end
    ticks = 0
    tick = log.tick

    def counted() -> None:
        nonlocal ticks
        ticks += 1
        tick()

    monkeypatch.setattr(log, "tick", counted)
    await until(lambda: ticks > 5)
    assert len(log.segments) == 2, "not all the time"
    monkeypatch.setattr(persistence, "RETIRE_EVERY_S", 0.0)
    await until(lambda: len(log.segments) == 1)
    world.check_recovery()


@pytest.mark.parametrize("line", ["BGSAVE", "BGREWRITEAOF"])
async def test_a_snapshot_asked_for_within_a_transaction_does_not_split_it(
    world: World, line: str
) -> None:
    await world.start()
    (client,) = await world.clients(1)
    client.send("MULTI", "SET a v", line, "SET b v", "EXEC")
    replies = [await client.reply() for _ in range(5)]
    assert replies[4][0] == replies[4][2] == b"OK"
    assert [len(turn) for turn in logged_turns(world)] == [2]
    await until(lambda: any(position_of(name) for name in world.disk.names()))
    world.check_recovery()


@pytest.mark.parametrize(
    "line",
    [
        "CONFIG SET hz 20 AppendOnly no",
        "CONFIG SET appendonly yes",
        "DEBUG RELOAD",
        "DEBUG LOADAOF",
    ],
)
async def test_what_would_split_a_transaction_is_refused_within_it(world: World, line: str) -> None:
    await world.start()
    (client,) = await world.clients(1)
    client.send("MULTI", "SET a v", line, "SET b v", "EXEC")
    replies = [await client.reply() for _ in range(5)]
    assert replies[4][0] == replies[4][2] == b"OK"
    assert str(replies[4][1]).endswith("allowed inside a transaction")
    assert [len(turn) for turn in logged_turns(world)] == [2]
    assert world.server.settings.appendonly
    assert world.server.settings.hz != 20
    world.check_recovery()
    assert await client.do(line) == b"OK"


# -- snapshots ----------------------------------------------------------------------------------


async def snapshot_is_over(world: World) -> None:
    await until(lambda: not world.server.persistence.snapshots.in_progress)


async def test_nobody_waits_for_the_sync_of_a_full_file(world: World) -> None:
    await world.start("everysec")
    (client,) = await world.clients(1)
    log = world.server.durability.log
    assert log is not None
    log.segment_bytes = 1
    world.disk.hold_syncs("log-")
    assert await client.do("SET a v") == b"OK"
    assert await client.do("SET b v") == b"OK"
    assert len(log.segments) == 2
    assert (await client.do("BGSAVE")) == b"Background saving started"
    assert len(log.segments) == 3
    assert await client.do("SET c v") == b"OK"
    assert not any(position_of(name) for name in world.disk.names()), "the log is not on the disk"
    world.disk.let_all_sync()
    await snapshot_is_over(world)
    world.check_recovery()


async def test_the_log_before_a_snapshot_is_on_the_disk_with_it(world: World) -> None:
    await world.start("no")
    (client,) = await world.clients(1)
    await client.do("SET a v")
    name = segment_name(0)
    whole = world.disk.files()[name]
    assert await client.do("SAVE") == b"OK"
    ends = [world.disk.crash(random.Random(seed)).files() for seed in range(20)]
    assert all(any(position_of(each) for each in left) for left in ends)
    assert {left[name] for left in ends if name in left} == {whole}


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault("create", errno.ENOSPC, name="snapshot"),
        DiskFault("write", errno.ENOSPC, name="snapshot", keep=10),
        DiskFault("sync", errno.EIO, name="snapshot"),
        DiskFault("rename", errno.EIO),
    ],
    ids=lambda fault: fault.operation,
)
async def test_a_snapshot_that_fails_leaves_everything_as_it_was(
    world: World, fault: DiskFault
) -> None:
    await world.start()
    (client,) = await world.clients(1)
    await client.do("XADD s 1-0 f v")
    world.disk.faults = [DiskFault(fault.operation, fault.code, keep=fault.keep, name=fault.name)]
    await client.do("BGSAVE")
    await snapshot_is_over(world)
    assert not any("snapshot" in name for name in world.disk.names())
    assert "snapshot.failed" in world.events()
    info = await client.do("INFO persistence")
    assert b"rdb_changes_since_last_save:1\r" in info
    if fault.operation != "create":
        assert b"rdb_last_bgsave_status:err" in info
    assert await client.do("XADD s 2-0 f v") == b"2-0"
    world.check_recovery()
    assert (await client.do("BGSAVE")) == b"Background saving started"
    await snapshot_is_over(world)
    assert b"rdb_last_bgsave_status:ok" in await client.do("INFO persistence")
    world.check_recovery()


async def test_after_a_bug_in_a_snapshot_the_next_one_can_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    (client,) = await world.clients(1)
    await client.do("XADD s 1-0 f v")
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )

    def broken(self: Snapshot) -> Iterator[bytes]:
        raise KeyError("a bug")
        yield b""

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "bodies", broken)
        assert await client.do("BGSAVE") == b"Background saving started"
        await snapshot_is_over(world)
    assert [type(each) for each in reported] == [KeyError]
    assert "snapshot.failed" in world.events()
    assert not any("snapshot" in name for name in world.disk.names())
    assert await client.do("BGSAVE") == b"Background saving started"
    await snapshot_is_over(world)
    assert b"rdb_last_bgsave_status:ok" in await client.do("INFO persistence")


async def test_a_log_turned_off_during_a_snapshot_keeps_what_it_holds(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    assert await client.do("SET before v") == b"OK"
    world.disk.hold_syncs("snapshot")
    assert await client.do("BGSAVE") == b"Background saving started"
    await world.sync_begins()
    assert await client.do("SET after v") == b"OK"
    assert await client.do("CONFIG SET appendonly no") == b"OK"
    world.disk.let_all_sync()
    await snapshot_is_over(world)
    assert world.keys_on_disk() == {b"before", b"after"}
    assert await client.do("SAVE") == b"OK"
    assert not any(first_position_of(name) is not None for name in world.disk.names())
    assert world.keys_on_disk() == {b"before", b"after"}


async def test_of_a_log_turned_off_the_newest_files_are_removed_first(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    for key in ("a", "b", "c"):
        assert await client.do(f"SET {key} v") == b"OK"
        world.server.persistence.durability.begin_segment()
    assert await client.do("CONFIG SET appendonly no") == b"OK"
    before = [name for name in sorted(world.disk.names()) if name.startswith("log-")]
    world.disk.faults = [DiskFault("remove", after=1, name="log-")]
    assert await client.do("SAVE") == b"OK"
    assert [name for name in sorted(world.disk.names()) if name.startswith("log-")] == before[:-1]


async def test_save_keeps_its_own_client_waiting_only(world: World) -> None:
    await world.start()
    saver, other = await world.clients(2)
    number = await saver.do("CLIENT ID")
    assert await saver.do("SET before v") == b"OK"
    world.disk.hold_syncs("snapshot")
    saver.send("SAVE", "ECHO behind")
    await world.sync_begins()
    assert await other.do("SET after v") == b"OK"
    for line in ("SAVE", "BGSAVE"):
        assert str(await other.do(line)) == "ERR Background save already in progress"
    for reason in ("TIMEOUT", "ERROR"):
        assert await other.do(f"CLIENT UNBLOCK {number} {reason}") == 0
    assert await saver.has_nothing()
    world.disk.let_all_sync()
    assert [await saver.reply(), await saver.reply()] == [b"OK", b"behind"]
    assert world.keys_on_disk() == {b"before", b"after"}


async def test_save_tells_its_client_that_the_snapshot_failed(world: World) -> None:
    await world.start()
    saver, other = await world.clients(2)
    assert await saver.do("SET k v") == b"OK"
    world.disk.hold_syncs("snapshot")
    saver.send("SAVE")
    await world.sync_begins()
    world.disk.faults = [DiskFault("sync", errno.EIO)]
    world.disk.let_all_sync()
    assert str(await saver.reply()) == "ERR"
    assert b"rdb_last_bgsave_status:err" in await other.do("INFO persistence")
    assert await saver.do("SAVE") == b"OK"


async def test_a_client_whose_save_was_given_up_hears_so(world: World) -> None:
    await world.start()
    (saver,) = await world.clients(1)
    world.disk.hold_syncs("snapshot")
    saver.send("SAVE")
    await world.sync_begins()
    world.disk.let_all_sync()
    world.server.persistence.snapshots.abandon()  # before the loop hears that it is on the disk
    assert str(await saver.reply()) == "ERR"


async def test_snapshots_and_leftovers_that_cannot_be_removed_do_no_harm(world: World) -> None:
    await world.start()
    (client,) = await world.clients(1)
    await client.do("SET a v")
    await client.do("BGSAVE")
    await snapshot_is_over(world)
    await client.do("SET b v")
    world.disk.faults = [DiskFault("remove", errno.EIO)]
    await client.do("BGSAVE")
    await snapshot_is_over(world)
    assert "oplog.retire_failed" in world.events()
    assert await client.do("SET c v") == b"OK"
    world.check_recovery()
    await client.do("BGSAVE")
    await snapshot_is_over(world)
    assert len([name for name in world.disk.names() if position_of(name) is not None]) == 1
    assert not any(name.endswith(TEMPORARY_SUFFIX) for name in world.disk.names())
    world.check_recovery()


async def test_a_log_that_is_kept_for_others_calls_for_no_further_snapshot(world: World) -> None:
    await world.start("no", auto_aof_rewrite_min_size=4096, auto_aof_rewrite_percentage=100, hz=500)
    persistence = world.server.persistence
    log = persistence.durability.log
    assert log is not None
    log.needed_from = lambda: 0  # a region that has been away from the beginning
    (client,) = await world.clients(1)
    for number in range(200):
        await client.do(f"XADD s * field {number:0100}")
    await until(lambda: persistence.snapshots.count and not persistence.snapshots.in_progress)
    persistence.tick()
    await snapshot_is_over(world)
    taken = persistence.snapshots.count
    for _ in range(20):
        persistence.tick()
        await snapshot_is_over(world)
    assert log.size > 4096, "it could not be made shorter"
    assert persistence.snapshots.count == taken
