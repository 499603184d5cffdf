"""AB.SEAL: a stream that takes no more entries, and readers that see the end."""

from __future__ import annotations

import pytest

from tests.support.streams import BOTH_PROTOCOLS, NO_SUCH_KEY, WRONGTYPE, Streams, as_map

SEALED = "SEALED The stream has ended (AB.SEAL) and takes no more entries"
MAX = "18446744073709551615-18446744073709551615"


@pytest.fixture
def s() -> Streams:
    streams = Streams()
    streams.count_to("s", 3)
    return streams


def read(s: Streams, cursor: str = "0", options: str = "") -> list[object]:
    """Cursor, IDs of the entries, notes."""
    ((_, after, entries, notes),) = s.run(f"AB.READ NOTES {options} STREAMS s {cursor}")
    return [after, [entry[0] for entry in entries], notes]


@pytest.mark.parametrize("entry_id", ["*", "9-9", "9-*", MAX, "MAXLEN 5 *", "IDMP p i *"])
def test_a_sealed_stream_takes_no_more_entries(s: Streams, entry_id: str) -> None:
    assert s.run("AB.SEAL s") == 1
    assert s.run("AB.SEAL s") == 0
    assert s.fails(f"XADD s {entry_id} f v").startswith(SEALED)
    assert s.ids("s") == ["1-0", "2-0", "3-0"]


def test_a_retry_of_an_earlier_entry_is_answered(s: Streams) -> None:
    entry_id = s.run("XADD s IDMP p i * f v")
    s.run("AB.SEAL s")
    assert s.run("XADD s IDMP p i * f v") == entry_id


def test_what_cannot_be_sealed(s: Streams) -> None:
    s.run("SET t x")
    assert s.fails("AB.SEAL t") == WRONGTYPE
    assert s.fails("AB.SEAL u") == NO_SUCH_KEY
    s.run(f"XADD s {MAX} f v")
    assert s.fails("AB.SEAL s").startswith("ERR The stream has used up its IDs")
    assert "exhausted" in s.fails("XADD s * f v")
    s.run(f"XDEL s {MAX}")
    assert "exhausted" in s.fails("XADD s * f v")


@BOTH_PROTOCOLS
def test_a_reader_with_notes_sees_the_end(s: Streams, resp3: bool) -> None:
    session = s.connect(resp3=resp3)
    before = s.shows("AB.READ NOTES COUNT 2 STREAMS s 0", session)
    assert before.endswith("[]]]" if not resp3 else "[]]}")
    s.run("AB.SEAL s")
    assert s.shows("AB.READ NOTES COUNT 2 STREAMS s 0", session) == before
    assert "[['end']]" in s.shows("AB.READ NOTES STREAMS s 0", session)
    assert "end" not in s.shows("AB.READ STREAMS s 0", session)


def test_the_end_comes_with_the_last_entries_and_again(s: Streams) -> None:
    s.run("AB.SEAL s")
    cursor, ids, notes = read(s, options="COUNT 2")
    assert (ids, notes) == (["1-0", "2-0"], [])
    cursor, ids, notes = read(s, str(cursor), "COUNT 2")
    assert (ids, notes) == (["3-0"], [["end"]])
    assert read(s, str(cursor), "BLOCK 0") == [cursor, [], [["end"]]]
    s.run("XTRIM s MAXLEN 0")
    assert read(s)[1:] == [[], [["gap", 1, 3], ["end"]]]


def test_readers_that_wait_wake(s: Streams) -> None:
    s.run("XGROUP CREATE s g $", "XGROUP CREATE s h $")
    cursor = read(s)[0]
    notes = s.waits(f"AB.READ NOTES BLOCK 0 STREAMS s {cursor}")
    plain = [
        s.waits("XREAD BLOCK 0 STREAMS s $"),
        s.waits("XREAD BLOCK 0 STREAMS t s 0 3-0"),
        *(s.waits(f"XREADGROUP GROUP g c{n} BLOCK 0 STREAMS s >") for n in range(3)),
        s.waits("XREADGROUP GROUP h c BLOCK 0 CLAIM 10 STREAMS s >"),
    ]
    s.run("AB.SEAL s")
    assert s.answer(notes) == f"[['s', '{cursor}', [], [['end']]]]"
    assert [s.answer(each) for each in plain] == ["*-1"] * 6


def test_later_readers_wait_as_usual(s: Streams) -> None:
    s.run("XGROUP CREATE s g 0", "AB.SEAL s")
    assert len(s.run("XREADGROUP GROUP g c BLOCK 10 STREAMS s >")[0][1]) == 3
    waiting = s.waits("XREADGROUP GROUP g c BLOCK 100 STREAMS s >")
    s.advance(101)
    assert s.answer(waiting) == "*-1"
    assert s.group()["lag"] == 0


def test_what_becomes_of_the_seal(s: Streams) -> None:
    s.run("AB.SEAL s", "COPY s t")
    payload = s.do("DUMP", "s")
    s.do("RESTORE", "u", "0", payload)
    s.run("RENAME s v")
    for key in ("t", "u", "v"):
        assert s.fails(f"XADD {key} * f v").startswith(SEALED)
        assert as_map(s.run(f"AB.INFO {key}"))["sealed"] == 1
    s.run("DEL t", "XADD t * f v", "XADD s * f v")
    assert as_map(s.run("AB.INFO t"))["sealed"] == 0
    s.run("XSETID v 3-0", "XADD v 4-0 f v")  # opened again, which a region alone can
    assert s.ids("v") == ["1-0", "2-0", "3-0", "4-0"]


def test_in_transactions(s: Streams) -> None:
    s.run("MULTI", "XADD s 4-0 f v", "AB.SEAL s", "XADD s 5-0 f v")
    added, sealed, refused = s.do("EXEC")
    assert (added, sealed) == (b"4-0", 1)
    assert str(refused).startswith(SEALED)


def test_an_entry_may_have_that_id_and_one_more_follows_as_in_redis(s: Streams) -> None:
    before = MAX[:-1] + "4"
    s.run(f"XADD s {before} f v")
    assert s.fails("XADD s 9-9 f v").startswith("ERR The ID specified in XADD is equal or smaller")
    assert s.fails("AB.SEAL s").startswith("ERR The stream has used up its IDs")
    assert s.run("XADD s * f v") == MAX
    assert "exhausted" in s.fails("XADD s * f v")


def test_an_empty_stream_can_be_sealed(s: Streams) -> None:
    s.run("XTRIM s MAXLEN 0", "AB.SEAL s")
    assert s.fails("XADD s * f v").startswith(SEALED)
