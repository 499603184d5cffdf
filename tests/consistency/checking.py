"""From a history to facts, and the facts to clingo with the rules: which rules are broken?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import clingo

from tests.consistency.history import Operation, pairs

RULES = Path(__file__).with_name("rules.lp")


@dataclass(frozen=True, order=True)
class Violation:
    """What is broken, the operations or regions that show it, and the value."""

    rule: str
    one: str
    other: str
    value: str


def violations(operations: Iterable[Operation], regions: int) -> list[Violation]:
    """All that the rules find; nothing if the history is as promised."""
    control = clingo.Control(["--warn=none"])
    control.load(str(RULES))
    control.add("base", [], "\n".join(facts(list(operations), regions)))
    control.ground([("base", [])])
    found: list[Violation] = []
    control.solve(on_model=lambda model: found.extend(_read(model)))
    return sorted(found)


def _read(model: clingo.Model) -> Iterator[Violation]:
    for symbol in model.symbols(shown=True):
        rule, one, other, value = map(str, symbol.arguments)
        yield Violation(rule, one, other, value)


def facts(operations: list[Operation], regions: int) -> Iterator[str]:
    """The facts that ``rules.lp`` lists."""
    positions: Counter[int] = Counter()
    delivered: Counter[tuple[int, str, object]] = Counter()
    handed: set[tuple[str, object]] = set()
    first = operations[0]["time"]
    for start, end in pairs(operations):
        index, f = start["index"], start["f"]
        is_known = end is not None and end["type"] == "ok"
        value = end["value"] if end is not None and is_known else start["value"]
        if f == "txn":
            if end is not None and end["type"] == "fail":
                continue
            positions[start["process"]] += 1
            yield f"op({index},{start['process']},{positions[start['process']]})."
            yield f"starts({index},{_us(start, first)})."
            yield from _transaction(index, value, is_known)
        elif f == "send":
            yield f"sent({_terms(*value)})."
            if is_known:
                yield f"confirmed({_terms(*value)})."
        elif f == "wait" and is_known and end is not None and value[2] >= regions - 1:
            yield f"waited({index},{_terms(*value[:2])},{_us(end, first)})."
        elif f in ("deliver", "recover") and is_known:
            stream, region, values = value
            handed.update((stream, each) for each in values)
            if f == "deliver":
                delivered.update((region, stream, each) for each in values)
                yield f"queue({_terms(stream)})."
        elif f == "final":
            region, stream, values = value
            yield f"region({region})."
            for each, count in Counter(values).items():
                yield f"final({region},{_terms(stream, each)},{count})."
    for (region, stream, each), count in delivered.items():
        yield f"delivered({region},{_terms(stream, each)},{count})."
    for stream, each in handed:
        yield f"handed({_terms(stream, each)})."
    for predicate, arity in NEEDED.items():  # so that a history without them is no error
        yield f"#defined {predicate}/{arity}."


NEEDED = {
    "op": 3, "write": 3, "acked": 1, "read": 2, "saw": 3, "starts": 2, "waited": 4, "sent": 2,
    "confirmed": 2, "delivered": 4, "handed": 2, "region": 1, "final": 4, "queue": 1,
}  # fmt: skip


def _transaction(index: int, value: list[list[object]], is_known: bool) -> Iterator[str]:
    for what, stream, arguments in value:
        if what == "append":
            yield f"write({index},{_terms(stream, arguments)})."
            if is_known:
                yield f"acked({index})."
        elif is_known:
            yield f"read({index},{_terms(stream)})."
            assert isinstance(arguments, list)
            for each in arguments:
                yield f"saw({index},{_terms(stream, each)})."


def _us(operation: Operation, first: int) -> int:
    """Microseconds: clingo counts with 32 bits. Rounded to earlier for ends and starts alike."""
    return int(operation["time"] - first) // 1000


def _terms(*values: object) -> str:
    return ",".join(str(each) if isinstance(each, int) else json.dumps(each) for each in values)
