"""Each row of the table of holders is counted: against what Python says, or the system.

The table is in docs/limits.md. What the core holds is driven in this process and compared with what
tracemalloc saw; what sockets, TLS and Lua hold is driven in a server process and compared with its
resident size.
"""

from __future__ import annotations

import gc
import random
import re
import socket
import ssl
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from anabranch.effects import kinds
from anabranch.engine.session import Session
from anabranch.metrics.holdings import HOLDERS
from anabranch.oplog.batch import decode_batch
from anabranch.oplog.log_index import LogIndex
from anabranch.oplog.snapshot import Contents, Snapshot
from anabranch.replication.causal import CausalBuffer, Held
from anabranch.simulator.disk import MemoryStorage
from anabranch.testing import Server
from tests.support.batches import encode_batch
from tests.support.inspection import has_proc, number, rss_bytes, wait_until
from tests.support.region_certificates import write
from tests.support.region_harness import Harness
from tests.support.servers import REPOSITORY, AnabranchServer, free_port
from tests.support.wire import RespClient, encode_command

MEGABYTE = 1 << 20
NEAR = 0.3

# -- the table ------------------------------------------------------------------------------------


def documented() -> list[str]:
    """The holders of the table, as MEMORY STATS names them."""
    text = (REPOSITORY / "docs" / "limits.md").read_text()
    section = text.split("## What `maxmemory` counts")[1].split("\n## ")[0]
    return re.findall(r"^\| `(dataset\.bytes|overhead\.[a-z-]+)`", section, re.MULTILINE)


def test_the_table_has_every_holder_and_each_row_is_driven() -> None:
    rows = documented()
    assert rows == ["dataset.bytes", *(f"overhead.{holder}" for holder in HOLDERS)]
    driven = {*IN_PROCESS, *IN_SERVER, *PARTS, "replies", "unwritten", "full-sync", "dataset"}
    assert driven == {"dataset", *HOLDERS}, "tests/unit/keyspace/test_counted.py has the dataset"


def test_memory_stats_has_each_row() -> None:
    items = Harness().do("MEMORY", "STATS")
    fields = {name.decode() for name in items[::2]}  # type: ignore[index]
    assert set(documented()) <= fields


# -- the core -------------------------------------------------------------------------------------

Action = Callable[[Harness, Session], object]


def many(*words: str, count: int = 4000, at_once: int = 500) -> Action:
    """A command with many names; ``%`` in the last word is their number."""

    def act(harness: Harness, session: Session) -> None:
        for first in range(0, count, at_once):
            names = [words[-1] % each for each in range(first, first + at_once)]
            harness.raw(*words[:-1], *names, session=session)

    return act


def say(*words: object) -> Action:
    return lambda harness, session: harness.raw(*words, session=session)


def queue(harness: Harness, session: Session) -> None:
    harness.raw("MULTI", session=session)
    for each in range(4000):
        harness.raw("XADD", f"k{each}", "*", "field", "value", session=session)


def add_users(harness: Harness, session: Session) -> None:
    rules = "on >p{} ~app{}:* &ch:* +@read +xadd -@dangerous"
    for each in range(1500):
        words = rules.format(each, each).split()
        harness.raw("ACL", "SETUSER", f"user{each}", *words, session=session)


def remove_users(harness: Harness, session: Session) -> None:
    harness.raw("ACL", "DELUSER", *[f"user{each}" for each in range(1500)], session=session)
    harness.raw("ACL", "LOG", "RESET", session=session)


def be_slow(harness: Harness, session: Session) -> None:
    harness.region.slowlog.set_threshold_us(0)
    harness.region.slowlog.max_len = 3000
    for each in range(3000):
        harness.raw("ECHO", f"{each}".ljust(500), session=session)
    harness.region.slowlog.set_threshold_us(-1)


def be_denied(harness: Harness, session: Session) -> None:
    harness.settings.acllog_max_len = 2000
    for each in range(2000):
        harness.raw("AUTH", f"user{each}", "wrong", session=session)


def add_deadlines(harness: Harness, session: Session) -> None:
    for each in range(5000):
        harness.raw("EXPIRE", f"k{each}", 1000, session=session)


def make_strings(harness: Harness, session: Session) -> None:
    harness.raw("MSET", *[word for each in range(5000) for word in (f"k{each}", "v")])


def schedule(keys: int) -> Action:
    """So many keys share 3,000 scheduled entries."""

    def hold(harness: Harness, session: Session) -> None:
        for each in range(3000):
            words = ("AB.SCHEDULE", f"k{each % keys}", "IN", "1d", "f", f"{each}".ljust(100))
            harness.raw(*words, session=session)

    return hold


def load_scripts(harness: Harness, session: Session) -> None:
    for each in range(400):
        source = f"return '{each}'" + " " * 3000
        harness.region.services.scripts.load(source.encode())


def nothing(harness: Harness, session: Session) -> None:
    """Nothing."""


def delete_streams(harness: Harness, session: Session) -> None:
    for each in range(1900):
        harness.raw("XADD", f"s{each}", "*", "f", "v", session=session)
        harness.raw("DEL", f"s{each}", session=session)


def end_streams(harness: Harness, session: Session) -> None:
    for each in range(10_000):
        harness.raw("XADD", f"stream:{each}", "*", "f", "v", session=session)
        harness.raw("DEL", f"stream:{each}", session=session)


def forget_ends(harness: Harness, session: Session) -> None:
    keyspace = harness.region.keyspace
    for now_ms in range(10**15, 10**15 + 10):
        keyspace.forget_positions(now_ms, 1)
        keyspace.deferred_free.sweep(lambda: False)


def make_streams(harness: Harness, session: Session) -> None:
    for each in range(20_000):
        harness.raw("XGROUP", "CREATE", f"stream:{each}", "g", "$", "MKSTREAM", session=session)


def add_entries(harness: Harness, session: Session) -> None:
    for each in range(5000):
        harness.raw("XADD", f"s:{each}", "*", "f", "v", session=session)


def follow(harness: Harness, session: Session) -> None:
    harness.raw("AB.READ", "FROM", "$", "PATTERN", "s*", session=session)


def forget_patterns(harness: Harness, _: Session) -> None:
    harness.region.keyspace.databases[0].following.patterns.clear()


IN_PROCESS: dict[str, list[tuple[Action, Action, Action]]] = {
    # before it is measured, what holds, what ends it
    "requests": [(nothing, queue, say("DISCARD"))],
    "names": [
        (nothing, say("CLIENT", "SETNAME", "n" * MEGABYTE), say("CLIENT", "SETNAME", "")),
        (nothing, say("CLIENT", "SETINFO", "LIB-NAME", "n" * MEGABYTE), nothing),
        (nothing, say("HELLO", 3, "SETNAME", "n" * MEGABYTE), say("RESET")),
    ],
    "watched": [
        (nothing, many("WATCH", "key:%06d"), say("UNWATCH")),
        (nothing, many("WATCH", "k" * 1000 + "%d"), nothing),
    ],
    "subscriptions": [
        (nothing, many("SUBSCRIBE", "channel:%06d"), say("UNSUBSCRIBE")),
        (nothing, many("SSUBSCRIBE", "channel:%06d"), say("RESET")),
        (nothing, many("PSUBSCRIBE", "news.%06d.*"), say("PUNSUBSCRIBE")),
        (nothing, many("PSUBSCRIBE", "n[a-z]ws.%06d.*.end"), nothing),
        (nothing, many("PSUBSCRIBE", "[a-f]%d*" + "?[x-z]*y" * 30, count=500), nothing),
    ],
    "waiting": [
        (nothing, say("BLPOP", *[f"key:{each:06}" for each in range(20_000)], 0), nothing),
        (
            nothing,
            say(
                *("XREAD", "BLOCK", 0, "STREAMS", *[f"k{n}" for n in range(20_000)]),
                *[f"{n}-1" for n in range(20_000)],
            ),
            nothing,
        ),
        (
            add_entries,
            say("AB.READ", "BLOCK", 0, "FROM", "$", "STREAMS", *[f"s:{n}" for n in range(5000)]),
            nothing,
        ),
    ],
    "users": [(nothing, add_users, remove_users)],
    "logs": [
        (nothing, be_slow, say("SLOWLOG", "RESET")),
        (nothing, be_denied, say("ACL", "LOG", "RESET")),
    ],
    "scripts": [(nothing, load_scripts, lambda each, _: each.region.services.scripts.clear())],
    "settings": [
        (
            nothing,
            say("CONFIG", "SET", "masteruser", "n" * MEGABYTE),
            say("CONFIG", "SET", "masteruser", ""),
        )
    ],
    "deadlines": [(make_strings, add_deadlines, say("FLUSHALL"))],
    "scheduled": [
        (nothing, schedule(keys=1), say("FLUSHALL")),
        (nothing, schedule(keys=3000), say("FLUSHALL")),
    ],
    "tombstones": [(nothing, delete_streams, nothing)],
    "positions": [(nothing, end_streams, forget_ends)],
    "followed": [(make_streams, follow, forget_patterns)],
}

_CASES = [
    pytest.param(holder, *case, id=f"{holder}-{at}")
    for holder, cases in IN_PROCESS.items()
    for at, case in enumerate(cases)
]


@pytest.mark.parametrize(("holder", "prepare", "hold", "let_go"), _CASES)
def test_what_the_core_holds(holder: str, prepare: Action, hold: Action, let_go: Action) -> None:
    harness = Harness(region_id=1 if holder == "tombstones" else 0)
    region, holdings = harness.region, harness.region.holdings

    def counted() -> int:
        harness.region.context.count_memory()
        return region.dispatcher.used_memory()

    session = harness.connect()
    harness.raw("PING", session=session)
    harness.raw("ACL", "SETUSER", "warm", "+@all", "-@dangerous", session=session)
    prepare(harness, session)
    former, used = {}, counted()
    former = holdings.rows()
    gc.collect()
    tracemalloc.start()
    try:
        hold(harness, session)
        session.outbox.clear()
        gc.collect()
        grown = counted() - used, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown[1] > MEGABYTE // 2, "enough to measure"
    assert grown[0] == pytest.approx(grown[1], rel=NEAR)
    assert holdings.rows()[holder] - former[holder] > 0.7 * grown[0], "under this name"
    is_of_client = session.held_bytes > 0
    let_go(harness, session)
    region.close_session(session)
    counted()
    if holder != "tombstones":  # these go when all regions have them
        assert holdings.rows() == former
    assert session.held_bytes == 0
    assert is_of_client == (holder in {"requests", "names", "watched", "subscriptions", "waiting"})


def test_a_user_takes_two_kilobytes_at_most() -> None:
    registry = Harness().region.acl
    for rules in (
        "on >p{} ~app{}:* &ch{}:* +@read +xadd -@dangerous",
        "on >p{} ~* &* +@all -@dangerous -flushall",
        "on >p{} %R~in{}:* %W~out{}:* resetchannels +@stream +@connection -xgroup +xgroup|help",
    ):
        gc.collect()
        before = registry.used_bytes
        tracemalloc.start()
        try:
            for each in range(1000):
                name = b"%d-%d" % (each, len(rules))
                registry.setuser(name, rules.replace("{}", str(each)).encode().split())
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] / 1000
        finally:
            tracemalloc.stop()
        line = len(registry.users[name].text()) + 200
        assert held + line < 2000, "with the line that is kept for snapshots"
        assert (registry.used_bytes - before) / 1000 == pytest.approx(held + line, rel=NEAR)


def test_many_clients_of_one_name_do_not_count_it_again() -> None:
    for words in (
        ["WATCH", *[f"key {each}" for each in range(10)]],
        ["SUBSCRIBE", *[f"channel {each}" for each in range(10)]],
        ["PSUBSCRIBE", *[f"channels of {each}*" for each in range(10)]],
        ["BLPOP", "a key", 0],
    ):
        harness = Harness()
        sessions = [harness.connect() for _ in range(2000)]
        used = harness.region.dispatcher.used_memory()
        gc.collect()
        tracemalloc.start()
        try:
            for session in sessions:
                harness.raw(*words, session=session)
                session.outbox.clear()
            gc.collect()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        counted = harness.region.dispatcher.used_memory() - used
        assert counted == pytest.approx(held, rel=NEAR), words
        for session in sessions:
            harness.region.close_session(session)
        assert harness.region.dispatcher.used_memory() == used, words


# -- a server process -----------------------------------------------------------------------------


def strangers(server: AnabranchServer, stack: ExitStack) -> None:
    for _ in range(2000):
        stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))


def unfinished(server: AnabranchServer, stack: ExitStack) -> None:
    for _ in range(10):
        stack.enter_context(server.client()).send_raw(
            b"*2\r\n$3\r\nGET\r\n$6000000\r\n" + b"x" * 5_000_000
        )


def behind_a_blocked_one(server: AnabranchServer, stack: ExitStack) -> None:
    said = encode_command(["BLPOP", "q", 0]) + encode_command(["PING"]) * 9_900
    for _ in range(30):
        stack.enter_context(server.client()).send_raw(said)


def unread(server: AnabranchServer, stack: ExitStack) -> None:
    with server.client() as client:
        client.call("SET", "big", "x" * 40_000_000)
    for _ in range(3):
        stack.enter_context(server.client()).send_raw(encode_command(["GET", "big"]))


def in_lua(server: AnabranchServer, stack: ExitStack) -> None:
    code = """#!lua name=held
    local kept = {}
    redis.register_function('hold', function(keys, args)
        kept[#kept + 1] = string.rep('x', tonumber(args[1])) .. #kept
        return 1
    end)"""
    client = stack.enter_context(server.client())
    assert client.call("FUNCTION", "LOAD", code) == ("$", b"held")
    for _ in range(30):
        assert client.call("FCALL", "hold", 0, MEGABYTE) == (":", 1)
    stack.callback(client.call, "SCRIPT", "FLUSH")
    stack.callback(client.call, "FUNCTION", "FLUSH")
    stack.callback(client.call, "EVAL", "return 1", 0)


IN_SERVER: dict[str, list[Callable[[AnabranchServer, ExitStack], None]]] = {
    "connections": [strangers],
    "requests": [unfinished, behind_a_blocked_one],
    "output": [unread],
    "lua": [in_lua],
    "handshakes": [],
}


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
@pytest.mark.parametrize(
    ("holder", "hold"),
    [
        pytest.param(holder, hold, id=hold.__name__)
        for holder, cases in IN_SERVER.items()
        for hold in cases
    ],
)
def test_what_a_process_holds(
    holder: str, hold: Callable[[AnabranchServer, ExitStack], None]
) -> None:
    with AnabranchServer() as server, server.client() as client:
        client.call("CONFIG", "SET", "slowlog-log-slower-than", -1)
        client.call("EVAL", "return 1", 0)
        with server.client() as other:
            other.call("PING")

        def measured() -> tuple[int, int]:
            client.call("MEMORY", "PURGE")
            return number(client, "used_memory"), rss_bytes(server)

        used, size = measured()
        former = held(client, holder)
        with ExitStack() as stack:
            hold(server, stack)

            def is_near() -> bool:
                now, now_size = measured()
                return now - used == pytest.approx(now_size - size, rel=NEAR) and (
                    now - used > 5 * MEGABYTE
                )

            wait_until(is_near, f"what is counted is held: {measured()}, was {used, size}")
            assert held(client, holder) - former > 3 * MEGABYTE
        wait_until(lambda: held(client, holder) <= former + 100_000, "it is gone")


def held(client: RespClient, holder: str) -> int:
    """A row of MEMORY STATS."""
    _, items = client.call("MEMORY", "STATS")
    assert isinstance(items, list)
    at = [name for _, name in items[::2]].index(f"overhead.{holder}".encode())
    return int(items[2 * at + 1][1])


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
def test_tls(tmp_path: Path) -> None:
    """Connections with TLS, and those that have not finished their handshake."""
    authority = trustme.CA()
    write(tmp_path, authority, authority, "127.0.0.1")
    port = free_port()
    options = ["--tls-port", port, "--tls-cert-file", tmp_path / "cert.pem"]
    options += ["--tls-key-file", tmp_path / "key.pem"]
    options += ["--tls-auth-clients", "no", "--handshake-timeout", 60]
    with AnabranchServer(None, [str(each) for each in options]) as server:
        context = ssl.create_default_context()
        authority.configure_trust(context)

        def connect(stack: ExitStack) -> None:
            plain = socket.create_connection(("127.0.0.1", port))
            secure = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            secure.sendall(b"PING\r\n")
            assert secure.recv(100) == b"+PONG\r\n"

        with server.client() as client, ExitStack() as stack:
            connect(stack)
            before = held(client, "connections"), rss_bytes(server)
            for _ in range(300):
                connect(stack)
            grown = rss_bytes(server) - before[1]
            assert held(client, "connections") - before[0] == pytest.approx(grown, rel=NEAR)
            for _ in range(20):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            wait_until(lambda: held(client, "handshakes") > 20 * 40 * 1024, "they count")
            stack.close()
            wait_until(lambda: held(client, "handshakes") == 0, "they are gone")
            wait_until(lambda: held(client, "connections") < before[0], "all of them")


# -- the log and other regions --------------------------------------------------------------------


def test_what_waits_for_the_disk() -> None:
    """Effects that could not be written, and the replies behind them.

    The bytes of a long entry are counted for its stream and for the log, which share them.
    """
    entry, said = random.Random(1).randbytes(8 * MEGABYTE), b"x" * MEGABYTE
    with Server(persist=True) as server, RespClient(server.port) as client:
        client.call("XADD", "s", "*", "f", "v")
        used = server.call(lambda live: live.region.dispatcher.used_memory())
        server.disk.full()
        words = encode_command(["XADD", "s", "*", "f", entry]) + encode_command(["ECHO", said]) * 8
        gc.collect()
        tracemalloc.start()
        try:
            client.send_raw(words)

            def rows() -> dict[str, int]:
                return server.call(lambda live: live.region.holdings.rows())  # type: ignore[no-any-return]

            wait_until(lambda: rows()["replies"] > 8 * MEGABYTE, "replies wait")
            wait_until(lambda: rows()["unwritten"] > 7 * MEGABYTE, "so does their effect")

            def is_near() -> bool:
                server.call(lambda live: live.region.context.count_memory())
                now = server.call(lambda live: live.region.dispatcher.used_memory())
                held = tracemalloc.get_traced_memory()[0]
                return bool(now - used - len(entry) == pytest.approx(held, rel=NEAR))

            wait_until(is_near, "what is counted is held")
        finally:
            tracemalloc.stop()
        server.disk.free()
        wait_until(lambda: rows()["replies"] == 0, "they are written")
        wait_until(lambda: rows()["unwritten"] == 0, "and the effect")


def recent(count: int) -> tuple[object, int]:
    index = LogIndex(MemoryStorage(), recent_bytes=1 << 30)
    for each in range(count):
        index.record(_batch(each), each * 1000)
    return index, index.used_bytes


def causal(count: int) -> tuple[object, int]:
    buffer = CausalBuffer()
    for each in range(count):
        data = _batch(each)
        buffer.add(Held(decode_batch(data), data, 2, 0.0))
    return buffer, buffer.used_bytes


def _batch(each: int) -> bytes:
    value = random.Random(each).randbytes(3000)
    effects = [kinds.SetString(0, b"k%d" % each, value)]
    return encode_batch(effects, region=2, epoch=0, first=each + 1, wall_ms=1, flags=0)


PARTS: dict[str, Callable[[int], tuple[object, int]]] = {"recent": recent, "causal": causal}


@pytest.mark.parametrize("part", PARTS)
def test_batches_of_regions(part: str) -> None:
    PARTS[part](1)
    gc.collect()
    tracemalloc.start()
    try:
        kept, counted = PARTS[part](1000)
        gc.collect()
        assert counted == pytest.approx(tracemalloc.get_traced_memory()[0], rel=NEAR)
    finally:
        tracemalloc.stop()
    assert kept


def test_a_full_sync_counts_until_it_is_joined(tmp_path: Path) -> None:
    sender, receiver = Harness(region_id=2), Harness(region_id=1)
    for each in range(3000):
        sender.raw("XADD", f"s{each % 10}", "*", "f", f"{each}".ljust(300))
    path = tmp_path / "full.sync"
    path.write_bytes(Snapshot(sender.region.keyspace, Contents(1)).whole())
    region = receiver.region
    with path.open("rb") as file:
        steps = region.merging.loading(file, "full.sync")
        for _ in steps:
            pass
    receiver.region.context.count_memory()
    sender.region.context.count_memory()
    there = sender.region.keyspace.account.used_bytes
    assert region.holdings.rows()["full-sync"] == pytest.approx(there, rel=NEAR)
    with path.open("rb") as file:
        again = region.merging.loading(file, "full.sync")
        next(again)
        again.close()
    receiver.region.context.count_memory()
    assert region.holdings.rows()["full-sync"] == 0
