"""AB.SCHEDULE: entries that are added later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.streams import NOW, Streams, as_map

FIRST_MINUTE = (NOW // 60_000 + 1) * 60_000
HOUR = 3_600_000


class Plans(Streams):
    """One key; time passes as for a server."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(enable_debug_command="yes", **settings)

    def passes(self, ms: int) -> None:
        while ms > 0:
            step = min(ms, 100)
            self.advance(step)
            ms -= step
        self.region.keyspace.databases[0].check()

    def jumps(self, ms: int) -> None:
        """The server was not there meanwhile."""
        self.advance(ms)
        for _ in range(20):
            self.advance(1)

    def plans(self, key: str = "s") -> list[dict[str, Any]]:
        return [as_map(row) for row in self.run(f"AB.SCHEDULE LIST {key}")]

    def values(self, key: str = "s") -> list[str]:
        return [fields[1] for _, fields in self.run(f"XRANGE {key} - +")]


@pytest.fixture
def s() -> Plans:
    return Plans()


# -- once -------------------------------------------------------------------------------------


def test_an_entry_is_added_when_it_is_due_and_not_before(s: Plans) -> None:
    handle = s.run("AB.SCHEDULE s IN 1000 f v g w")
    s.passes(900)
    assert s.run("EXISTS s") == 0
    s.passes(200)
    ((entry_id, fields),) = s.run("XRANGE s - +")
    assert fields == ["f", "v", "g", "w"]
    assert NOW + 1000 <= int(entry_id.split("-")[0]) <= NOW + 1100
    assert s.plans() == []
    assert s.run(f"AB.SCHEDULE CANCEL s {handle}") == 0
    s.passes(5000)
    assert s.run("XLEN s") == 1


@pytest.mark.parametrize("when", [f"AT {NOW + 2000}", "IN 2s", "in 2000ms", f"at {NOW + 2000}"])
def test_the_ways_to_say_when(s: Plans, when: str) -> None:
    s.run(f"AB.SCHEDULE s {when} f v")
    assert [each["at"] for each in s.plans()] == [NOW + 2000]


def test_what_is_due_together_comes_in_the_order_of_scheduling(s: Plans) -> None:
    for number in range(300):
        s.run(f"AB.SCHEDULE s AT {NOW + 1000} n {number}")
    s.run(f"AB.SCHEDULE s AT {NOW + 500} n first")
    s.passes(1200)
    assert s.values() == ["first", *map(str, range(300))]


def test_a_blocked_reader_gets_it(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 500 f v")
    reader = s.waits("XREAD BLOCK 0 STREAMS s 0")
    s.passes(700)
    assert "['f', 'v']" in s.answer(reader)


def test_keyspace_events_are_those_of_an_xadd(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 500 f v")
    assert s.events_of(lambda: s.passes(700)) == ["new s", "xadd s"]


def test_fields_of_any_bytes(s: Plans) -> None:
    s.do("AB.SCHEDULE", b"s", b"IN", b"5", b"", b"\r\n", b"\xff", b"$3\r\n")
    (row,) = s.do("AB.SCHEDULE", "LIST", "s")
    fields = dict(zip(row[::2], row[1::2], strict=True))[b"fields"]
    assert fields == [b"", b"\r\n", b"\xff", b"$3\r\n"]
    s.passes(200)
    assert s.do("XRANGE", "s", "-", "+")[0][1] == fields


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("s AT 0 f v", "ERR AT 0 is not in the future: the clock of this server says"),
        (f"s AT {NOW} f v", "is not in the future"),
        ("s AT -5 f v", "ERR AT must be a time in milliseconds since 1970, a whole number"),
        ("s AT NaN f v", "ERR AT must be a time"),
        ("s AT 1e12 f v", "ERR AT must be a time"),
        ("s AT 253402300800000 f v", "ERR the time is after the year 9999"),
        ("s AT 9223372036854775807 f v", "ERR the time is after the year 9999"),
        ("s IN 0 f v", "ERR invalid IN: a duration is"),
        ("s IN -1 f v", "ERR invalid IN"),
        ("s IN nan f v", "ERR invalid IN"),
        ("s IN 3651d f v", "from 1ms to 3650d"),
        ("s ON 5 f v", "ERR syntax error, after the key AT ms, IN ms or CRON 'line' says when"),
        ("s CRON '* * *' f v", "ERR invalid cron line: wrong number of fields. It has five"),
        ("s CRON '0 0 */31 2 mon#5' f v", "ERR invalid cron line: there is no such day"),
        ("s CRON '61 * * * *' f v", "ERR invalid cron line: bad minute. It has five fields"),
        ("s CRON '* * * * *' TZ Mars/Base f v", "ERR this server knows no time zone 'Mars/Base'"),
        ("s CRON '* * * * *' TZ ../etc/passwd f v", "ERR this server knows no time zone"),
        *[
            (f"s CRON '* * * * *' TZ {each} f v", f"no time zone '{each}': use a name of the tz")
            for each in (
                "localtime",
                "posixrules",
                "Factory",
                "right/UTC",
                "posix/UTC",
                "UTC/",
                "europe/Rome",
                "Europe/../localtime",
                "Europe",
                "Europe/",
                "tzdata.zi",
            )
        ],
        ("s CRON '* * * * *' MISSED never f v", "ERR MISSED is once, skip or all"),
        ("s CRON '* * * * *' IDMP p i f v", "ERR IDMP is for AT and IN"),
        ("s IN 5 TZ UTC f v", "ERR TZ and MISSED are for CRON"),
        ("s IN 5 MISSED all f v", "ERR TZ and MISSED are for CRON"),
        ("s IN 5 f v g", "each field of the entry needs a name and a value"),
        ("s IN 5 ID h f", "each field of the entry needs a name and a value"),
        ("s IN 5 IDMP p", "IDMP needs a value that is not empty"),
        ("s IN 5 ID '' f v", "ID needs a value that is not empty"),
        (f"s IN 5 ID {'h' * 257} f v", "ERR a handle has at most 256 bytes"),
        ("str IN 5 f v", "WRONGTYPE"),
        ("end IN 5 f v", "SEALED"),
        ("s IN 5 ID taken f v", "ERR an entry is scheduled under the handle 'taken'"),
        ("s IN 5", "wrong number of arguments for 'ab.schedule' command"),
        ("LIST", "wrong number of arguments for 'ab.schedule|list' command"),
        ("LIST s COUNT 0", "ERR COUNT must be from 1 to 10000"),
        ("LIST s COUNT x", "syntax error"),
        ("LIST s AT 5", "syntax error"),
        ("RUN s nobody", "ERR no entry is scheduled under the handle 'nobody'"),
        ("CANCEL s", "wrong number of arguments for 'ab.schedule|cancel' command"),
    ],
)
def test_what_is_wrong_gets_an_error_and_changes_nothing(s: Plans, words: str, why: str) -> None:
    s.run("SET str x", "XADD end 1-0 f v", "AB.SEAL end", "AB.SCHEDULE s IN 9999 ID taken f v")
    assert why in s.fails(f"AB.SCHEDULE {words}")
    assert [each["handle"] for each in s.plans()] == ["taken"]


def test_no_more_than_the_setting_allows(s: Plans) -> None:
    s.run("CONFIG SET schedule-max-entries 2", "AB.SCHEDULE a IN 9999 f v", "SELECT 1")
    s.run("AB.SCHEDULE b IN 9999 f v")
    assert "ERR 2 entries are scheduled, as many as schedule-max-entries" in s.fails(
        "AB.SCHEDULE c IN 9999 f v"
    )


def test_options_are_in_capitals_so_that_fields_may_have_their_names(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 5 id 7 tz x")
    (plan,) = s.plans()
    assert plan["fields"] == ["id", "7", "tz", "x"]


def test_a_retry_with_an_idempotent_id_schedules_nothing_more(s: Plans) -> None:
    line = "AB.SCHEDULE s IN 1000 IDMP shop 17 f v"
    assert s.run(line) == s.run(line) == "shop:17"
    s.passes(1200)
    assert s.run(line) == "shop:17"
    assert s.run("XADD s IDMP shop 17 * f v") == s.ids("s")[0]
    s.passes(2000)
    assert s.run("XLEN s") == 1


def test_what_a_producer_has_added_meanwhile_is_not_added_again(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 IDMP shop 17 f v", "XADD s IDMP shop 17 * f v")
    s.passes(1200)
    assert s.run("XLEN s") == 1
    assert s.plans() == []


# -- list, cancel, run ------------------------------------------------------------------------


def test_what_is_listed_is_in_the_order_of_times(s: Plans) -> None:
    for delay in (500, 100, 300, 200, 400):
        s.run(f"AB.SCHEDULE s IN {delay} ID d{delay} n {delay}")
    s.run("AB.SCHEDULE s CRON '0 4 * * *' TZ Europe/Berlin MISSED skip ID night n night")
    assert [each["handle"] for each in s.plans()] == [
        *("d100", "d200", "d300", "d400", "d500", "night"),
    ]
    assert len(s.run("AB.SCHEDULE LIST s COUNT 2")) == 2
    assert s.plans()[0] == {
        "handle": "d100", "at": NOW + 100, "cron": None, "tz": None, "missed": None, "region": 0,
        "fields": ["n", "100"],
    }  # fmt: skip
    assert (s.plans()[-1]["cron"], s.plans()[-1]["tz"], s.plans()[-1]["missed"]) == (
        *("0 4 * * *", "Europe/Berlin", "skip"),
    )
    assert s.run("AB.SCHEDULE LIST other") == []


def test_what_is_cancelled_is_not_added(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 100 ID a f v", "AB.SCHEDULE s IN 100 ID b f v")
    assert s.run("AB.SCHEDULE CANCEL s a a nobody") == 1
    s.passes(300)
    assert s.run("XLEN s") == 1
    assert s.run("AB.SCHEDULE CANCEL s a b") == 0
    s.run("AB.SCHEDULE s IN 100 ID a f v")
    s.passes(300)
    assert s.run("XLEN s") == 2


def test_run_adds_at_once(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1h ID once f v", "AB.SCHEDULE s CRON '0 4 * * *' ID night f v")
    assert s.run("AB.SCHEDULE RUN s once") == s.ids("s")[-1]
    assert s.run("AB.SCHEDULE RUN s night", "AB.SCHEDULE RUN s night") == s.ids("s")[-1]
    assert s.run("XLEN s") == 3
    assert [each["handle"] for each in s.plans()] == ["night"]
    s.run("DEL s", "SET s x")
    assert "WRONGTYPE" in s.fails("AB.SCHEDULE RUN s night")


# -- again and again --------------------------------------------------------------------------


def test_a_cron_line_comes_at_each_of_its_times(s: Plans) -> None:
    s.run("AB.SCHEDULE s CRON '*/2 * * * *' ID h f v")
    first = s.plans()[0]["at"]
    assert first in (FIRST_MINUTE, FIRST_MINUTE + 60_000)
    for _ in range(60 * 5 * 2):
        s.advance(500)
    times = [int(each.split("-")[0]) for each in s.ids("s")]
    assert [each // 120_000 for each in times] == [first // 120_000 + n for n in range(len(times))]
    assert len(times) == 2 + (first == FIRST_MINUTE)
    assert all(0 <= each % 120_000 <= 500 for each in times)


def test_a_zone_has_its_own_clock(s: Plans) -> None:
    s.run("AB.SCHEDULE s CRON '0 12 * * *' TZ Asia/Kolkata f v")
    assert s.plans()[0]["at"] % (24 * HOUR) == 6 * HOUR + 30 * 60_000


@pytest.mark.parametrize(("missed", "count"), [("", 1), ("MISSED once", 1), ("MISSED skip", 0)])
def test_times_at_which_nobody_was_there(s: Plans, missed: str, count: int) -> None:
    s.run(f"AB.SCHEDULE s CRON '0 * * * *' {missed} f v")
    s.jumps(5 * HOUR + 120_000)
    assert s.run("EXISTS s") * len(s.ids("s")) == count
    (plan,) = s.plans()
    assert plan["at"] > s.clock.us // 1000
    assert plan["at"] % HOUR == 0


def test_all_times_may_be_made_up_for(s: Plans) -> None:
    s.run("AB.SCHEDULE s CRON '0 * * * *' MISSED all f v")
    s.jumps(100 * HOUR)
    assert s.run("XLEN s") == 100
    assert s.plans()[0]["at"] > s.clock.us // 1000


def test_what_is_due_once_is_never_missed(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1h f v")
    s.jumps(500 * HOUR)
    assert s.run("XLEN s") == 1


def test_a_clock_that_is_set_back_repeats_nothing(s: Plans) -> None:
    s.run("AB.SCHEDULE s CRON '* * * * *' f v")
    for _ in range(3):
        s.passes(60_000)
    before = s.run("XLEN s")
    s.advance(-120_000)
    s.passes(119_000)
    assert s.run("XLEN s") == before


# -- what is in the way -----------------------------------------------------------------------


def test_a_key_of_another_type_is_tried_again(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 f v", "SET s x")
    s.passes(5000)
    assert s.run("GET s") == "x"
    lines = s.run("INFO policies").splitlines()
    assert {"scheduled_failed:4", "scheduled_late_ms:4000"} <= set(lines)
    assert len(s.plans()) == 1
    s.run("DEL s")
    s.passes(10_000)
    assert s.run("XLEN s") == 1


def test_what_could_not_be_added_stands_before_what_is_due_later(s: Plans) -> None:
    for handle, delay in ("b", 1000), ("a", 900), ("c", 6500), ("d", 6600):
        s.run(f"AB.SCHEDULE s IN {delay} ID {handle} f v")
    s.run("SET s x")
    s.passes(6000)  # the next look at a and b is at 8000 or later
    assert [row["handle"] for row in s.plans()] == ["a", "b", "c", "d"]
    assert [as_map(row)["handle"] for row in s.run("AB.SCHEDULE LIST s COUNT 2")] == ["a", "b"]
    s.run("AB.SCHEDULE CANCEL s b", "DEL s")
    s.passes(3000)
    assert s.plans() == []
    assert s.run("XLEN s") == 3


def test_an_entry_of_an_older_log_keeps_a_zone_that_is_refused_now(s: Plans) -> None:
    s.run("AB.SCHEDULE s CRON '* * * * *' TZ Etc/UTC ID h f v")
    timetables = s.region.keyspace.databases[0].timetables
    entry = timetables.entries[b"s", b"h"]
    assert entry.recurrence is not None
    entry.recurrence = entry.recurrence._replace(zone=b"Factory")
    s.passes(61_000)
    assert s.run("XLEN s") == 1
    assert s.plans()[0]["at"] == FIRST_MINUTE + 60_000


def test_nothing_is_added_while_memory_is_short(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 f v", "CONFIG SET maxmemory 1", "INFO memory")
    s.passes(3000)
    assert s.run("EXISTS s") == 0
    assert s.run("AB.SCHEDULE CANCEL s nobody") == 0
    assert "OOM" in s.fails("AB.SCHEDULE s IN 1000 f v")
    s.run("CONFIG SET maxmemory 0")
    s.passes(300)
    assert s.run("XLEN s") == 1


def test_nothing_is_added_during_a_pause(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 100 f v", "CLIENT PAUSE 3000 WRITE")
    s.passes(2000)
    assert s.run("EXISTS s") == 0
    s.passes(2000)
    assert s.run("XLEN s") == 1


def test_what_a_sealed_stream_was_to_get_waits(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 f v", "XADD s 1-0 f v", "AB.SEAL s")
    s.passes(3000)
    assert s.run("XLEN s") == 1
    assert len(s.plans()) == 1


# -- the rest ---------------------------------------------------------------------------------


def test_plans_belong_to_the_name(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 f v", "XADD s 1-0 f v", "RENAME s t", "COPY t u", "DEL t")
    assert len(s.plans()) == 1
    assert s.plans("t") == s.plans("u") == []
    s.run("SWAPDB 0 1")
    assert s.plans() == []
    s.run("SWAPDB 0 1")
    s.passes(1200)
    assert s.run("XLEN s") == 1


@pytest.mark.parametrize("flush", ["FLUSHALL", "FLUSHDB"])
def test_a_flush_cancels(s: Plans, flush: str) -> None:
    s.run("AB.SCHEDULE s IN 1000 f v", flush)
    s.passes(1200)
    assert s.run("EXISTS s") == 0


def test_in_transactions_and_scripts(s: Plans) -> None:
    s.run("MULTI", "AB.SCHEDULE s IN 100 ID a f v", "AB.SCHEDULE CANCEL s a")
    assert s.run("EXEC") == ["a", 1]
    call = "return redis.call('AB.SCHEDULE', KEYS[1], 'IN', '100', 'f', 'v')"
    handle = s.do("EVAL", call, 1, "s")
    assert [each["handle"] for each in s.plans()] == [handle.decode()]
    listed = s.do("EVAL", "return redis.call('AB.SCHEDULE', 'LIST', KEYS[1])", 1, "s")
    assert len(listed) == 1
    s.passes(300)
    assert s.run("XLEN s") == 1


def test_a_restart_keeps_them(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 ID a f v", "AB.SCHEDULE s CRON '* * * * *' ID b f v")
    s.run("AB.SCHEDULE t IN 1000 IDMP p i f v", "AB.SCHEDULE s IN 500 ID c f v")
    s.run("AB.SCHEDULE CANCEL s c")
    before = s.plans(), s.plans("t")
    s.run("DEBUG RELOAD")
    assert (s.plans(), s.plans("t")) == before
    s.passes(1200)
    assert s.run("XLEN t") == 1


def test_who_may(s: Plans) -> None:
    s.run("AB.SCHEDULE jobs IN 1h ID h f v")
    s.run("ACL SETUSER ann on nopass ~jobs +ab.schedule|list", "ACL SETUSER bob on nopass ~x +@all")
    s.run("ACL SETUSER eve on nopass %R~jobs +@all")
    ann, bob, eve = s.connect(), s.connect(), s.connect()
    for session, name in ((ann, "ann"), (bob, "bob"), (eve, "eve")):
        s.run(f"AUTH {name} x", session=session)
    assert len(s.run("AB.SCHEDULE LIST jobs", session=ann)) == 1
    for line in (
        "AB.SCHEDULE jobs IN 5 f v",
        "AB.SCHEDULE CANCEL jobs h",
        "AB.SCHEDULE RUN jobs h",
    ):
        assert "NOPERM" in s.fails(line, session=ann)
        assert "NOPERM" in s.fails(line, session=bob)
        assert "NOPERM" in s.fails(line, session=eve)
    assert "NOPERM" in s.fails("AB.SCHEDULE LIST jobs", session=bob)
    assert len(s.run("AB.SCHEDULE LIST jobs", session=eve)) == 1


def test_figures(s: Plans) -> None:
    s.run("AB.SCHEDULE s IN 1000 f v", "AB.SCHEDULE s IN 1h f v", "XADD s 1-0 f v")
    assert as_map(s.run("AB.INFO s"))["scheduled"] == 2
    s.passes(1200)
    lines = s.run("INFO policies").splitlines()
    assert {"scheduled_entries:1", "scheduled_added:1", "scheduled_failed:0"} <= set(lines)
    assert s.region.keyspace.databases[0].timetables.used_bytes > 300
