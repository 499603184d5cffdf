"""What a region accepts, every other region takes, and every start reads again.

All commands that change data are tried with all of their arguments at the limits, one below and
one above. Here the limits are small; ``tests/system/test_long_arguments.py`` tries the real ones.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.effects import kinds, prepare
from anabranch.engine import dispatch
from anabranch.keyspace.agreement import agreement_digest
from anabranch.oplog import batch, snapshot
from anabranch.region import maintenance, turn
from tests.active_active.test_bulk import payload
from tests.support.mesh import Mesh, Node

LIMIT: Final = 3000
"""Of a name, and of the entries that are added at once."""

BODY_LIMIT: Final = 4 * LIMIT
"""Of a batch; an XADD with an idempotent ID has three names in one effect."""

NUMBERS: Final = (
    "-1", "0", "1", str((1 << 32) - 1), str(1 << 32), str((1 << 62) - 1), str(1 << 62),
    str((1 << 62) + 1), str((1 << 63) - 2), str((1 << 63) - 1), str(1 << 63), str((1 << 64) - 1),
    "18446744073709551615-18446744073709551615", "18446744073709551615-18446744073709551614",
)  # fmt: skip

EXAMPLES: Final[dict[str, list[str]]] = {
    "xadd": [
        "s NOMKSTREAM MAXLEN ~ 5 LIMIT 10 * f v", "s IDMP p j * f v", "s IDMPAUTO p * f v",
        "s MINID 1 * f v", "new * f v f v", "new 900000-* f v",
    ],
    "xtrim": ["s MAXLEN 1", "s MINID = @2"],
    "xdel": ["s @1 @2"],
    "xdelex": ["s DELREF IDS 2 @1 900-1"],
    "xackdel": ["s g DELREF IDS 1 @1"],
    "xsetid": ["s 900000000-1 ENTRIESADDED 9 MAXDELETEDID 900000-1"],
    "xreadgroup": [
        "GROUP g c COUNT 1 STREAMS s >", "GROUP g d COUNT 9 BLOCK 0 NOACK STREAMS s t > >",
    ],
    "xgroup|create": ["s h 0 ENTRIESREAD 1", "new h $ MKSTREAM", "s h @1"],
    "xgroup|setid": ["s g @1 ENTRIESREAD 1"],
    "ab.home|move": ["s GROUP g there"],
    "ab.home|take": ["s GROUP g FORCE"],
    "ab.skip": ["s g v"],
    "ab.subscribe": ["CREDIT 5 GROUP g c STREAMS s"],
    "xgroup|destroy": ["s g"],
    "xgroup|createconsumer": ["s g d"],
    "xgroup|delconsumer": ["s g c"],
    "xack": ["s g @1 @2"],
    "xnack": ["s g FAIL IDS 1 @1 RETRYCOUNT 2 FORCE"],
    "xclaim": ["s g d 0 @1 @2 IDLE 5 RETRYCOUNT 3 FORCE LASTID @2", "s g d 0 @1 TIME 5"],
    "xautoclaim": ["s g d 0 0 COUNT 1"],
    "xcfgset": ["s IDMP-DURATION 60 IDMP-MAXSIZE 10"],
    "xidmprecord": ["s p k @1"],
    "xidmp|cfgset": ["s DURATION 60 MAXSIZE 10"],
    "del": ["s t"],
    "unlink": ["s t"],
    "rename": ["s u"],
    "renamenx": ["s u"],
    "copy": ["s u DB 1 REPLACE"],
    "move": ["s 1"],
    "swapdb": ["0 1"],
    "flushdb": ["ASYNC"],
    "flushall": ["SYNC"],
    "expire": ["s 100 NX"],
    "pexpire": ["s 100000"],
    "expireat": ["s 99999999999"],
    "pexpireat": ["s 99999999999999"],
    "persist": ["t"],
    "restore": ["u 0 @dump REPLACE", "u 99999999999999 @dump ABSTTL IDLETIME 5"],
    "function|load": ["REPLACE @code"],
    "function|delete": ["lib"],
    "function|flush": ["SYNC"],
    "function|restore": ["@functions REPLACE"],
    "ab.policy|set": [
        "s GROUP g lease time:1s max-deliveries 3", "PATTERN s* GROUP g* dead-letter dead",
    ],
    "ab.policy|del": ["t dead-letter", "PATTERN u* GROUP g*"],
    "ab.renew": ["s g c 1s @1"],
    "ab.schedule": ["s IN 5 IDMP q j f v", "new CRON @cron ID h f v"],
    "ab.schedule|cancel": ["s planned"],
    "ab.schedule|run": ["s planned"],
    "ab.seal": ["s", "t"],
    "ab.redrive": ["dead IDS 1 @dead REASON fatal"],
    "set": ["n 1", "new v PX 100000"],
    "setnx": ["new v"],
    "setex": ["n 100 v"],
    "psetex": ["n 100000 v"],
    "getset": ["n v"],
    "getdel": ["n"],
    "getex": ["n EX 100"],
    "mset": ["n 1 new 2"],
    "msetnx": ["new 1 newer 2"],
    "append": ["n 5"],
    "setrange": ["n 1 5"],
    "incr": ["n"],
    "decr": ["n"],
    "incrby": ["n 5"],
    "decrby": ["n 5"],
    "incrbyfloat": ["n 0.5"],
    "ab.import": ["s PRODUCER q BATCH 1 EXPECT 0 CRC 0 MAXLEN 100 @rows", "new @rows"],
}  # fmt: skip

REFUSED: Final = frozenset({"swapdb", "ab.home|move", "ab.home|take", "ab.skip", "ab.subscribe"})
"""Commands that regions refuse: AB.HOME and AB.SKIP without a policy, AB.SUBSCRIBE by
RESP2."""

OF_OTHER_TYPES: Final = frozenset({"list", "set"})
"""Groups of commands that a region refuses."""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BODY_BYTES_MAX", BODY_LIMIT)
    monkeypatch.setattr(dispatch, "BODY_BYTES_MAX", BODY_LIMIT)
    monkeypatch.setattr(turn, "BATCH_BYTES_MAX", LIMIT)
    monkeypatch.setattr(snapshot, "RECORD_BYTES_MAX", 8 * LIMIT)


def limit_names(node: Node, most: int = LIMIT) -> None:
    effects = node.region.effects
    effects.added_bytes_max = most
    effects.mode = effects.mode._replace(added_bytes_max=most)
    node.region.dispatcher.limit_names(most)
    node.session.is_long = True  # as for a connection that has sent a long request
    node.session.refresh()


class World:
    """Three regions, of which the third one only gets full syncs."""

    def __init__(self) -> None:
        self.mesh = Mesh(3)
        self.mesh.cut_links = {frozenset((1, 3)), frozenset((2, 3))}
        for node in self.mesh.nodes.values():
            limit_names(node)
        self.here, self.there, _ = self.mesh.nodes.values()
        self.words = self._set_up()

    def _set_up(self) -> dict[str, Any]:
        do = self.here.do
        ids = [do("XADD", "s", "*", "f", "v") for _ in range(3)]
        in_t = do("XADD", "t", "*", "f", "v")
        do("EXPIRE", "t", "1000")
        do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
        do("XGROUP", "CREATE", "s", "g", "0")
        do("XGROUP", "CREATE", "t", "g", "0")
        do("XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", "s", ">")
        do("AB.POLICY", "SET", "PATTERN", "u*", "GROUP", "g*", "redeliver", "first")
        do("AB.POLICY", "SET", "t", "dead-letter", "dead")
        do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "t", ">")
        do("XNACK", "t", "g", "FATAL", "IDS", "1", in_t)
        ((dead, _),) = do("XRANGE", "dead", "-", "+")
        do("AB.SCHEDULE", "s", "IN", "1h", "ID", "planned", "f", "v")
        do("SET", "n", "10")
        code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"
        do("FUNCTION", "LOAD", code)
        return {
            "@1": ids[0], "@2": ids[1], "@dead": dead, "@dump": do("DUMP", "s"), "@code": code,
            "@functions": do("FUNCTION", "DUMP"), "@rows": payload(b"v"), "@cron": "* * * * *",
        }  # fmt: skip

    def request(self, name: str, example: str) -> list[bytes]:
        words = [*name.split("|"), *(self.words.get(each, each) for each in example.split())]
        return [each if type(each) is bytes else str(each).encode() for each in words]

    def try_it(self, *requests: list[bytes]) -> bool:
        """Run requests in one turn; check what must hold. Returns whether one was accepted."""
        here, there = self.here, self.there
        before = here.log.end, dict(here.vector)
        replies = here.ask(*requests) if not blocks(requests) else []
        accepted = not all(isinstance(reply, Exception) for reply in replies)
        changed = (here.log.end, here.vector) != before
        assert accepted or not changed, replies
        self.mesh.settle([1, 2])
        assert there.vector == here.vector
        assert shared(there) == shared(here)
        return changed

    def check_rest(self) -> None:
        """Everything can be read again at a start, and be sent as a full sync."""
        wanted = shared(self.here)
        self.mesh.cut_links.clear()
        self.mesh.send_full_sync(1, 3)
        assert shared(self.mesh.nodes[3]) == wanted
        for node in (self.here, self.there):
            node.restart()
            assert shared(node) == wanted
            node.snapshot()
            node.restart()
            assert shared(node) == wanted


def blocks(requests: tuple[list[bytes], ...]) -> bool:
    return any(b"BLOCK" in each and each[-1] == b"$" for each in requests)


def shared(node: Node) -> dict[tuple[int, bytes], int]:
    """What all regions must have alike."""
    return {
        (database.index, key): agreement_digest(value, database.deadlines.get(key))
        for database in node.region.keyspace.databases
        for key, value in database.values.items()
    }


def long_words(chance: random.Random) -> Iterator[bytes]:
    for size in (LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT, BODY_LIMIT + 1):
        yield chance.randbytes(size)
        yield b"x" * size


def test_every_command_that_changes_data_is_tried() -> None:
    rows = [each for row in COMMANDS for each in (row, *row.subcommands.values())]
    missing = {
        row.full_name for row in rows if row.is_write and row.group not in OF_OTHER_TYPES
    } - EXAMPLES.keys()
    assert missing == set()


def numbers_for(word: bytes) -> list[bytes]:
    """What to try in place of an argument: all numbers for a number or an ID, one for a name."""
    is_number = re.search(rb"[0-9*$]", word) is not None
    return [number.encode() for number in (NUMBERS if is_number else NUMBERS[:1])]


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_accepted_here_is_taken_there(name: str) -> None:
    chance = random.Random(name)
    world = World()
    tried = accepted = 0
    for example in EXAMPLES[name]:
        assert world.try_it(world.request(name, example)) == (name not in REFUSED), example
        world = World()
        first = name.count("|") + 1
        for at in range(first, len(world.request(name, example))):
            request = world.request(name, example)
            for word in (*long_words(chance), *numbers_for(request[at])):
                request = world.request(name, example)
                request[at] = word
                tried += 1
                if world.try_it(request):
                    accepted += 1
                    if accepted % 20 == 1:
                        world.check_rest()
                    world = World()
    assert tried


# -- sums ---------------------------------------------------------------------------------------


def test_many_long_names_in_one_turn() -> None:
    world = World()
    chance = random.Random(1)
    names = [chance.randbytes(LIMIT) for _ in range(12)]
    assert world.try_it(*([b"XADD", name, b"*", b"f", b"v"] for name in names))
    world.check_rest()


def test_many_long_names_in_one_transaction() -> None:
    world = World()
    chance = random.Random(2)
    names = [chance.randbytes(LIMIT) for _ in range(12)]
    requests = [[b"XGROUP", b"CREATE", name, name, b"0", b"MKSTREAM"] for name in names]
    assert world.try_it([b"MULTI"], *requests, [b"EXEC"])
    assert world.here.do("DBSIZE") == world.there.do("DBSIZE") == 4 + len(names)
    world.check_rest()


def test_a_transaction_with_a_name_that_is_too_long_changes_nothing() -> None:
    world = World()
    here = world.here
    before = here.log.end
    add = [b"XADD", b"new", b"*", b"f", b"v"]
    long = [b"XGROUP", b"CREATE", b"s", b"x" * (LIMIT + 1), b"0"]
    replies = here.ask([b"MULTI"], add, long, add, [b"EXEC"])
    assert "regions take 3000" in str(replies[2])
    assert "EXECABORT" in str(replies[-1])
    assert here.log.end == before


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_script_with_a_long_name(size: int) -> None:
    world = World()
    script = f"return redis.pcall('XADD', string.rep('x', {size}), '*', 'f', 'v')"
    assert world.try_it([b"EVAL", script.encode(), b"0"]) == (size <= LIMIT)
    world.check_rest()


# -- what comes with a payload, or was there before ----------------------------------------------


def test_producers_that_are_dropped_fit_into_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "RECORDS_BYTES_MAX", LIMIT)
    world = World()
    here = world.here
    rows = payload(b"v")
    for letter in b"abcdefghij":
        pid = bytes([letter]) * (LIMIT - 1)
        here.do("AB.IMPORT", "s", "PRODUCER", pid, "BATCH", "1", "EXPECT", "0", rows)
    assert len(here.do("AB.LEDGER", "s")) == 10
    for node in (here, world.there):
        node.settings.ledger_retention = 1
    for _ in range(20):
        here.clock.us += 200_000_000
        here.tick()
    world.mesh.settle([1, 2])
    assert here.do("AB.LEDGER", "s") == world.there.do("AB.LEDGER", "s") == []


LONG: Final = b"y" * (LIMIT + 1)
CONSUMERS: Final = [
    ("XGROUP", "CREATECONSUMER", "s", "h", b"%d" % at * (LIMIT // 2)) for at in range(3)
]
GROUP: Final = ("XGROUP", "CREATE", "s", "h", "0")


@pytest.mark.parametrize(
    "requests",
    [
        [("XADD", "s", "*", "f", LONG)],
        [("XADD", "s", "*", *("f", "v") * (LIMIT // 12))],
        [("XGROUP", "CREATE", "s", LONG, "0")],
        [GROUP, ("XGROUP", "CREATECONSUMER", "s", "h", LONG)],
        [GROUP, *CONSUMERS],
        [("XADD", "s", "IDMP", LONG, "i", "*", "f", "v")],
        [("XADD", "s", "IDMP", "p", LONG, "*", "f", "v")],
        [("AB.IMPORT", "s", "PRODUCER", LONG, "BATCH", "1", "EXPECT", "0", payload(b"v"))],
    ],
    ids=["value", "fields", "group", "consumer", "consumers", "pid", "iid", "ledger"],
)
def test_a_payload_with_what_no_command_accepts_is_refused(
    requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BODY_BYTES_MAX", 1 << 40)
    before = World()
    limit_names(before.here, 1 << 40)
    before.here.do("XADD", "s", "*", "f", "v")
    for request in requests:
        before.here.do(*request)
    dump = before.here.do("DUMP", "s")
    world = World()
    replies = world.here.ask(("RESTORE", "u", "0", dump))
    is_in_dump = requests[0][0] != "AB.IMPORT"
    assert ("too long" in str(replies[0])) == is_in_dump
    assert world.here.do("EXISTS", "u") == (not is_in_dump)
    world.try_it([b"XADD", b"s", b"*", b"f", b"v"])
    world.check_rest()


def test_a_name_that_an_earlier_version_accepted_is_not_written_again() -> None:
    world = World()
    limit_names(world.here, 1 << 40)
    assert world.try_it([b"XGROUP", b"CREATE", b"s", b"x" * (LIMIT + 1), b"0"])
    limit_names(world.here)
    for command in (b"RENAME", b"COPY"):
        assert not world.try_it([command, b"s", b"u"])
    assert world.try_it([b"XGROUP", b"DESTROY", b"s", b"x" * (LIMIT + 1)])
    assert world.try_it([b"RENAME", b"s", b"u"])
    world.check_rest()


def test_what_an_earlier_version_accepted_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions read all that a log can hold, however little they write themselves."""
    monkeypatch.undo()
    world = World()
    limit_names(world.here, 1 << 40)
    here, there = world.here, world.there
    here.do("XGROUP", "CREATE", "s", bytes(70_000_000), "0")
    world.mesh.settle([1, 2])
    for node in (here, there):
        node.restart()
    limit_names(here)
    limit_names(there)
    assert [len(row[1]) for row in there.do("XINFO", "GROUPS", "s")] == [70_000_000, 1]
    assert there.do("XGROUP", "DESTROY", "s", bytes(70_000_000)) == 1
    world.mesh.settle([1, 2])
    assert len(here.do("XINFO", "GROUPS", "s")) == 1


def test_a_removal_of_many_entries_is_several_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "SENT_IDS_MAX", 4)
    world = World()
    ids = [world.here.do("XADD", "x", "*", "f", "v") for _ in range(40)]
    world.here.issued.clear()
    assert world.try_it([b"XDEL", b"x", *ids[::2]])
    removed = [each for each in world.here.issued if isinstance(each, kinds.RemoveNumbers)]
    assert len(removed) == 5
    assert world.there.do("XLEN", "x") == 20
    world.check_rest()
