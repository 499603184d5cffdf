"""AB.PEERS, AB.REGION, AB.LINK, WAIT among regions, INFO: what commands make of the links."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.errors import CommandError
from anabranch.keyspace.replica import Member, replica_id_of
from anabranch.metrics.counters import Counters
from anabranch.metrics.peers import PeerFigures
from anabranch.stream.shared import Dot
from tests.support.region_harness import Harness

EU = replica_id_of(1, 0)
KNOWN = {
    "lag_effects": 3,
    "lag_bytes": 120,
    "lag_seconds": 0.25,
    "durable_lag_effects": 5,
    "receive_lag_effects": 0,
    "receive_lag_seconds": 0.0,
    "round_trip_ms": 1.5,
    "skew_ms": -2.0,
    "feature_level": 1,
    "row_age_ms": 40.4,
    "connected_ms": 1000.0,
    "differing_keys": 0,
    "in_flight_keys": 2,
    "compared_ms": 59.6,
}


def figures(region: int, name: str, state: str = "in_sync", **facts: Any) -> PeerFigures:
    """Nothing is known unless it is given."""
    values: dict[str, Any] = dict.fromkeys(KNOWN) | {
        "via": [],
        "window_used_bytes": 0,
        "held_count": 0,
        "held_bytes": 0,
        "held_oldest_ms": 0.0,
        "relayed_for": [],
        "refusal": "",
        "cut_ms": None,
        "counters": Counters(),
    }
    return PeerFigures(region=region, name=name, state=state, **values | facts)


class FakeRegions:
    """Two other regions that do what the test says."""

    def __init__(self) -> None:
        self.rows = [figures(2, "us", **KNOWN), figures(3, "ap", "unreachable")]
        self.has: dict[int, tuple[dict[int, int], dict[int, int]]] = {2: ({}, {}), 3: ({}, {})}
        self.links = self
        self.faults: dict[int, SimpleNamespace] = {}
        self.changed = 0
        self.removed: list[tuple[int, bool]] = []
        self.levels = {1: 2, 2: 2, 3: 2}

    def peers(self) -> list[PeerFigures]:
        return self.rows

    def facts(self) -> dict[str, int | float | str]:
        return {
            "region": 1,
            "epoch": 0,
            "cluster_id": "c" * 32,
            "full_catch_ups": 4,
            "partial_catch_ups": 5,
            "failed_partial_catch_ups": 7,
            "duplicates": 6,
            "held_oldest_ms": 1.23456,
        }

    def address(self, region: int) -> str:
        return f"host{region}:{region}"

    def feature_levels(self) -> dict[int, int]:
        return self.levels

    def acknowledged(self, effect: Dot) -> tuple[int, int]:
        replica_id, number = effect
        applied = sum(vector.get(replica_id, 0) >= number for vector, _ in self.has.values())
        durable = sum(vector.get(replica_id, 0) >= number for _, vector in self.has.values())
        return applied, durable

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        return [
            region
            for region, (_, durable) in self.has.items()
            if any(durable.get(replica_id, 0) < number for replica_id, number in effects.items())
        ]

    def remove_member(self, region: int, *, force: bool) -> None:
        if not force:
            raise CommandError("ERR unreachable, use FORCE")
        self.removed.append((region, force))

    def expiries(self) -> dict[int, int]:
        return {2: 1_900_000_000}

    def fault(self, region: int) -> SimpleNamespace:
        nothing = {"paused": False, "delay_ms": 0.0, "jitter_ms": 0.0, "loss": 0.0, "rate": 0.0}
        return self.faults.setdefault(region, SimpleNamespace(**nothing))

    def faults_changed(self) -> None:
        self.changed += 1


@pytest.fixture
def others() -> FakeRegions:
    return FakeRegions()


@pytest.fixture
def server(others: FakeRegions) -> Harness:
    server = Harness(resp3=True, region_id=1, enable_debug_command="yes")
    server.host.regions = others
    server.region.replica.members.update(
        {
            1: Member("eu", "eu.example", 1001),
            2: Member("us", "us.example", 1002),
            3: Member("ap", "ap.example", 1003),
        }
    )
    return server


def number(server: Harness) -> int:
    """Of our latest effect."""
    return server.region.replica.vector[EU]


# -- a server of its own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("AB.PEERS",),
        ("AB.REGION", "LIST"),
        ("AB.REGION", "FEATURES"),
        ("AB.REGION", "REMOVE", "2"),
        ("AB.LINK", "2", "PAUSE"),
    ],
)
def test_a_server_of_its_own_says_what_is_missing(words: tuple[str, ...]) -> None:
    alone = Harness()
    alone.settings.enable_debug_command = "yes"
    assert "region-id" in alone.error(*words)


def test_a_server_of_its_own_has_no_sections_about_others() -> None:
    text = Harness().do("INFO", "everything")
    assert b"# Active-Active" not in text
    assert b"# CRDT" not in text


# -- looking ------------------------------------------------------------------------------------


def test_peers(server: Harness, others: FakeRegions) -> None:
    others.fault(2).delay_ms = 20.0
    others.fault(2).loss = 0.05
    others.rows[1] = figures(3, "ap", "unreachable", cut_ms=1234.4)
    us, ap = (dict(row) for row in server.do("AB.PEERS"))
    assert (us[b"cut-ms"], ap[b"cut-ms"]) == (None, 1234)
    assert (us[b"region"], us[b"name"], us[b"state"]) == (2, b"us", b"in_sync")
    assert us[b"fault"] == b"delay 20 0, loss 5"
    assert (us[b"lag-effects"], us[b"lag-bytes"], us[b"lag-ms"]) == (3, 120, 250)
    assert (us[b"round-trip-us"], us[b"skew-us"], us[b"last-row-ms"]) == (1500, -2000, 40)
    assert (ap[b"state"], ap[b"fault"]) == (b"unreachable", b"")
    assert ap[b"lag-effects"] is ap[b"lag-ms"] is ap[b"round-trip-us"] is ap[b"last-row-ms"] is None
    assert others.faults.keys() == {2}, "looking changes nothing"


def test_relays_are_shown_as_region_and_epoch(server: Harness, others: FakeRegions) -> None:
    others.rows = [figures(2, "us", relayed_for=[replica_id_of(3, 1)])]
    (row,) = server.do("AB.PEERS")
    assert row[b"relays-for"] == [[3, 1]]


def test_members_and_who_was_removed(server: Harness) -> None:
    replica = server.region.replica
    replica.vector[replica_id_of(2, 4)] = 7
    replica.removed[9] = 2
    replica.former_names[9] = "ap"
    rows = server.do("AB.REGION", "LIST")
    assert rows[3][b"name"] == b"ap"
    assert [(row[b"region"], row[b"state"], row[b"epoch"]) for row in rows] == [
        (1, b"myself", 0),
        (2, b"in_sync", 4),
        (3, b"unreachable", 0),
        (9, b"removed", 0),
    ]
    assert rows[1][b"address"] == b"host2:2"


def test_features_name_who_holds_back(server: Harness, others: FakeRegions) -> None:
    assert server.do("AB.REGION", "FEATURES")[b"held-back-by"] == []
    others.levels[3] = 1
    reply = server.do("AB.REGION", "FEATURES")
    assert (reply[b"feature-level"], reply[b"held-back-by"]) == (1, [3])
    assert [row[b"feature-level"] for row in reply[b"regions"]] == [2, 2, 1]


def info(server: Harness, *sections: str) -> dict[str, str]:
    lines = server.do("INFO", *sections).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_info_replication_has_a_line_for_each_region(server: Harness) -> None:
    server.do("XADD", "s", "*", "f", "v")
    stats = server.region.stats
    stats.idmp_collapsed, stats.duplicate_ids = 8, 10
    stats.ids_ahead_ms = 11
    server.region.replica.conflicts.stable = {1: (7, 4), 2: (9, 5)}
    section = info(server, "replication")
    assert section["role"] == "master"
    assert section["region_name"] == "eu"
    assert section["held_oldest_ms"] == "1.235"
    assert section["applied"] == f"1.0={number(server)}"
    assert section["idmp_collapsed"] == "8"
    assert section["idmp_conflicts"] == "9"
    assert section["duplicate_ids"] == "10"
    assert section["ids_ahead_ms"] == "11"
    assert section["peer0"].startswith(
        "region=2,name=us,state=in_sync,lag_effects=3,lag_bytes=120,lag_seconds=0.25,"
    )
    assert section["peer1"] == (
        "region=3,name=ap,state=unreachable,held_batches=0,sent_bytes=0,received_bytes=0"
    )


def test_info_crdt_uses_familiar_names(server: Harness) -> None:
    server.do("XADD", "s", "*", "f", "v")
    stats, replica = server.region.stats, server.region.replica
    stats.merged_effects, stats.merged_states, stats.prunes = 21, 22, 23
    replica.tombstones_forgotten = 24
    members = len(replica.members)
    assert info(server, "crdt")["crdt_config_version"] == str(members)
    replica.removed[9] = 1
    section = info(server, "crdt")
    assert section["crdt_replica_id"] == "1"
    assert section["crdt_guid"] == "c" * 32
    assert section["crdt_clock"] == str(number(server))
    assert section["crdt_ovc"] == f"1.0={number(server)}"
    assert (section["crdt_sync_full"], section["crdt_sync_partial_ok"]) == ("4", "5")
    assert section["crdt_ovc_filtered_effect_reqs"] == "6"
    assert section["crdt_sync_partial-err"] == "7"
    assert (section["crdt_effect_reqs"], section["crdt_merge_reqs"]) == ("21", "22")
    assert (section["crdt_gc_attempted"], section["crdt_gc_collected"]) == ("23", "24")
    assert section["crdt_config_version"] == str(members + 4)
    assert ",shards=1," in section["crdt_replica_2"]
    assert section["crdt_replica_2"].endswith("max_ops_lag=3,min_ops_lag=3")
    assert section["crdt_replica_3"].endswith("max_ops_lag=unknown,min_ops_lag=unknown")
    assert "crdt_clock" not in info(server)
    assert "crdt_clock" in info(server, "everything")


def test_who_holds_back_marks_is_named(server: Harness, others: FakeRegions) -> None:
    assert server.do("AB.INFO")[b"oldest-mark"] is None
    server.do("XADD", "s", "*", "f", "v")
    server.do("XADD", "t", "*", "f", "v")
    server.do("DEL", "s")
    oldest = number(server)
    server.do("DEL", "t")
    for region, durable in ((2, oldest), (3, oldest - 1)):
        others.has[region] = ({}, {EU: durable})
    region = server.do("AB.INFO")
    assert (region[b"mark-count"], region[b"unstable-mark-count"]) == (2, 2)
    assert region[b"oldest-mark"] == [1, 0, oldest]
    assert region[b"held-back-by"] == [3]
    assert server.do("AB.INFO", "s")[b"held-back-by"] == [3]
    assert server.do("AB.INFO", "t")[b"held-back-by"] == [2, 3]
    server.do("XADD", "u", "*", "f", "v")
    assert server.do("AB.INFO", "u")[b"held-back-by"] == []


def test_bytes_are_told_as_they_were_before_they_were_compressed(
    server: Harness, others: FakeRegions
) -> None:
    counters = others.rows[0].counters
    counters.sent_bytes, counters.sent_raw_bytes = 10, 25
    counters.received_bytes, counters.received_raw_bytes = 20, 50
    us = server.do("AB.PEERS")[0]
    assert (us[b"sent-bytes"], us[b"sent-raw-bytes"]) == (10, 25)
    assert (us[b"received-bytes"], us[b"received-raw-bytes"]) == (20, 50)


# -- members ------------------------------------------------------------------------------------


def test_removing(server: Harness, others: FakeRegions) -> None:
    assert "FORCE" in server.error("AB.REGION", "REMOVE", "ap")
    assert server.do("AB.REGION", "REMOVE", "ap", "force") == b"OK"
    assert server.do("AB.REGION", "REMOVE", "2", "FORCE") == b"OK"
    assert others.removed == [(3, True), (2, True)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("REMOVE", "mars"), "ERR No region is called 'mars'"),
        (("REMOVE", "eu"), "ERR A region cannot remove itself: ask another one"),
        (("REMOVE", "1", "FORCE"), "ERR A region cannot remove itself: ask another one"),
        (("REMOVE", "us", "MAYBE"), "ERR syntax error"),
        (("REMOVE", "us", "FORCE", "x"), "ERR syntax error"),
    ],
)
def test_what_cannot_be_removed(server: Harness, words: tuple[str, ...], text: str) -> None:
    assert server.error("AB.REGION", *words) == text


# -- faults -------------------------------------------------------------------------------------


def test_faults_add_up_until_the_link_is_resumed(server: Harness, others: FakeRegions) -> None:
    assert server.do("AB.LINK", "us", "PAUSE") == b"OK"
    server.do("AB.LINK", "2", "delay", "100", "20.5")
    server.do("AB.LINK", "2", "LOSS", "2.5")
    server.do("AB.LINK", "2", "RATE", "1000")
    fault = vars(others.faults[2])
    assert fault == {
        "paused": True, "delay_ms": 100.0, "jitter_ms": 20.5, "loss": 0.025, "rate": 1000.0,
    }  # fmt: skip
    server.do("AB.LINK", "2", "DELAY", "50")
    assert (fault["delay_ms"], fault["jitter_ms"]) == (50.0, 0.0)
    server.do("AB.LINK", "us", "RESUME")
    assert not any(fault.values())
    assert others.changed == 6


def test_a_fault_outlives_the_membership_and_can_be_lifted(
    server: Harness, others: FakeRegions
) -> None:
    server.do("AB.LINK", "us", "PAUSE")
    replica = server.region.replica
    del replica.members[2]
    replica.removed[2] = 0
    replica.former_names[2] = "us"
    server.do("AB.LINK", "us", "RESUME")
    assert not others.faults[2].paused
    server.do("AB.LINK", "2", "DELAY", "5")
    assert others.faults[2].delay_ms == 5.0
    assert server.error("AB.LINK", "3333", "RESUME") == "ERR No region is called '3333'"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("us", "BREAK"), "ERR syntax error"),
        (("us", "PAUSE", "1"), "ERR syntax error"),
        (("us", "DELAY"), "ERR syntax error"),
        (("us", "DELAY", "1", "2", "3"), "ERR syntax error"),
        (("us", "DELAY", "soon"), "ERR value is not a valid float"),
        (("us", "DELAY", "-1"), "ERR value is out of range, must be positive"),
        (("us", "RATE", "nan"), "ERR value is out of range, must be positive"),
        (("us", "LOSS", "101"), "ERR value is out of range, must be at most 100"),
        (("eu", "PAUSE"), "ERR This is the region you are talking to: name another one"),
        (("x", "PAUSE"), "ERR No region is called 'x'"),
    ],
)
def test_faults_that_are_none(
    server: Harness, others: FakeRegions, words: tuple[str, ...], text: str
) -> None:
    assert server.error("AB.LINK", *words) == text
    assert others.changed == 0


def test_faults_need_the_leave_that_debug_needs(server: Harness) -> None:
    server.settings.enable_debug_command = "no"
    assert server.error("AB.LINK", "us", "PAUSE").startswith("ERR AB.LINK command not allowed.")
    server.settings.enable_debug_command = "local"
    assert server.do("AB.LINK", "us", "PAUSE") == b"OK"


# -- waiting ------------------------------------------------------------------------------------


def test_wait_is_over_when_enough_regions_have_applied_it(
    server: Harness, others: FakeRegions
) -> None:
    server.do("XADD", "s", "*", "f", "v")
    assert server.raw("WAIT", "2", "0") == b""
    others.has[2][0][EU] = number(server)
    server.region.waking.answer_wait()
    assert server.replies(server.session) == []
    others.has[3][0][EU] = number(server) - 1
    server.region.waking.answer_wait()
    assert server.replies(server.session) == []
    others.has[3][0][EU] = number(server)
    server.region.waking.answer_wait()
    assert server.replies(server.session) == [2]


def test_wait_that_takes_too_long_tells_how_many_there_are(
    server: Harness, others: FakeRegions
) -> None:
    server.do("XADD", "s", "*", "f", "v")
    server.raw("WAIT", "2", "50")
    others.has[2][0][EU] = number(server)
    server.region.waking.answer_wait()
    server.advance(50)
    assert server.replies(server.session) == [1]


def test_wait_is_for_what_the_connection_itself_has_written(
    server: Harness, others: FakeRegions
) -> None:
    other = server.connect()
    server.do("XADD", "s", "*", "f", "v")
    others.has[2][0][EU] = number(server)
    server.do("XADD", "s", "*", "f", "v", session=other)
    assert server.do("WAIT", "1", "0") == 1
    assert server.do("WAIT", "0", "0", session=other) == 0
    idle = server.connect()
    assert server.do("WAIT", "2", "0", session=idle) == 2


def test_reading_is_nothing_to_wait_for(server: Harness, others: FakeRegions) -> None:
    server.do("XADD", "s", "*", "f", "v")
    server.do("XGROUP", "CREATE", "s", "g", "0")
    for vector, _ in others.has.values():
        vector[EU] = number(server)
    server.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    assert server.do("WAIT", "2", "0") == 2
    server.do("XACK", "s", "g", *(entry[0] for entry in server.do("XRANGE", "s", "-", "+")))
    assert server.raw("WAIT", "2", "0") == b""


def test_wait_remembers_the_epoch_in_which_it_was_written(
    server: Harness, others: FakeRegions
) -> None:
    server.do("XADD", "s", "*", "f", "v")
    written = number(server)
    server.region.merging.open_epoch(1)
    others.has[2][0][EU] = written
    others.has[3][0][replica_id_of(1, 1)] = written
    others.has[3][0][EU] = written - 1
    server.session.wrote(EU, written)  # opening the epoch was nobody's wish
    assert server.do("WAIT", "1", "0") == 1


def test_ids_of_a_millisecond_are_a_step_apart_and_begin_anew_with_an_epoch(
    server: Harness, others: FakeRegions
) -> None:
    now_ms = server.clock.us // 1000

    def added(key: str = "s") -> str:
        return str(server.do("XADD", key, "*", "f", "v").decode())

    sequences = [1, 257, 513, 769, 1025, 1281]
    assert [added() for _ in sequences] == [f"{now_ms}-{each}" for each in sequences]
    assert added("t") == f"{now_ms}-1"
    assert added() == f"{now_ms}-1537"
    server.region.merging.open_epoch(2)
    assert added() == f"{now_ms}-{(2 << 32) + 1}"
    assert added() == f"{now_ms}-{(2 << 32) + 257}"
    server.advance(1)
    assert added() == f"{now_ms + 1}-{(2 << 32) + 1}"


def test_ids_of_an_epoch_end_before_those_of_the_next_one(server: Harness) -> None:
    now_ms = server.clock.us // 1000
    server.settings.xadd_id_uniqueness_mode = "liberal"
    server.do("XADD", "s", f"{now_ms}-{(1 << 32) - 512}", "f", "v")
    server.do("XADD", "t", f"{now_ms}-{(1 << 32) + 5}", "f", "v")
    last = 65536 << 32 | 1
    for key, sequences in (
        ("s", [(1 << 32) - 511, (1 << 32) - 255, last, last + 256]),
        ("t", [last, last + 256]),
    ):
        for each in sequences:
            assert server.do("XADD", key, "*", "f", "v") == b"%d-%d" % (now_ms, each)


def test_given_ids_of_this_millisecond_are_answered_as_they_are(server: Harness) -> None:
    """Also those between the IDs that a region gives, for which it has texts ready."""
    server.settings.xadd_id_uniqueness_mode = "liberal"
    sequences = [0, 1, 2, 255, 256, 257, 258, 512, 769, 1 << 18, 1025 * 256 + 1, 1 << 40]
    for _ in range(2):
        now_ms = server.clock.us // 1000
        given = [f"{now_ms}-{each}".encode() for each in sequences]
        assert [server.do("XADD", "s", each, "f", "v") for each in given] == given
        assert [each[0] for each in server.do("XRANGE", "s", now_ms, now_ms)] == given
        server.do("XADD", "t", "*", "f", "v")  # from now on there are texts
        server.advance(1)


def test_wait_never_blocks_a_transaction(server: Harness, others: FakeRegions) -> None:
    server.do("MULTI")
    server.do("XADD", "s", "*", "f", "v")
    server.do("WAIT", "1", "0")
    assert server.do("EXEC")[1] == 0


def test_waitaof_waits_for_disks_here_and_there(server: Harness, others: FakeRegions) -> None:
    disk = server.host.persistence
    disk.is_logging = True
    server.do("XADD", "s", "*", "f", "v")
    disk.end = 10
    server.raw("WAITAOF", "1", "1", "0")
    disk.end = 20
    others.has[2][0][EU] = number(server)  # applied, and not on the disk
    others.has[2][1][EU] = number(server) - 1
    disk.synced_position = 10
    server.region.waking.answer_wait()
    assert server.replies(server.session) == []
    others.has[2][1][EU] = number(server)
    server.region.waking.answer_wait()
    assert server.replies(server.session) == [[1, 1]]
    server.raw("WAITAOF", "0", "2", "100")
    server.advance(100)
    assert server.replies(server.session) == [[0, 1]]


# -- refusing writes ----------------------------------------------------------------------------


def test_reasons_to_refuse_writes_are_kept_apart(server: Harness) -> None:
    dispatcher = server.region.dispatcher
    dispatcher.refuse_writes("regions", "NOREPLICAS Not enough good replicas to write.")
    dispatcher.refuse_writes("disk", "MISCONF x")
    dispatcher.allow_writes("disk")
    assert server.error("XADD", "s", "*", "f", "v").startswith("NOREPLICAS")
    assert server.do("XLEN", "s") == 0
    server.do("MULTI")
    assert server.error("XADD", "s", "*", "f", "v").startswith("NOREPLICAS")
    assert server.error("EXEC").startswith("EXECABORT")
    dispatcher.allow_writes("regions")
    assert server.do("XADD", "s", "*", "f", "v")
