"""XADD IDMP and IDMPAUTO: duplicates, expiry, life cycle (idempotency page §1-§5, §7, §8)."""

from __future__ import annotations

import itertools

import pytest

from anabranch.stream.content_id import content_id
from anabranch.stream.entry_id import MAX_ID, text
from tests.support.streams import INVALID_ID, NOW, WRONGTYPE, Streams

FIELDS = ("idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added",
          "iids-duplicates")  # fmt: skip


def _figures(s: Streams, key: str = "s") -> list[int]:
    """pids-tracked, iids-tracked, iids-added, iids-duplicates."""
    info = s.info(key)
    return [info[name] for name in FIELDS[2:]]


# -- §1 forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("iid", ["*", "-", "+", "IDMP", "123-456", "MAXLEN", "NOMKSTREAM", " "])
def test_an_idempotent_id_may_look_like_anything(iid: str) -> None:
    """§1."""
    s = Streams()
    first = s.do("XADD", "s", "IDMP", "p", iid, "*", "f", "v")
    assert s.do("XADD", "s", "IDMP", "p", iid, "*", "f", "v") == first


def test_an_asterisk_behind_the_producer_is_its_idempotent_id() -> None:
    """§1: what follows is then no ID."""
    assert Streams().fails("XADD s IDMP p1 * f v") == INVALID_ID


def test_ids_are_binary_safe_and_may_be_long() -> None:
    """§1: no length limit."""
    s = Streams()
    pid, iid = b"\x00\r\n" * 400, b"\xff\x00" * 40_000
    first = s.do("XADD", "s", "IDMP", pid, iid, "*", "f", "v")
    assert s.do("XADD", "s", "IDMP", pid, iid + b"x", "*", "f", "v") != first
    assert s.do("XADD", "s", "IDMP", pid, iid, "*", "f", "v") == first


def test_it_combines_with_every_other_option_in_any_order() -> None:
    """§1."""
    options = ["IDMP p i", "NOMKSTREAM", "ACKED", "MAXLEN ~ 100", "LIMIT 5"]
    s = Streams()
    first = s.run("XADD s IDMP p i * f v")
    for order in itertools.permutations(options):
        assert s.run(f"XADD s {' '.join(order)} * f v") == first
    assert s.run("XADD s MINID = 0 IDMPAUTO p DELREF * f v") == f"{NOW}-1"


# -- §2 duplicates ----------------------------------------------------------------------------


def test_a_duplicate_gets_the_original_id_and_adds_nothing() -> None:
    """§2: the original content stays."""
    s = Streams()
    first = s.run("XADD s IDMP p i * f 1")
    s.advance(50)
    assert s.run("XADD s IDMP p i * f 2 g 3") == first
    assert s.run("XRANGE s - +") == [[first, ["f", "1"]]]
    assert _figures(s) == [1, 1, 1, 1]


def test_a_duplicate_does_not_trim() -> None:
    """§2."""
    s = Streams()
    s.count_to("s", 5)
    s.run("XADD s IDMP p i * f v", "XADD s IDMP p i MAXLEN 0 * f v")
    assert s.info()["length"] == 6


def test_another_producer_may_use_the_same_id() -> None:
    """§2."""
    s = Streams()
    assert s.run("XADD s IDMP p i * f v") != s.run("XADD s IDMP q i * f v")
    assert s.run("XADD s IDMP p j * f v") == f"{NOW}-2"
    assert _figures(s) == [2, 3, 3, 0]


def test_streams_do_not_share_producers() -> None:
    """§2: the map is per stream."""
    s = Streams()
    s.run("XADD s IDMP p i * f v", "XADD t IDMP p i * f v")
    assert s.info("t")["length"] == 1
    assert _figures(s, "t") == [1, 1, 1, 0]


def test_duplicates_are_found_inside_one_transaction() -> None:
    """§2."""
    s = Streams()
    s.run("MULTI", "XADD s IDMP p i * f 1", "XADD s IDMP p i * f 2")
    first, second = s.run("EXEC")
    assert first == second
    assert s.info()["length"] == 1


def test_nomkstream_without_the_key_records_nothing() -> None:
    """§2."""
    s = Streams()
    assert s.run("XADD s NOMKSTREAM IDMP p i * f v") is None
    s.run("XADD s IDMP p i * f v")
    assert _figures(s) == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "line", ["XDEL s {}", "XDELEX s IDS 1 {}", "XACKDEL s g IDS 1 {}", "XTRIM s MAXLEN 0"]
)
def test_a_duplicate_of_a_deleted_entry_gets_the_old_id(line: str) -> None:
    """§2, §8: as intended upstream; the map is kept."""
    s = Streams()
    first = s.run("XADD s IDMP p i * f v")
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", line.format(first))
    assert s.info()["length"] == 0
    assert s.run("XADD s IDMP p i * f v") == first
    assert s.info()["length"] == 0


def test_a_duplicate_wins_over_exhausted_ids() -> None:
    """§2: the look-up comes first."""
    s = Streams()
    first = s.run("XADD s IDMP p i * f v")
    s.run(f"XSETID s {text(MAX_ID).decode()}")
    assert s.run("XADD s IDMP p i * f v") == first
    assert s.fails("XADD s IDMP p j * f v").startswith("ERR The stream has exhausted")
    assert _figures(s) == [1, 1, 1, 1]


def test_a_refused_add_leaves_no_empty_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """§5 (#15840): created only when something is stored."""
    from anabranch.commands.stream import add as stream_add

    monkeypatch.setattr(stream_add, "ENTRY_BYTES_MAX", 3000)
    s = Streams()
    s.fill("s", "1-0")
    assert s.fails(f"XADD s IDMP p i * f {'v' * 4000}").endswith("too large to be stored")
    assert _figures(s) == [0, 0, 0, 0]


def test_the_type_is_checked_before_the_look_up() -> None:
    """§2: order of evaluation."""
    s = Streams()
    s.run("SET k v")
    assert s.fails("XADD k IDMP p i * f v") == WRONGTYPE


# -- §3 IDs made from the content -------------------------------------------------------------

VECTORS = [
    ([b"f", b"v"], "6e95729ee727f0814aedffba55730079"),
    ([b"field", b"value"], "626368b66e85051415a2b01bf8e32dc5"),
    ([b"a", b"bc"], "cd716045a670276ba36d448ef5da2ace"),
    ([b"ab", b"c"], "16a40e6f34744cb4db57cd2b7d195a72"),
    ([b"amount", b"100", b"currency", b"USD"], "e11c9a7017ea4839b25824062c8d8c50"),
    ([b"currency", b"USD", b"amount", b"100"], "e11c9a7017ea4839b25824062c8d8c50"),
    ([b"f", b""], "7dc0e33b43cbaa233b7b444e09e18e9c"),
    ([b"f", b"v", b"f", b"v"], "9a79073b2d2a35cba229f103f1b26a64"),
    ([b"f", b"v", b"f", b"v", b"g", b"w"], "5ab1747d82032d5ef6ae2320e21ae9b4"),
    ([b"data", b"x" * 10_000], "55f0675b163024d29912c906531171a1"),
]


@pytest.mark.parametrize(("pairs", "iid"), VECTORS, ids=[iid for _, iid in VECTORS])
def test_the_content_id_vectors(pairs: list[bytes], iid: str) -> None:
    """§3: computed with an independent XXH3; the same bytes as IDMP hit an IDMPAUTO entry."""
    assert content_id(pairs).hex() == iid
    s = Streams()
    first = s.do("XADD", "s", "IDMPAUTO", "p", "*", *pairs)
    assert s.do("XADD", "s", "IDMP", "p", bytes.fromhex(iid), "*", "f", "other") == first


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a 1 b 2", "b 2 a 1", True),
        ("a 1", "a 1", True),
        ("a ''", "a ''", True),
        ("a 1", "b 1", False),
        ("a bc", "ab c", False),
        ("a b", "b a", False),
        ("a 1", "a 1 a 1", False),
        ("a 1 a 1", "b 2 b 2", False),
        ("a 1 b 2", "a 2 b 1", False),
    ],
)
def test_idmpauto_knows_equal_content(one: str, other: str, same: bool) -> None:
    """§3: order does not matter, names do, nothing cancels out."""
    s = Streams()
    first = s.run(f"XADD s IDMPAUTO p * {one}")
    assert (s.run(f"XADD s IDMPAUTO p * {other}") == first) == same


# -- §5 expiry --------------------------------------------------------------------------------


def test_the_oldest_ids_go_when_a_producer_has_too_many() -> None:
    """§5: by insertion; a duplicate does not refresh its place."""
    s = Streams()
    s.run("XADD s IDMP p 0 * f v", "XCFGSET s IDMP-MAXSIZE 3")
    ids = [s.run(f"XADD s IDMP p {iid} * f v") for iid in "abc"]
    assert s.run("XADD s IDMP p a * f v") == ids[0]
    s.run("XADD s IDMP p d * f v")
    assert _figures(s)[:2] == [1, 3]
    assert s.run("XADD s IDMP p b * f v") == ids[1]
    assert s.run("XADD s IDMP p a * f v") not in ids
    s.check()


def test_capacity_is_per_producer() -> None:
    """§4."""
    s = Streams()
    s.run("XADD s * f v", "XCFGSET s IDMP-MAXSIZE 2")
    for pid, iid in itertools.product("pq", "abc"):
        s.run(f"XADD s IDMP {pid} {iid} * f v")
    assert _figures(s) == [2, 4, 6, 0]


def test_an_id_past_its_duration_is_unknown_even_before_it_is_swept() -> None:
    """§5 [R]."""
    s = Streams()
    first = s.run("XADD s IDMP p i * f v")
    s.clock.us += 99_999_000
    assert s.run("XADD s IDMP p i * f v") == first
    s.clock.us += 1_000
    assert s.run("XADD s IDMP p i * f v") != first
    assert _figures(s) == [1, 1, 2, 1]
    s.check()


def test_old_ids_are_swept_and_empty_producers_with_them() -> None:
    """§5: from the oldest end, once per second."""
    s = Streams()
    s.run("XADD s IDMP p a * f v", "XADD s IDMP q a * f v")
    s.advance(60_000)
    s.run("XADD s IDMP p b * f v")
    s.advance(39_000)
    assert _figures(s)[:2] == [2, 3]
    s.advance(2_000)
    assert _figures(s) == [1, 1, 3, 0]
    s.advance(60_000)
    assert _figures(s) == [0, 0, 3, 0]
    s.check()


def test_age_counts_from_the_insertion_not_from_the_entry() -> None:
    """§5 (#15836): IDs in the future are forgotten in time."""
    s = Streams()
    s.run("XADD s 9999999999999-0 f v", "XADD s IDMP p i * f v")
    s.advance(101_000)
    assert _figures(s)[:2] == [0, 0]


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (["RENAME s t"], "t"),
        (["COPY s t", "DEL s"], "t"),
        (["MOVE s 3", "SELECT 3"], "s"),
        (["SWAPDB 0 3", "SELECT 3"], "s"),
    ],
)
def test_old_ids_are_swept_wherever_the_stream_goes(lines: list[str], key: str) -> None:
    """§5."""
    s = Streams()
    first = s.run("XADD s IDMP p i * f v")
    s.run(*lines)
    assert s.run(f"XADD {key} IDMP p i * f v") == first
    s.advance(101_000)
    assert _figures(s, key)[:2] == [0, 0]


# -- §7, §8 figures and life cycle ------------------------------------------------------------


def test_the_figures_are_always_there() -> None:
    """§7."""
    s = Streams()
    s.fill("s", "1-0")
    assert [s.info()[name] for name in FIELDS] == [100, 100, 0, 0, 0, 0]


def test_a_copy_is_complete_and_independent() -> None:
    """§8: settings, maps, both counters."""
    s = Streams()
    s.run("XADD s * f v", "XCFGSET s IDMP-DURATION 50 IDMP-MAXSIZE 5", "XADD s IDMP p i * f v")
    first = s.run("XADD s IDMP p i * f v")
    s.run("COPY s t")
    assert [s.info("t")[name] for name in FIELDS] == [50, 5, 1, 1, 1, 1]
    assert s.run("XADD t IDMP p i * f v") == first
    s.run("XADD t IDMP q i * f v")
    assert _figures(s) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "lines",
    [["DEL s"], ["UNLINK s"], ["FLUSHDB"], ["FLUSHALL"], ["PEXPIREAT s 1"], ["SET s v", "DEL s"],
     ["XADD t * f v", "RENAME t s"], ["XADD t * f v", "COPY t s REPLACE"]],
)  # fmt: skip
def test_what_ends_a_stream_forgets_its_producers(lines: list[str]) -> None:
    """§8: a new one starts with the server's defaults."""
    s = Streams()
    s.run("XADD s * f v", "XCFGSET s IDMP-DURATION 50 IDMP-MAXSIZE 5", "XADD s IDMP p i * f v")
    s.run(*lines, "XADD s NOMKSTREAM * f v", "XADD s * f v")
    assert [s.info()[name] for name in FIELDS] == [100, 100, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "line",
    [
        "XSETID s 99999999999999-0", "XTRIM s MAXLEN 0", "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c NOACK STREAMS s >", "XGROUP DESTROY s g",
    ],
)  # fmt: skip
def test_other_commands_have_no_effect_on_producers(line: str) -> None:
    """§8."""
    s = Streams()
    s.run("XADD s IDMP p i * f v", "XGROUP CREATE s g 0")
    s.shows(line)
    assert _figures(s) == [1, 1, 1, 0]


def test_dump_and_restore_carry_producers_and_settings() -> None:
    """§8."""
    s = Streams()
    s.run("XADD s * f v", "XCFGSET s IDMP-DURATION 50 IDMP-MAXSIZE 5")
    first = s.run("XADD s IDMP p i * f v")
    s.run("XADD s IDMP p i * f v")
    s.do("RESTORE", "t", 0, s.do("DUMP", "s"))
    assert [s.info("t")[name] for name in FIELDS] == [50, 5, 1, 1, 1, 1]
    assert s.run("XADD t IDMP p i * f v") == first


def test_defaults_are_copied_into_a_stream_when_it_is_created() -> None:
    """§4: later changes do not touch it."""
    s = Streams()
    s.run("CONFIG SET stream-idmp-duration 7 stream-idmp-maxsize 8")
    s.fill("s", "1-0")
    s.run("XGROUP CREATE t g 0 MKSTREAM")
    s.run("CONFIG SET stream-idmp-duration 9 stream-idmp-maxsize 9")
    for key in ("s", "t"):
        assert [s.info(key)[name] for name in FIELDS[:2]] == [7, 8]


@pytest.mark.parametrize(
    ("name", "top"), [("stream-idmp-duration", 86400), ("stream-idmp-maxsize", 10000)]
)
@pytest.mark.parametrize("beyond", [0, -1, None])
def test_the_range_of_the_defaults(name: str, top: int, beyond: int | None) -> None:
    """§4."""
    s = Streams()
    value = top + 1 if beyond is None else beyond
    assert s.fails(f"CONFIG SET {name} {value}") == (
        f"ERR CONFIG SET failed (possibly related to argument '{name}') - argument must be "
        f"between 1 and {top} inclusive"
    )
    s.run(f"CONFIG SET {name} {top}", f"CONFIG SET {name} 1")
