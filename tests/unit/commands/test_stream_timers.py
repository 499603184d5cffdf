"""Which action moves which time and count (specification §5.7)."""

from __future__ import annotations

import pytest

from tests.support.streams import NOW, Streams

LATER = NOW + 5000

# Consumer c exists since NOW and has 1-0 pending, delivered once at NOW; 2-0 is released, 3-0 is
# new, 4-0 is a ghost of c. Five seconds later the line runs. What then holds of c: seen-time and
# active-time; and of 1-0: delivery time and count.
ROWS = [
    # line                                                      seen   active delivered count
    ("XGROUP CREATECONSUMER s g c",                             NOW,   NOW,   NOW,   1),
    ("XREADGROUP GROUP new c STREAMS s 0",                      NOW,   NOW,   NOW,   1),
    ("XREADGROUP GROUP g c COUNT 1 STREAMS s >",                LATER, LATER, NOW,   1),
    ("XREADGROUP GROUP g c COUNT 1 NOACK STREAMS s >",          LATER, NOW,   NOW,   1),
    ("XREADGROUP GROUP g c STREAMS s 0",                        LATER, NOW,   LATER, 2),
    ("XREADGROUP GROUP g c STREAMS s 9",                        LATER, NOW,   NOW,   1),
    ("XREADGROUP GROUP g c COUNT 2 CLAIM 5000 STREAMS s >",     LATER, LATER, LATER, 2),
    ("XREADGROUP GROUP g c COUNT 2 CLAIM 5000 NOACK STREAMS s >", LATER, LATER, LATER, 2),
    ("XCLAIM s g c 5000 1-0",                                   LATER, LATER, LATER, 2),
    ("XCLAIM s g c 5000 1-0 JUSTID",                            LATER, LATER, LATER, 1),
    ("XCLAIM s g c 5000 1-0 TIME 77 RETRYCOUNT 9",              LATER, LATER, 77,    9),
    ("XCLAIM s g c 5001 1-0",                                   LATER, NOW,   NOW,   1),
    ("XCLAIM s g c 0 4-0",                                      LATER, NOW,   NOW,   1),
    ("XAUTOCLAIM s g c 5000 -",                                 LATER, LATER, LATER, 2),
    ("XAUTOCLAIM s g c 5000 - JUSTID",                          LATER, LATER, LATER, 1),
    ("XAUTOCLAIM s g c 5001 (2-0",                              LATER, NOW,   NOW,   1),
    ("XNACK s g FAIL IDS 1 1-0",                                NOW,   NOW,   0,     1),
    ("XACK s g 2-0",                                            NOW,   NOW,   NOW,   1),
    ("XPENDING s g - + 9 c",                                    NOW,   NOW,   NOW,   1),
    ("XINFO CONSUMERS s g",                                     NOW,   NOW,   NOW,   1),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[str(row[0]) for row in ROWS])
def test_what_an_action_does_to_times_and_counts(row: tuple[str, int, int, int, int]) -> None:
    """§5.7."""
    line, seen, active, delivered, count = row
    s = Streams()
    s.fill("s", "1-0", "2-0", "4-0")
    s.run("XGROUP CREATE s g 0", "XGROUP CREATE s new 0", "XREADGROUP GROUP g c STREAMS s >")
    s.run("XNACK s g FAIL IDS 1 2-0", "XDEL s 4-0")
    s.fill("s", "5-0")
    s.advance(5000)
    s.run(line)
    group = s.full_group()
    consumer = group["consumers"]["c"]
    assert (consumer["seen-time"], consumer["active-time"]) == (seen, active)
    [first] = [entry for entry in group["pending"] if entry[0] == "1-0"]
    assert first[2:] == [delivered, count]


@pytest.mark.parametrize(
    ("line", "active", "pending"),
    [
        ("XGROUP CREATECONSUMER s g d", -1, 0),
        ("XREADGROUP GROUP g d STREAMS s >", LATER, 1),
        ("XREADGROUP GROUP g d NOACK STREAMS s >", -1, 0),
        ("XREADGROUP GROUP g d STREAMS s 0", -1, 0),
        ("XREADGROUP GROUP empty d STREAMS s >", -1, 0),
        ("XCLAIM s g d 0 9-9", -1, 0),
        ("XCLAIM s g d 0 1-0 FORCE", LATER, 1),
        ("XAUTOCLAIM s g d 0 -", -1, 0),
    ],
)
def test_a_consumer_is_seen_when_it_appears_and_active_when_it_gets_something(
    line: str, active: int, pending: int
) -> None:
    """§5.7."""
    s = Streams()
    s.fill("s", "1-0")
    s.run("XGROUP CREATE s g 0", "XGROUP CREATE s empty $")
    s.advance(5000)
    s.run(line)
    consumer = s.consumer("d", group="empty" if " empty " in line else "g")
    assert (consumer["seen-time"], consumer["active-time"]) == (LATER, active)
    assert consumer["pel-count"] == pending


def test_a_released_entry_forced_to_be_pending_has_no_delivery_time() -> None:
    """§5.3, §5.7."""
    s = Streams()
    s.fill("s", "1-0")
    s.run("XGROUP CREATE s g 0", "XNACK s g FAIL IDS 1 1-0 FORCE")
    assert s.full_group()["pending"] == [["1-0", "", 0, 0]]


def test_idle_and_inactive_count_from_seen_and_active_time() -> None:
    """§5.7."""
    s = Streams()
    s.fill("s", "1-0")
    s.run("XGROUP CREATE s g 0", "XGROUP CREATECONSUMER s g b", "XREADGROUP GROUP g c STREAMS s >")
    s.advance(300)
    s.run("XREADGROUP GROUP g c STREAMS s >")
    s.advance(200)
    assert s.run("XINFO CONSUMERS s g") == [
        ["name", "b", "pending", 0, "idle", 500, "inactive", -1],
        ["name", "c", "pending", 1, "idle", 200, "inactive", 500],
    ]


def test_a_clock_that_goes_backwards_makes_nobody_idle_for_a_negative_time() -> None:
    """§5.7: idle = max(0, now - seen-time)."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATECONSUMER s g c")
    s.clock.us -= 9_000_000
    assert s.run("XINFO CONSUMERS s g")[0][5] == 0
