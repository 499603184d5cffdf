"""Seeded mistakes about strings and counters: ``python -m tests.active_active.string_mistakes``.

Each breaks one rule; random histories (:mod:`tests.active_active.strings`) must find it. As a
program this prints the first seed that finds each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from anabranch.effects import kinds, prepare, streams
from anabranch.effects.apply import _APPLY, EFFECTS
from anabranch.stream import register
from anabranch.stream.frozen import SHARED
from anabranch.stream.register import Count
from anabranch.stream.shared import Shared
from anabranch.stream.stream import Stream
from tests.active_active.histories import History, say
from tests.active_active.strings import StringHistory

__all__ = ["MISTAKES", "SEEDS", "first_seed"]

Patch = pytest.MonkeyPatch

SEEDS: Final = 40
"""So many seeds find each of them."""


def last_write_wins(patch: Patch) -> None:
    patch.setattr(register, "winner", lambda writes: next(reversed(list(writes)), None))


def lowest_stamp_wins(patch: Patch) -> None:
    def lowest(writes: register.Writes) -> tuple[int, int] | None:
        return min(writes, key=lambda dot: (writes[dot].stamp_ms, dot), default=None)

    patch.setattr(register, "winner", lowest)


def set_removes_unseen_increments(patch: Patch) -> None:
    patch.setattr(register, "cut", lambda counts, cuts: counts.clear())


def del_removes_unseen_writes(patch: Patch) -> None:
    clear = Shared.clear

    def clear_all(self: Shared, covered: Any) -> None:
        clear(self, covered)
        self.writes = {}

    patch.setattr(Shared, "clear", clear_all)


def del_keeps_increments(patch: Patch) -> None:
    delete = EFFECTS[kinds.Delete].apply

    def kept(keyspace: Any, effect: kinds.Delete) -> None:
        effect.cuts = []
        delete(keyspace, effect)

    patch.setitem(_APPLY, kinds.Delete, kept)


def cuts_forgotten_at_once(patch: Patch) -> None:
    cut = Shared.cut

    def cut_and_forget(self: Shared, cuts: Any) -> None:
        cut(self, cuts)
        counts = register.read_counts(self.counts)
        self.counts = register.pack_counts(
            {each: row for each, row in counts.items() if row.is_alive}
        )

    patch.setattr(Shared, "cut", cut_and_forget)


def totals_begin_anew(patch: Patch) -> None:
    patch.setattr(prepare, "read_counts", lambda packed: {})


def joins_forget_cuts(patch: Patch) -> None:
    join = register.join_counts

    def joined(ours: Any, theirs: Any, our: Any, their: Any) -> Any:
        uncut = {each: row._replace(cut_number=0, cut_total=0) for each, row in theirs.items()}
        return join(ours, uncut, our, their)

    patch.setattr(register, "join_counts", joined)


def joins_bring_back_increments(patch: Patch) -> None:
    def joined(ours: dict[int, Count], theirs: dict[int, Count], *_: Any) -> dict[int, Count]:
        return {**theirs, **ours}

    patch.setattr(register, "join_counts", joined)


def expire_changes_unseen_writes(patch: Patch) -> None:
    set_deadline = register.set_deadline
    patch.setattr(
        register,
        "set_deadline",
        lambda writes, dot, at_ms, covered: set_deadline(writes, dot, at_ms, lambda _: True),
    )


def deadline_of_any_write(patch: Patch) -> None:
    deadline_of = register.deadline_of

    def of_any(writes: Any, counts: Any, of_key: Any) -> int | None:
        times = [at for write in writes.values() for at in write.deadlines.values()]
        return register.latest(times) if times else deadline_of(writes, counts, of_key)

    patch.setattr(register, "deadline_of", of_any)


def streams_drop_strings(patch: Patch) -> None:
    note = streams.note_hidden

    def drop(keyspace: Any, db: int, key: bytes, shared: Shared, stream: Stream | None) -> None:
        if stream is not None and stream.exists and shared.is_register:
            shared.writes = {}
        note(keyspace, db, key, shared, stream)

    patch.setattr(streams, "note_hidden", drop)


def strings_not_in_snapshots(patch: Patch) -> None:
    writes = list(SHARED._writes)
    writes[list(SHARED._forms).index("writes")] = lambda _: []
    patch.setattr(SHARED, "_writes", writes)


def set_keeps_the_deadline(patch: Patch) -> None:
    write = Shared.write

    def kept(self: Shared, dot: Any, given: register.Write, covered: Any) -> None:
        before = [at for each in self.writes.values() for at in each.deadlines.values()]
        if before and not given.deadlines:
            given = given._replace(deadlines={dot: before[-1]})
        write(self, dot, given, covered)

    patch.setattr(Shared, "write", kept)


MISTAKES: Final[dict[str, Callable[[Patch], None]]] = {
    "the write that arrives last counts": last_write_wins,
    "the write with the lowest stamp counts": lowest_stamp_wins,
    "SET removes increments that it has not seen": set_removes_unseen_increments,
    "DEL removes writes that it has not seen": del_removes_unseen_writes,
    "DEL keeps increments that it has seen": del_keeps_increments,
    "what was seen of increments is forgotten at once": cuts_forgotten_at_once,
    "each increment begins a new total": totals_begin_anew,
    "a full sync forgets what was seen of increments": joins_forget_cuts,
    "a full sync brings back increments": joins_bring_back_increments,
    "EXPIRE changes writes that it has not seen": expire_changes_unseen_writes,
    "the deadline of another write counts": deadline_of_any_write,
    "a stream drops the string that it meets": streams_drop_strings,
    "snapshots leave writes out": strings_not_in_snapshots,
    "SET keeps the deadline": set_keeps_the_deadline,
}


def first_seed(
    build_in: Callable[[Patch], None],
    begin_with: int = 1,
    history: type[History] = StringHistory,
) -> int | None:
    """The first seed that goes wrong with a mistake; None if none of :data:`SEEDS` does."""
    for seed in (begin_with, *range(1, SEEDS + 1)):
        with pytest.MonkeyPatch.context() as patch:
            build_in(patch)
            if _goes_wrong(history, seed):
                return seed
    return None


def _goes_wrong(history: type[History], seed: int) -> bool:
    try:
        history(seed).run()
    except Exception:
        return True
    return False


def main(
    mistakes: dict[str, Callable[[Patch], None]], history: type[History] = StringHistory
) -> int:
    """Find all of them."""
    missed = 0
    for name, build_in in mistakes.items():
        seed = first_seed(build_in, 1, history)
        missed += seed is None
        say(f"| {name} | {'**not found**' if seed is None else seed} |")
    return min(missed, 1)


if __name__ == "__main__":
    raise SystemExit(main(MISTAKES))
