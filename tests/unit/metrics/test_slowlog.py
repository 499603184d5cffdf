"""The slow log keeps the latest, cut to a bounded size."""

from __future__ import annotations

from types import SimpleNamespace

from anabranch.metrics.slowlog import NEVER_NS, SlowLog

ME = SimpleNamespace(address="1.2.3.4:5", name=b"me")


def test_newest_first_and_never_more_than_allowed():
    log = SlowLog(max_len=2)
    for number in range(3):
        log.record(100 + number, (number * 1000, number), [b"PING"], ME)
    assert [entry.id for entry in log.entries] == [2, 1]
    assert log.entries[0] == (2, 102, 2, [b"PING"], "1.2.3.4:5", b"me", 1, 0)


def test_ids_go_on_after_a_reset():
    log = SlowLog()
    log.record(1, (1, 1), [b"PING"], ME)
    log.reset()
    log.record(1, (1, 1), [b"PING"], ME)
    assert [entry.id for entry in log.entries] == [1]


def test_a_length_of_nothing_keeps_nothing():
    log = SlowLog(max_len=0)
    log.record(1, (1, 1), [b"PING"], ME)
    assert not log.entries


def test_many_arguments_are_counted_rather_than_kept():
    log = SlowLog()
    log.record(1, (1, 1), [b"%d" % n for n in range(32)], ME)
    assert log.entries[0].args == [b"%d" % n for n in range(32)]
    log.record(1, (1, 1), [b"%d" % n for n in range(37)], ME)
    assert log.entries[0].args == [*[b"%d" % n for n in range(31)], b"... (6 more arguments)"]
    assert log.entries[0].args_count == 37


def test_long_arguments_are_cut():
    log = SlowLog()
    log.record(1, (1, 1), [b"x" * 128, b"x" * 160], ME)
    assert log.entries[0].args == [b"x" * 128, b"x" * 128 + b"... (32 more bytes)"]


def test_thresholds():
    log = SlowLog()
    assert log.threshold_ns == 10_000_000
    log.set_threshold_us(0)
    assert log.threshold_ns == 0
    log.set_threshold_us(-1)
    assert log.threshold_ns == NEVER_NS


def test_a_long_client_name_is_cut_like_an_argument() -> None:
    log = SlowLog()
    for _ in range(1000):
        log.record(1, (1, 1), [b"PING"], SimpleNamespace(address="", name=b"n" * 5_000_000))
    assert log.entries[0].client_name == b"n" * 128 + b"... (4999872 more bytes)"
    assert log.used_bytes < 128 * 1000


def test_the_memory_of_the_entries_is_a_running_sum() -> None:
    log = SlowLog(max_len=5)
    log.record(1, (1, 1), [b"PING", b"x" * 100], ME)
    one = log.used_bytes
    assert one > 200
    for _ in range(10):
        log.record(1, (1, 1), [b"PING", b"x" * 100], ME)
    assert log.used_bytes == 5 * one
    log.max_len = 0
    log.record(1, (1, 1), [b"PING"], ME)
    assert log.used_bytes == 0
