"""XDEL, XDELEX, XACKDEL and the reference policies (specification §3.4-§3.7)."""

from __future__ import annotations

import pytest

from anabranch.commands.stream.options import ids_block
from anabranch.errors import CommandError
from tests.support.streams import INVALID_ID, SYNTAX, WRONGTYPE, Streams

NOT_POSITIVE = "ERR Number of IDs must be a positive integer"
TOO_FEW = "ERR The `numids` parameter must match the number of arguments"

BOTH_COMMANDS = pytest.mark.parametrize("begin", ["XDELEX s", "XACKDEL s g"])


def _read(*groups: str, read: int = 3) -> Streams:
    """Entries 1-0 to 5-0; each group has read the first ``read``."""
    s = Streams()
    s.count_to("s", 5)
    for group in groups:
        s.run(f"XGROUP CREATE s {group} 0")
        if read:
            s.run(f"XREADGROUP GROUP {group} c COUNT {read} STREAMS s >")
    return s


def _pending_ids(s: Streams, group: str) -> list[str]:
    return [row[0] for row in s.pending(group=group)]


# -- XDEL -------------------------------------------------------------------------------------


def test_xdel_counts_what_it_deleted() -> None:
    """§3.5: duplicates count once."""
    s = _read()
    assert s.run("XDEL s 2-0 9-0 2-0 4") == 2
    assert s.ids("s") == ["1-0", "3-0", "5-0"]
    assert s.run("XDEL s 2-0") == 0


def test_xdel_of_a_missing_key_does_not_look_at_the_ids() -> None:
    """§3.5."""
    assert Streams().run("XDEL missing no-id") == 0


def test_xdel_keeps_pending_entries() -> None:
    """§3.5: like KEEPREF."""
    s = _read("g")
    s.run("XDEL s 1-0 2-0")
    assert _pending_ids(s, "g") == ["1-0", "2-0", "3-0"]


@pytest.mark.parametrize(
    ("line", "max_deleted"),
    [
        ("XDEL s 2-0 4-0 3-0 9-0", "4-0"),
        ("XDELEX s IDS 3 4-0 2-0 9-0", "4-0"),
        ("XACKDEL s g IDS 3 3-0 2-0 9-0", "3-0"),
        ("XDEL s 9-0", "0-0"),
        ("XTRIM s MAXLEN 1", "0-0"),
        ("XTRIM s MAXLEN 1 DELREF", "0-0"),
        ("XADD s MAXLEN 1 9-0 f v", "0-0"),
    ],
)
def test_the_greatest_id_that_was_really_deleted_is_remembered(line: str, max_deleted: str) -> None:
    """§3.5, counters §1: trimming does not count."""
    s = _read("g")
    s.run(line)
    assert s.info()["max-deleted-entry-id"] == max_deleted


def test_the_remembered_id_never_falls() -> None:
    """§3.5."""
    s = _read()
    s.run("XDEL s 4-0", "XDEL s 2-0")
    assert s.info()["max-deleted-entry-id"] == "4-0"


# -- the options of XDELEX and XACKDEL --------------------------------------------------------


@BOTH_COMMANDS
@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("IDS 0 1-0", NOT_POSITIVE),
        ("IDS -1 1-0", NOT_POSITIVE),
        ("IDS x 1-0", NOT_POSITIVE),
        ("IDS 2 1-0", TOO_FEW),
        ("KEEPREF IDS 1", TOO_FEW),
        ("IDS 3 1-0 2-0", TOO_FEW),
        ("IDS 1 1-0 2-0", SYNTAX),
        ("IDS 1 1-0 KEEPREF DELREF", SYNTAX),
        ("KEEPREF KEEPREF IDS 1 1-0", SYNTAX),
        ("IDS 1 1-0 IDS", SYNTAX),
        ("IDS 1 1-0 WHAT", SYNTAX),
        ("WHAT IDS 1 1-0", SYNTAX),
        ("KEEPREF DELREF ACKED", SYNTAX),
        ("IDS 1 bad", INVALID_ID),
        ("IDS 2 1-0 bad", INVALID_ID),
        ("IDS 1 -", INVALID_ID),
    ],
)
def test_wrong_options_are_refused(begin: str, rest: str, error: str) -> None:
    """§3.6, §3.7."""
    s = _read("g")
    assert s.fails(f"{begin} {rest}") == error
    assert s.run("XLEN s") == 5


def test_ids_are_required() -> None:
    """§3.6: the arity does not let such a request through today."""
    with pytest.raises(CommandError) as refusal:
        ids_block([b"XDELEX", b"s", b"ACKED"], 2)
    assert refusal.value.text == b"ERR IDS option is required"


@BOTH_COMMANDS
def test_policy_and_ids_may_come_in_either_order(begin: str) -> None:
    """§3.6."""
    for rest in ("KEEPREF IDS 1 1-0", "IDS 1 1-0 KEEPREF", "IDS 1 1-0"):
        assert _read("g").run(f"{begin} {rest}") == [1]


@BOTH_COMMANDS
def test_of_two_blocks_of_ids_the_last_wins(begin: str) -> None:
    """§3.6 [Q]."""
    s = _read("g")
    assert s.run(f"{begin} IDS 1 1-0 IDS 2 2-0 3-0") == [1, 1]
    assert s.ids("s") == ["1-0", "4-0", "5-0"]


@BOTH_COMMANDS
def test_without_the_key_every_id_is_missing_whatever_it_is(begin: str) -> None:
    """§3.6, §3.7: not validated; but the options are."""
    assert Streams().run(f"{begin} IDS 3 1-0 bad -") == [-1, -1, -1]
    assert Streams().fails(f"{begin} IDS 0 bad") == NOT_POSITIVE


def test_xackdel_without_the_group_answers_minus_one() -> None:
    """§3.7: not validated either."""
    assert _read().run("XACKDEL s nobody IDS 2 1-0 bad") == [-1, -1]


@pytest.mark.parametrize("line", ["XDELEX k what ever it", "XACKDEL k g what ever it"])
def test_the_type_is_checked_before_the_options(line: str) -> None:
    """§3.6."""
    s = Streams()
    s.run("SET k v")
    assert s.fails(line) == WRONGTYPE


# -- XDELEX -----------------------------------------------------------------------------------


def test_xdelex_keepref_deletes_and_leaves_ghosts() -> None:
    """§3.4, §3.6."""
    for policy in ("", "KEEPREF "):
        s = _read("g", "h")
        assert s.run(f"XDELEX s {policy}IDS 4 1-0 9-0 5-0 1-0") == [1, -1, 1, -1]
        assert s.ids("s") == ["2-0", "3-0", "4-0"]
        assert _pending_ids(s, "g") == _pending_ids(s, "h") == ["1-0", "2-0", "3-0"]


def test_xdelex_delref_deletes_from_every_group() -> None:
    """§3.4, §3.6: owned and unowned."""
    s = _read("g", "h")
    s.run("XNACK s h FAIL IDS 1 1-0")
    assert s.run("XDELEX s DELREF IDS 3 1-0 2-0 5-0") == [1, 1, 1]
    assert _pending_ids(s, "g") == _pending_ids(s, "h") == ["3-0"]
    assert s.consumer("c")["pel-count"] == 1
    assert s.full_group(name="h")["nacked-count"] == 0
    s.check()


def test_xdelex_delref_purges_the_references_of_an_id_that_is_gone() -> None:
    """§3.6 [Q]: the answer is -1 nevertheless."""
    s = _read("g", "h")
    s.run("XDEL s 2-0")
    assert s.run("XDELEX s DELREF IDS 2 2-0 9-0") == [-1, -1]
    assert _pending_ids(s, "g") == _pending_ids(s, "h") == ["1-0", "3-0"]


def test_xdelex_acked_deletes_what_no_group_needs() -> None:
    """§3.4, §3.6."""
    s = _read("g", "h")
    s.run("XACK s g 1-0 2-0", "XACK s h 1-0")
    assert s.run("XDELEX s ACKED IDS 4 1-0 2-0 3-0 4-0") == [1, 2, 2, 2]
    assert s.ids("s") == ["2-0", "3-0", "4-0", "5-0"]


def test_xdelex_acked_counts_released_entries_as_referenced() -> None:
    """§3.4: pending, owned or unowned."""
    s = _read("g")
    s.run("XNACK s g FAIL IDS 1 1-0")
    assert s.run("XDELEX s ACKED IDS 1 1-0") == [2]


def test_xdelex_acked_looks_for_references_first() -> None:
    """§3.6 [Q]: a missing ID beyond a group's last-delivered-id is 2, not -1."""
    s = _read("g")
    s.run("XACK s g 1-0", "XDEL s 4-0")
    assert s.run("XDELEX s ACKED IDS 4 4-0 9-0 1-0 1-0") == [2, 2, 1, -1]


def test_entries_read_with_noack_count_as_acknowledged() -> None:
    """§3.4."""
    s = _read("g", read=0)
    s.run("XREADGROUP GROUP g c COUNT 2 NOACK STREAMS s >")
    assert s.run("XDELEX s ACKED IDS 3 1-0 2-0 3-0") == [1, 1, 2]


def test_without_groups_acked_deletes_everything() -> None:
    """§3.4."""
    assert _read().run("XDELEX s ACKED IDS 3 1-0 5-0 9-0") == [1, 1, -1]


def test_the_slowest_group_decides_what_is_acked() -> None:
    """§3.4: the smallest last-delivered-id of all groups."""
    s = _read("g", read=5)
    s.run("XACK s g 1-0 2-0 3-0 4-0 5-0", "XGROUP CREATE s slow 2")
    assert s.run("XDELEX s ACKED IDS 3 2-0 3-0 5-0") == [1, 2, 2]


# -- XACKDEL ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["KEEPREF", "DELREF", "ACKED"])
def test_xackdel_answers_minus_one_for_what_is_not_pending(policy: str) -> None:
    """§3.7: even if the entry exists."""
    s = _read("g")
    assert s.run(f"XACKDEL s g {policy} IDS 3 4-0 9-0 1-0") == [-1, -1, 1]
    assert "4-0" in s.ids("s")


@pytest.mark.parametrize(
    ("policy", "codes", "left", "others"),
    [
        ("KEEPREF", [1, 1], ["3-0", "4-0", "5-0"], ["1-0", "2-0", "3-0"]),
        ("DELREF", [1, 1], ["3-0", "4-0", "5-0"], ["3-0"]),
        ("ACKED", [2, 2], ["1-0", "2-0", "3-0", "4-0", "5-0"], ["1-0", "2-0", "3-0"]),
    ],
)
def test_xackdel_acknowledges_and_then_follows_the_policy(
    policy: str, codes: list[int], left: list[str], others: list[str]
) -> None:
    """§3.7, with another group that has the entries pending."""
    s = _read("g", "h")
    assert s.run(f"XACKDEL s g {policy} IDS 2 1-0 2-0") == codes
    assert s.ids("s") == left
    assert _pending_ids(s, "g") == ["3-0"]
    assert _pending_ids(s, "h") == others
    assert s.consumer("c")["pel-count"] == 1


def test_xackdel_acked_deletes_when_the_last_group_is_done() -> None:
    """§3.7."""
    s = _read("g", "h")
    assert s.run("XACKDEL s g ACKED IDS 1 1-0") == [2]
    assert s.run("XACKDEL s h ACKED IDS 1 1-0") == [1]
    assert "1-0" not in s.ids("s")


@pytest.mark.parametrize("policy", ["KEEPREF", "DELREF", "ACKED"])
def test_xackdel_of_an_entry_already_deleted_answers_one(policy: str) -> None:
    """§3.7."""
    s = _read("g")
    s.run("XDEL s 1-0")
    assert s.run(f"XACKDEL s g {policy} IDS 2 1-0 1-0") == [1, -1]
    assert _pending_ids(s, "g") == ["2-0", "3-0"]


def test_xackdel_delref_purges_other_groups_even_when_the_entry_is_gone() -> None:
    """§3.7."""
    s = _read("g", "h")
    s.run("XDEL s 1-0")
    assert s.run("XACKDEL s g DELREF IDS 1 1-0") == [1]
    assert _pending_ids(s, "h") == ["2-0", "3-0"]


def test_xackdel_takes_released_entries() -> None:
    """§3.7: in this group's PEL, owned or not."""
    s = _read("g")
    s.run("XNACK s g FAIL IDS 1 1-0")
    assert s.run("XACKDEL s g IDS 1 1-0") == [1]
    assert s.full_group()["nacked-count"] == 0
    s.check()
