"""Each rule finds what breaks it in a history of a few lines, and nothing in one that is right."""

from __future__ import annotations

import pytest

pytest.importorskip("clingo", reason="clingo is not installed: NO HISTORY IS CHECKED")

from tests.consistency.checking import violations
from tests.consistency.history import Operation

Line = tuple[int, str, object]
"""A process, what it does, and the answer."""


def history(*lines: Line) -> list[Operation]:
    """Operations one after the other."""
    found: list[Operation] = []
    for process, f, value in lines:
        for kind in ("invoke", "ok"):
            number = len(found)
            found.append({
                "index": number, "time": number * 1000, "process": process, "type": kind,
                "f": f, "value": value,
            })  # fmt: skip
    return found


def add(process: int, value: int, stream: str = "s") -> Line:
    return process, "txn", [["append", stream, value]]


def read(process: int, *values: int, stream: str = "s") -> Line:
    return process, "txn", [["r", stream, list(values)]]


def final(region: int, *values: int) -> Line:
    return 90 + region, "final", [region, "s", list(values)]


@pytest.mark.parametrize(
    ("rules", "lines"),
    [
        (set(), [add(1, 1), read(2), read(1, 1), read(2, 1), final(1, 1), final(2, 1)]),
        (set(), [add(1, 1), add(2, 2), read(1, 1), read(2, 2), read(1, 1, 2)]),
        ({"read_your_writes", "write_is_missing"}, [add(1, 1), read(1)]),
        ({"monotonic_reads", "write_is_missing"}, [add(1, 1), read(2, 1), read(2)]),
        ({"write_is_missing"}, [add(1, 1), add(1, 2), read(2, 2)]),
        ({"write_is_missing"}, [add(1, 1), read(2, 1), add(2, 2, "t"), read(3, 2, stream="t"),
                                read(3)]),
        ({"thin_air_read"}, [read(1, 7)]),
        ({"cyclic_causality"}, [read(1, 1), add(1, 1)]),
        ({"wait"}, [add(1, 1), (1, "wait", ["s", 1, 2]), read(2)]),
        (set(), [add(1, 1), (1, "wait", ["s", 1, 1]), read(2)]),
        ({"lost", "regions_differ"}, [add(1, 1), final(1, 1), final(2)]),
        ({"lost"}, [add(1, 1), final(1)]),
        ({"lost"}, [(1, "send", ["s", 1]), final(1)]),
        ({"twice"}, [(1, "send", ["s", 1]), (1, "send", ["s", 1]), final(1, 1, 1)]),
        ({"thin_air"}, [final(1, 1)]),
        ({"delivered_twice"}, [add(1, 1), (2, "deliver", ["s", 1, [1]]),
                               (2, "deliver", ["s", 1, [1]])]),
        (set(), [add(1, 1), (2, "deliver", ["s", 1, [1]]), (3, "deliver", ["s", 2, [1]]),
                 (2, "recover", ["s", 1, [1]])]),
        ({"never_delivered"}, [add(1, 1), (2, "deliver", ["s", 1, []]), final(1, 1)]),
        ({"delivered_from_nowhere"}, [(2, "deliver", ["s", 1, [1]])]),
    ],
)  # fmt: skip
def test_a_rule_finds_what_breaks_it(rules: set[str], lines: list[Line]) -> None:
    found = violations(history(*lines), regions=3)
    assert {each.rule for each in found} == rules


def test_an_operation_without_an_answer_may_have_happened_or_not() -> None:
    unknown = [*history(add(1, 1))][:1]
    assert violations([*unknown, *_later(history(read(2), read(2, 1), final(1, 1)))], 3) == []
    assert violations([*unknown, *_later(history(read(2), final(1)))], 3) == []


def _later(operations: list[Operation]) -> list[Operation]:
    return [{**each, "index": each["index"] + 10} for each in operations]
