"""When a region tells of held tags: in time, once a minute, and of conflicts as they come."""

from __future__ import annotations

from typing import Any

from anabranch.keyspace.conflicts import Conflicts, ResolvedConflict
from anabranch.keyspace.held_tags import HeldTag
from anabranch.node.stability import HeldTagWatch


def test_many_tags_are_told_of_before_any_goes() -> None:
    conflicts, watch = Conflicts(), HeldTagWatch()
    notes: list[tuple[str, Any]] = []

    def look(now_ms: float) -> list[tuple[str, Any]]:
        notes.clear()
        watch.report(conflicts, now_ms, 10, lambda event, **facts: notes.append((event, facts)))
        return list(notes)

    def hold(upto: int) -> None:
        for number in range(len(conflicts) + 1, upto + 1):
            conflicts.hold(HeldTag(1, number, 0, b"k", b"p", b"i", 1, (1, 1), 0, True, {}))

    hold(8)
    assert look(0) == []
    hold(9)
    assert look(1) == [("many_held_tags", {"tags": 9, "most": 10})]
    assert look(2) == []
    assert look(60_001) == [("many_held_tags", {"tags": 9, "most": 10})]
    hold(12)
    conflicts.limit(10)
    assert look(60_002) == [
        ("fewer_held_tags", {"tags": 0, "most": 10}),
        ("held_tags_dropped", {"tags": 12, "most": 10}),
    ]
    conflicts.resolved.append(ResolvedConflict(0, b"k", b"p", b"i", 1 << 64, 2 << 64))
    ((event, facts),) = look(60_003)
    assert event == "idmp_conflict"
    assert (facts["conflicts"], facts["stays"], facts["goes"]) == (1, "1-0", "2-0")
