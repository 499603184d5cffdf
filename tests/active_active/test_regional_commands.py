"""The commands that look across regions, compared with the formulas while regions live."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from anabranch.keyspace.agreement import agreement_digest
from anabranch.stream.stream import Stream
from tests.active_active.checked_cluster import CheckedCluster
from tests.active_active.comparison import KEYS
from tests.active_active.histories import History
from tests.support.mesh import Mesh, Node
from tests.support.region_harness import decode_all

HISTORIES = 24
CHUNK = 12


# -- in random lives --------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(1001, 1001 + HISTORIES, CHUNK))
def test_digests_lags_and_counts_in_histories(first: int) -> None:
    reached: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        try:
            watch(History(seed), reached).run()
        except Exception as problem:
            problem.add_note(f"seed {seed}")
            raise
    assert reached.keys() == {"digests compared", "groups counted", "entries counted"}


def watch(history: History, reached: Counter[str]) -> History:
    """Have more looked at whenever the cluster looks at its regions."""
    cluster = history.cluster
    looks = cluster.glance_all

    def look() -> None:
        compare_digests(cluster, reached)
        for node in cluster.mesh.nodes.values():
            for key in KEYS:
                if node.do("EXISTS", key):
                    compare_counts(cluster, node, key, reached)
        looks()

    cluster.glance_all = look  # type: ignore[method-assign]
    return history


def digest_of(node: Node, key: bytes) -> int | None:
    """Without the command, which would remove a key whose deadline has passed."""
    database = node.region.keyspace.databases[0]
    stream = database.values.get(key)
    if not isinstance(stream, Stream):
        return None
    return agreement_digest(stream, database.deadlines.get(key))


def compare_digests(cluster: CheckedCluster, reached: Counter[str]) -> None:
    for one, other in combinations(cluster.mesh.nodes.values(), 2):
        if one.vector == other.vector:
            for key in KEYS:
                digest = digest_of(one, key)
                assert digest == digest_of(other, key), f"digests of {key!r} differ"
                reached["digests compared"] += digest is not None


def compare_counts(cluster: CheckedCluster, node: Node, key: bytes, reached: Counter[str]) -> None:
    shown = cluster.shown(node, key)
    ids = [entry.effect.entry_id for entry in shown.entries]
    if ids:
        low, high = ids[len(ids) // 3], ids[2 * len(ids) // 3]
        for start, end in ((low, high), (0, high - 1), (low + 1, 1 << 96)):
            counted = node.do("AB.COUNT", key, written(start), written(end))
            assert counted == sum(start <= each <= end for each in ids)
            reached["entries counted"] += 1
    for _, group, _, lag, _, by_region in node.do("AB.LAG", key):
        assert lag == sum(count for _, count in by_region)
        for region, count in by_region:
            least, most = (
                deliverable(cluster, node, key, group, shown, region, sure=sure)
                for sure in (True, False)
            )
            assert least <= count <= most, f"{group!r} of {key!r}, region {region}: {count}"
        reached["groups counted"] += 1


def written(entry_id: int) -> str:
    return f"{entry_id >> 64}-{entry_id & (1 << 64) - 1}"


def deliverable(
    cluster: CheckedCluster,
    node: Node,
    key: bytes,
    group: bytes,
    shown: Any,
    region: int,
    *,
    sure: bool,
) -> int:
    reader = cluster.reader(node, key, group, shown)
    due = reader.deliverable(shown, group, sure=sure)
    return sum(entry.replica_id & 0xFF == region for entry in due)


# -- digests ----------------------------------------------------------------------------------


def alike(mesh: Mesh, key: str = "x") -> bool:
    one, other = (node.do("AB.DIGEST", key) for node in mesh.nodes.values())
    return bool(one == other)


def test_a_digest_depends_on_effects_not_on_the_way_they_came() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", "100", "f", "a")
    two.do("XADD", "x", "101", "f", "b")
    assert not alike(mesh)
    mesh.settle()
    assert alike(mesh)
    for command in (
        ("XADD", "x", "200", "f", "c"),
        ("XDEL", "x", "100-1"),
        ("XGROUP", "CREATE", "x", "g", "0"),
        ("PEXPIRE", "x", 10_000),
        ("XSETID", "x", "300-1"),
    ):
        before = one.do("AB.DIGEST", "x")
        one.do(*command)
        assert one.do("AB.DIGEST", "x") != before, command
        assert not alike(mesh), command
        mesh.settle()
        assert alike(mesh), command


def test_a_digest_covers_what_was_acknowledged_but_not_who_was_given_what() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", "100", "f", "a")
    one.do("XGROUP", "CREATE", "x", "g", "0")
    mesh.settle()
    two.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "x", ">")
    assert alike(mesh)
    two.do("XACK", "x", "g", "100-1")
    assert not alike(mesh)
    mesh.settle()
    assert alike(mesh)


def test_a_changed_byte_of_an_entry_shows_in_the_digest() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", "100", "f", "a")
    mesh.settle()
    stream = two.region.keyspace.databases[0].values[b"x"]
    assert isinstance(stream, Stream)
    block = stream.logs[1].blocks[0]
    assert block.parts is not None
    block.parts[0] = block.parts[0].replace(b"a", b"b")
    assert one.vector == two.vector
    assert not alike(mesh)


def test_an_entry_deleted_and_added_again_is_another() -> None:
    node = Mesh(1, xadd_id_uniqueness_mode="liberal").nodes[1]
    node.do("XADD", "x", "100-1", "f", "v")
    before = node.do("AB.DIGEST", "x")
    node.do("DEL", "x")
    node.do("XADD", "x", "100-1", "f", "v")
    assert node.do("AB.DIGEST", "x") != before


# -- counting ---------------------------------------------------------------------------------


def test_counts_stay_right_when_whole_nodes_go() -> None:
    mesh = Mesh(2, stream_node_max_entries=3)
    one, two = mesh.nodes.values()
    for ms in range(100, 140):
        (one if ms % 2 else two).do("XADD", "x", ms, "f", "v")
        mesh.settle()
    for keep in (31, 24, 17, 9):
        assert one.do("AB.COUNT", "x", "120", "130") == len(one.do("XRANGE", "x", "120", "130"))
        two.do("XTRIM", "x", "MAXLEN", keep)
        mesh.settle()
        for end in (115, 125, 135):
            for node in (one, two):
                rows = node.do("XRANGE", "x", "-", end)
                assert node.do("AB.COUNT", "x", "-", end) == len(rows)
                stream = node.region.keyspace.databases[0].values[b"x"]
                assert isinstance(stream, Stream)
                stream.check()


# -- cursors ----------------------------------------------------------------------------------


def ids(entries: list[Any]) -> list[bytes]:
    return [entry_id for entry_id, _ in entries]


def ask(node: Node, cursor: bytes | str, *options: object) -> tuple[bytes, list[bytes]]:
    ((_, following, entries),) = node.do("AB.READ", *options, "STREAMS", "x", cursor)
    return following, ids(entries)


def test_late_entries_come_once_whichever_region_is_asked() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    for ms in (110, 120, 130):
        one.do("XADD", "x", ms, "f", "v")
    two.do("XADD", "x", 115, "f", "v")
    cursor, got = ask(one, "0", "COUNT", 2)
    assert got == [b"110-1", b"120-1"]
    mesh.settle()
    for node in (one, two):
        following, got = ask(node, cursor)
        assert got == [b"115-2", b"130-1"]
        assert following == node.do("AB.TOKEN")
        assert ask(node, following) == (following, [])


def test_a_region_that_lags_behind_a_cursor_goes_on_with_what_is_new() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    two.do("XADD", "x", 105, "f", "v")
    mesh.settle()
    two.do("XADD", "x", 115, "f", "v")
    cursor, got = ask(two, "0")
    assert got == [b"105-2", b"115-2"]
    one.do("XADD", "x", 110, "f", "v")
    cursor, got = ask(one, cursor)
    assert got == [b"110-1"]
    mesh.settle()
    assert ask(one, cursor) == (cursor, [])
    assert ask(two, cursor) == (cursor, [])


def test_what_was_deleted_is_stepped_over_and_a_key_made_again_is_read() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", 110, "f", "v")
    two.do("XADD", "x", 111, "f", "v")
    mesh.settle()
    cursor, _ = ask(one, "0", "COUNT", 1)
    two.do("DEL", "x")
    mesh.settle()
    assert ask(one, cursor) == (cursor, [])
    one.do("XADD", "x", 50, "f", "again")
    mesh.settle()
    assert ask(two, cursor)[1] == [b"50-1"]


def test_equal_ids_may_be_divided_by_count_since_a_cursor_goes_by_number() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal")
    for node in mesh.nodes.values():
        node.do("XADD", "x", "100-1", "f", node.number)
    mesh.settle()
    one = mesh.nodes[1]
    seen = []
    cursor: bytes | str = "0"
    for _ in range(2):
        ((_, cursor, entries),) = one.do("AB.READ", "COUNT", 1, "STREAMS", "x", cursor)
        seen += [fields[1] for _, fields in entries]
    assert seen == [b"1", b"2"]


def test_a_cursor_of_a_server_without_regions_is_refused() -> None:
    mesh = Mesh(2)
    with pytest.raises(Exception, match="from a server without regions"):
        ask(mesh.nodes[1], "v1:kwAABQ")


# -- equal IDs stay together where one reads by ID --------------------------------------------


@pytest.fixture
def twins() -> Node:
    """100-1 twice, 101-1 three times, and one entry before, between and behind them."""
    mesh = Mesh(3, xadd_id_uniqueness_mode="liberal")
    mesh.nodes[1].do("XADD", "x", "99-1", "f", "v")
    for number in (1, 3):
        mesh.nodes[number].do("XADD", "x", "100-1", "f", number)
    mesh.nodes[2].do("XADD", "x", "100-7", "f", "v")
    for number in (1, 2, 3):
        mesh.nodes[number].do("XADD", "x", "101-1", "f", number)
    mesh.nodes[2].do("XADD", "x", "102-1", "f", "v")
    mesh.settle()
    return mesh.nodes[2]


IN_ORDER = [b"99-1"] + [b"100-1"] * 2 + [b"100-7"] + [b"101-1"] * 3 + [b"102-1"]


@pytest.mark.parametrize(
    ("count", "forward", "backward"),
    [(1, 1, 1), (2, 3, 4), (3, 3, 4), (4, 4, 4), (5, 7, 5), (6, 7, 7), (7, 7, 7), (8, 8, 8)],
)
def test_count_never_separates_equal_ids(
    twins: Node, count: int, forward: int, backward: int
) -> None:
    assert ids(twins.do("XRANGE", "x", "-", "+", "COUNT", count)) == IN_ORDER[:forward]
    assert ids(twins.do("XREVRANGE", "x", "+", "-", "COUNT", count)) == IN_ORDER[::-1][:backward]
    for read in (
        ("XREAD", "COUNT", count, "STREAMS", "x", "0"),
        ("XREAD", "COUNT", count, "BLOCK", 1, "STREAMS", "x", "0"),
        ("XREAD", "MAXCOUNT", count, "STREAMS", "x", "0"),
    ):
        ((_, entries),) = twins.do(*read)
        assert ids(entries) == IN_ORDER[:forward], read


def test_maxsize_never_separates_equal_ids(twins: Node) -> None:
    size = 1
    seen = set()
    while True:
        ((_, entries),) = twins.do("XREAD", "MAXSIZE", size, "STREAMS", "x", "0")
        assert ids(entries) == IN_ORDER[: len(entries)]
        seen.add(len(entries))
        if len(entries) == len(IN_ORDER):
            break
        size += 1
    assert seen == {1, 3, 4, 7, 8}


def test_groups_and_cursors_count_exactly(twins: Node) -> None:
    twins.do("XGROUP", "CREATE", "x", "g", "0")
    ((_, entries),) = twins.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "x", ">")
    assert ids(entries) == IN_ORDER[:2]
    assert ask(twins, "0", "COUNT", 2)[1] == IN_ORDER[:2]


# -- blocking ---------------------------------------------------------------------------------


class Client:
    """A second connection to a region, which may block."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.session = node.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")

    def ask(self, *args: object) -> list[Any]:
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        self.node.region.execute(self.session, [words])
        return self.replies()

    def replies(self) -> list[Any]:
        data = b"".join(self.session.outbox)
        self.session.outbox.clear()
        return decode_all(data)


def test_a_reader_blocked_on_what_comes_next_gets_late_entries_with_lower_ids() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    two.do("XADD", "x", 90, "f", "late")
    one.do("XADD", "x", 100, "f", "v")
    plain, limited, cursor = Client(one), Client(one), Client(one)
    assert plain.ask("XREAD", "BLOCK", 0, "STREAMS", "x", "$") == []
    assert limited.ask("XREAD", "MAXCOUNT", 5, "BLOCK", 0, "STREAMS", "x", "$") == []
    assert cursor.ask("AB.READ", "BLOCK", 0, "STREAMS", "x", "$") == []
    mesh.settle()
    late = [b"90-2", [b"f", b"late"]]
    assert plain.replies() == [[[b"x", [late]]]]
    assert limited.replies() == [[[b"x", [late]]]]
    assert cursor.replies() == [[[b"x", one.do("AB.TOKEN"), [late]]]]


def test_what_a_blocked_reader_has_seen_does_not_wake_it() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    two.do("XADD", "y", 90, "f", "v")
    one.do("XADD", "x", 100, "f", "v")
    reader = Client(one)
    assert reader.ask("XREAD", "BLOCK", 0, "STREAMS", "x", "y", "$", "$") == []
    one.do("XGROUP", "CREATE", "x", "g", "$")
    assert reader.replies() == []
    mesh.settle()
    assert reader.replies() == [[[b"y", [[b"90-2", [b"f", b"v"]]]]]]


def test_a_token_as_an_id_is_still_an_error() -> None:
    node = Mesh(2).nodes[1]
    node.do("XADD", "x", 100, "f", "v")
    with pytest.raises(Exception, match="Invalid stream ID"):
        node.do("XREAD", "BLOCK", 1, "STREAMS", "x", node.do("AB.TOKEN"))


def test_waiting_for_a_token_ends_when_its_effects_are_here() -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    one.do("XADD", "x", 100, "f", "v")
    first = one.do("AB.TOKEN")
    one.do("XADD", "x", 101, "f", "v")
    second = one.do("AB.TOKEN")
    assert one.do("AB.WAITFOR", second, 1) == b"OK"
    waiting = {token: Client(two) for token in (first, second)}
    for token, client in waiting.items():
        assert client.ask("AB.WAITFOR", token, 0) == []
    assert two.do("PING") == b"PONG"  # nobody else is held up
    mesh.send(1, 2, one.missing({})[:1])
    assert waiting[first].replies() == [b"OK"]
    assert waiting[second].replies() == []
    mesh.send(1, 2)
    assert waiting[second].replies() == [b"OK"]
    late = Client(three)
    assert late.ask("AB.WAITFOR", second, 0) == []
    mesh.send_full_sync(2, 3)
    assert late.replies() == [b"OK"]


def test_waiting_for_a_token_ends_with_null_in_time() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", 100, "f", "v")
    token = one.do("AB.TOKEN")
    client = Client(two)
    assert client.ask("AB.WAITFOR", token, 50) == []
    two.clock.us += 49_000
    two.tick()
    assert client.replies() == []
    two.clock.us += 1_000
    two.tick()
    assert client.replies() == [None]
    mesh.settle()
    assert client.replies() == []
    assert not two.region.context.waits.vectors


def test_inside_a_transaction_nothing_waits() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", 100, "f", "v")
    two.do("MULTI")
    two.do("AB.WAITFOR", one.do("AB.TOKEN"), 0)
    two.do("AB.READ", "BLOCK", 0, "STREAMS", "x", "$")
    assert two.do("EXEC") == [None, [[b"x", b"0", []]]]


# -- what AB.INFO shows -----------------------------------------------------------------------


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_info_of_a_region() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "x", 100, "f", "v")
    two.do("XADD", "y", 100, "f", "v")
    two.do("DEL", "y")
    mesh.send(2, 1)
    shown = pairs(one.do("AB.INFO"))
    assert shown[b"region"] == 1
    assert shown[b"epoch"] == 0
    assert shown[b"members"] == [1, 2]
    assert shown[b"vector"] == [[1, 0, 1], [2, 0, 2]]
    assert shown[b"stable"] == []
    assert (shown[b"marked-keys"], shown[b"mark-count"]) == (1, 1)
    mesh.settle()
    shown = pairs(one.do("AB.INFO"))
    assert shown[b"stable"] == [[1, 0, 1], [2, 0, 2]]
    assert (shown[b"marked-keys"], shown[b"mark-count"]) == (0, 0)


def test_info_of_a_key() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    for ms in (100, 101, 102):
        one.do("XADD", "x", ms, "f", "v")
    mesh.settle()
    two.do("XADD", "x", 110, "f", "v")
    one.do("XDEL", "x", "100-1")
    one.do("XGROUP", "CREATE", "x", "g", "0")
    one.do("XGROUP", "CREATE", "x", "h", "$")
    one.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "x", ">")
    one.do("XACK", "x", "g", "101-1")
    mesh.send(2, 1)
    shown = pairs(one.do("AB.INFO", "x"))
    assert (shown[b"exists"], shown[b"length"], shown[b"mark-count"]) == (1, 3, 0)
    first, second = map(pairs, shown[b"origins"])
    assert first == {
        b"region": 1,
        b"epoch": 0,
        b"live": 2,
        b"first-position": 2,
        b"next-position": 4,
        b"first-number": 2,
        b"last-number": 3,
        b"last-id": b"102-1",
        b"floor": 0,
    }
    assert (second[b"region"], second[b"first-number"], second[b"last-number"]) == (2, 1, 1)
    group, other = map(pairs, shown[b"groups"])
    assert group == {
        b"name": b"g",
        b"pending": 1,
        b"creations": [[1, 0, 5, b"0-0"]],
        b"ack-ranges": 1,
        b"acknowledged": [[1, 0, 2, 2]],
        b"delivered": [[1, 0, 1, 3]],
        b"runs": [[1, 0, 2, 3, 2, 0]],
        b"policies": [],
        b"released": 0,
        b"halted-keys": 0,
    }
    assert other[b"creations"] == [[1, 0, 6, b"$"]]
    one.do("XGROUP", "DESTROY", "x", "g")
    assert pairs(one.do("AB.INFO", "x"))[b"marks"] == [[1, 0, 8, b"destroy", b"g"]]
    one.do("DEL", "x")
    shown = pairs(one.do("AB.INFO", "x"))
    assert (shown[b"exists"], shown[b"length"], shown[b"groups"]) == (0, 0, [])
    assert shown[b"marks"] == [[1, 0, 8, b"destroy", b"g"], [1, 0, 9, b"delete", b""]]
    assert pairs(shown[b"origins"][0])[b"floor"] == 8


def test_a_delete_of_several_keys_reaches_the_other_region() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    for key in ("a", "b", "c"):
        one.do("XADD", key, "*", "f", "v")
    mesh.send(1, 2)
    assert two.do("EXISTS", "a", "b", "c") == 3
    assert one.do("DEL", "a", "none", "b", "a") == 2
    mesh.send(1, 2)
    assert two.do("EXISTS", "a", "b") == 0
    assert two.do("EXISTS", "c") == 1
