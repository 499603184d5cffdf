"""AB.READ, AB.COUNT, AB.TOKEN and AB.WAITFOR on a server of its own.

Between regions: ``tests/active_active/test_regional_commands.py``.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.keyspace.replica import read_token, write_token
from tests.support.streams import Streams


@pytest.fixture
def server() -> Streams:
    return Streams()


def taken(server: Streams, cursor: bytes | str, *options: object) -> tuple[bytes, list[bytes]]:
    """Next cursor and IDs of AB.READ about the key ``s``."""
    ((key, following, entries),) = server.do("AB.READ", *options, "STREAMS", "s", cursor)
    assert key == b"s"
    return following, [entry_id for entry_id, _ in entries]


def filled(server: Streams, *ids: int) -> None:
    for ms in ids:
        server.do("XADD", "s", f"{ms}-0", "f", "v")


# -- cursors ----------------------------------------------------------------------------------


def test_a_cursor_goes_on_where_the_reply_ended(server: Streams) -> None:
    filled(server, *range(1, 8))
    cursor: bytes | str = "0"
    seen = []
    for _ in range(4):
        cursor, got = taken(server, cursor, "COUNT", 2)
        seen.append(got)
    assert seen == [[b"1-0", b"2-0"], [b"3-0", b"4-0"], [b"5-0", b"6-0"], [b"7-0"]]
    assert taken(server, cursor) == (cursor, [])
    filled(server, 8)
    assert taken(server, cursor)[1] == [b"8-0"]


def test_without_data_the_cursor_comes_back(server: Streams) -> None:
    assert server.do("AB.READ", "STREAMS", "s", "t", "0", "$") == [
        [b"s", b"0", []],
        [b"t", b"0", []],
    ]
    filled(server, 1)
    cursor, got = taken(server, "$")
    assert got == []
    assert taken(server, cursor) == (cursor, [])
    server.do("DEL", "s")
    assert taken(server, cursor) == (cursor, [])


def test_what_is_deleted_is_neither_returned_nor_in_the_way(server: Streams) -> None:
    filled(server, *range(1, 9))
    cursor, _ = taken(server, "0", "COUNT", 3)
    server.do("XDEL", "s", "3-0", "4-0", "8-0")
    assert taken(server, cursor)[1] == [b"5-0", b"6-0", b"7-0"]
    server.do("XTRIM", "s", "MAXLEN", 1)
    assert taken(server, cursor)[1] == [b"7-0"]
    server.do("XDEL", "s", "7-0")
    filled(server, 9)
    assert taken(server, cursor)[1] == [b"9-0"]


@pytest.mark.parametrize(
    "remake",
    [
        [("DEL", "s")],
        [("FLUSHALL",)],
        [("PEXPIRE", "s", "-1")],
        [("SET", "s", "v"), ("DEL", "s")],
        [("XADD", "other", "1-0", "f", "v"), ("RENAME", "other", "s")],
        [("XADD", "other", "1-0", "f", "v"), ("COPY", "other", "s", "REPLACE")],
    ],
    ids=["del", "flush", "expire", "type", "rename", "copy"],
)
def test_a_stream_made_again_is_read_from_its_start(server: Streams, remake: list[Any]) -> None:
    filled(server, 1, 2, 3)
    cursor, _ = taken(server, "0")
    for command in remake:
        server.do(*command)
    before = [entry_id for entry_id, _ in server.do("XRANGE", "s", "-", "+")]
    server.do("XADD", "s", "2-0", "f", "v")
    assert taken(server, cursor)[1] == [*before, b"2-0"]


def test_lowering_the_last_id_hides_nothing(server: Streams) -> None:
    filled(server, 5, 6)
    cursor, _ = taken(server, "0")
    server.do("XTRIM", "s", "MAXLEN", 0)
    server.do("XSETID", "s", "1-0")
    filled(server, 2)
    assert taken(server, cursor)[1] == [b"2-0"]


def test_every_entry_that_is_live_when_reached_comes_once(server: Streams) -> None:
    chance = random.Random(1)
    server.do("CONFIG", "SET", "stream-node-max-entries", 4)
    cursor: bytes | str = "0"
    returned: list[bytes] = []
    gone: set[bytes] = set()
    added: list[bytes] = []
    for step in range(600):
        if chance.random() < 0.5:
            added.append(server.do("XADD", "s", f"{step + 1}-0", "f", "v"))
        elif chance.random() < 0.4 and added:
            entry_id = chance.choice(added)
            if server.do("XDEL", "s", entry_id) and entry_id not in returned:
                gone.add(entry_id)
        else:
            cursor, got = taken(server, cursor, "COUNT", chance.randint(1, 4))
            returned += got
    returned += taken(server, cursor)[1]
    assert returned == [entry_id for entry_id in added if entry_id not in gone]


@pytest.mark.parametrize(
    "cursor",
    ["1-1", "-", "+", ">", "v1:", "v1:!!", "v2:kwAABQ", "v1:kwAABQ==", "v1:kwH_BQ", "00", "v1:A"],
)
def test_what_is_no_cursor_is_refused(server: Streams, cursor: str) -> None:
    filled(server, 1)
    wrong = "ERR Invalid cursor: it is 0, $, or what an earlier reply gave"
    assert server.error("AB.READ", "STREAMS", "s", cursor) == wrong
    assert server.error("AB.READ", "STREAMS", "none", cursor) == wrong


def test_a_cursor_of_a_server_with_regions_is_refused(server: Streams) -> None:
    assert "from a server with regions" in server.error(
        "AB.READ", "STREAMS", "s", write_token({1: 5})
    )
    assert "from a server with regions" in server.error("AB.WAITFOR", write_token({1: 5}), 1)


def test_tokens_are_written_in_one_way() -> None:
    for vector in ({}, {0: 1}, {1: 5, 2: 1 << 63}, {0x7FFFFF01: 3, 0x1: 2}):
        assert read_token(write_token(vector)) == vector
    assert write_token({2: 1, 1: 1}) == write_token({1: 1, 2: 1, 3: 0})
    assert len(write_token({1: 10**9, 2: 10**9, 3: 10**9})) <= 60


# -- limits and shapes ------------------------------------------------------------------------


def test_limits_are_over_all_streams(server: Streams) -> None:
    for key in "st":
        for ms in (1, 2, 3):
            server.do("XADD", key, f"{ms}-0", "f", "v")

    def counts(*options: object) -> list[int]:
        reply = server.do("AB.READ", *options, "STREAMS", "s", "t", "0", "0")
        return [len(entries) for _, _, entries in reply]

    assert counts("COUNT", 2) == [2, 2]
    assert counts("MAXCOUNT", 2) == [2, 0]
    assert counts("MAXCOUNT", 4) == [3, 1]
    assert counts("COUNT", 2, "MAXCOUNT", 3) == [2, 1]
    assert counts("MAXSIZE", 1) == [1, 0]
    assert counts("MAXSIZE", 1 << 20) == [3, 3]
    assert counts("COUNT", 0) == [3, 3]
    (_, first, _), (_, second, _) = server.do(
        "AB.READ", "MAXCOUNT", 2, "STREAMS", "s", "t", "0", "$"
    )
    assert taken(server, first)[1] == [b"3-0"]
    ((_, end, _),) = server.do("AB.READ", "STREAMS", "t", "$")
    assert second == end


def test_the_reply_in_resp3_is_a_map(server: Streams) -> None:
    filled(server, 1)
    other = server.connect(resp3=True)
    raw = server.raw("AB.READ", "STREAMS", "s", "none", "0", "0", session=other)
    cursor = server.do("AB.READ", "STREAMS", "s", "$")[0][1]
    assert raw == (
        b"%%2\r\n$1\r\ns\r\n*2\r\n$%d\r\n%b\r\n*1\r\n"
        b"*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
        b"$4\r\nnone\r\n*2\r\n$1\r\n0\r\n*0\r\n" % (len(cursor), cursor)
    )


def test_wrong_requests(server: Streams) -> None:
    server.do("SET", "k", "v")
    assert server.error("AB.READ", "STREAMS", "k", "0").startswith("WRONGTYPE")
    assert server.error("AB.READ", "STREAMS", "s", "t", "0") == (
        "ERR Unbalanced 'ab.read' list of streams: "
        "for each stream key a cursor or '$' must be specified."
    )
    assert server.error("AB.READ", "NOACK", "STREAMS", "s", "0") == (
        "ERR The NOACK option is only supported by XREADGROUP. You called AB.READ instead."
    )
    assert server.error("AB.READ", "s", "t", "0") == "ERR syntax error"


# -- blocking ---------------------------------------------------------------------------------


def test_a_blocked_reader_is_served_when_something_is_added(server: Streams) -> None:
    filled(server, 1)
    reader = server.connect()
    assert server.raw("AB.READ", "BLOCK", 0, "STREAMS", "s", "t", "$", "$", session=reader) == b""
    server.do("XADD", "t", "7-0", "f", "v")
    ((first, second),) = server.replies(reader)
    assert first[2] == []
    assert [entry_id for entry_id, _ in second[2]] == [b"7-0"]


def test_a_blocked_reader_gets_its_cursor_back_in_time(server: Streams) -> None:
    filled(server, 1)
    cursor, _ = taken(server, "$")
    reader = server.connect()
    server.raw("AB.READ", "BLOCK", 50, "STREAMS", "s", "none", "$", "$", session=reader)
    server.advance(49)
    assert server.replies(reader) == []
    server.advance(1)
    assert server.replies(reader) == [[[b"s", cursor, []], [b"none", b"0", []]]]


def test_a_blocked_reader_sees_a_stream_made_again(server: Streams) -> None:
    filled(server, 5)
    reader = server.connect()
    server.raw("AB.READ", "BLOCK", 0, "STREAMS", "s", "$", session=reader)
    server.do("DEL", "s")
    assert server.replies(reader) == []
    filled(server, 1)
    (((_, _, entries),),) = server.replies(reader)
    assert [entry_id for entry_id, _ in entries] == [b"1-0"]


# -- counting ---------------------------------------------------------------------------------


def test_count_of_an_interval(server: Streams) -> None:
    assert server.do("AB.COUNT", "none", "-", "+") == 0
    filled(server, 1, 2, 3, 4)
    server.do("XADD", "s", "4-1", "f", "v")
    server.do("XDEL", "s", "2-0")
    for start, end, count in (
        ("-", "+", 4), ("+", "-", 0), ("2", "3", 1), ("(1", "+", 3), ("4", "4", 2),
        ("4", "(4-1", 1), ("5", "+", 0), ("0-0", "0-0", 0),
    ):  # fmt: skip
        assert server.do("AB.COUNT", "s", start, end) == count, (start, end)
    assert server.error("AB.COUNT", "s", "x", "+").startswith("ERR Invalid stream ID")
    server.do("SET", "k", "v")
    assert server.error("AB.COUNT", "k", "-", "+").startswith("WRONGTYPE")


def test_counts_stay_right_while_entries_come_and_go(server: Streams) -> None:
    chance = random.Random(2)
    server.do("CONFIG", "SET", "stream-node-max-entries", 5)
    live: list[int] = []
    for step in range(1, 800):
        filled(server, step)
        live.append(step)
        dice = chance.random()
        if dice < 0.3:
            gone = chance.choice(live)
            live.remove(gone)
            server.do("XDEL", "s", f"{gone}-0")
        elif dice < 0.35:
            keep = chance.randint(len(live) // 2, len(live))
            server.do("XTRIM", "s", "MAXLEN", keep)
            live = live[len(live) - keep :]
        elif dice < 0.38:
            server.do("XTRIM", "s", "MAXLEN", "~", max(len(live) - 12, 0))
            rows = server.do("XRANGE", "s", "-", "+")
            live = [int(entry_id[:-2]) for entry_id, _ in rows]
        low, high = sorted(chance.choices(range(step + 2), k=2))
        due = sum(low <= each <= high for each in live)
        assert server.do("AB.COUNT", "s", low, high) == due
    server.check()


# -- tokens -----------------------------------------------------------------------------------


def test_on_a_server_of_its_own_everything_is_here(server: Streams) -> None:
    filled(server, 1)
    token = server.do("AB.TOKEN")
    assert token == b"0"
    assert server.do("AB.WAITFOR", token, 0) == b"OK"
    assert server.error("AB.WAITFOR", "what", 0) == (
        "ERR Invalid token: it is what AB.TOKEN or AB.READ gave"
    )
    assert server.error("AB.WAITFOR", token, -1) == "ERR timeout is negative"
    assert server.error("AB.WAITFOR", token, "x").startswith("ERR timeout is not an integer")
