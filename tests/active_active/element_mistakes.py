"""Seeded mistakes about sets and lists: ``python -m tests.active_active.element_mistakes``.

Each breaks one rule; random histories (:mod:`tests.active_active.elements`) must find it. As a
program this prints the first seed that finds each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.effects import kinds, prepare, streams
from anabranch.effects.prepare import _PREPARE
from anabranch.keyspace.values import DrawOrder
from anabranch.stream import elements as module
from anabranch.stream.elements import Elements
from anabranch.stream.shared import Shared
from tests.active_active.elements import ElementHistory
from tests.active_active.string_mistakes import Patch, main

__all__ = ["MISTAKES"]


def _all(_: Any) -> bool:
    return True


def removals_take_what_they_have_not_seen(patch: Patch) -> None:
    take = Elements.take
    patch.setattr(Elements, "take", lambda self, places, _: take(self, places, _all))


def adding_a_member_again_is_no_change(patch: Patch) -> None:
    def renew(writer: Any, effect: kinds.AddMembers) -> Any:
        value = writer.keyspace.databases[effect.db].values.get(effect.key)
        known = () if value is None else value.members
        effect.members = [each for each in effect.members if each not in known]
        return add(writer, effect) if effect.members else ()

    add = _PREPARE[kinds.AddMembers]
    patch.setitem(_PREPARE, kinds.AddMembers, renew)


def del_removes_unseen_elements(patch: Patch) -> None:
    clear = Elements.clear
    patch.setattr(Elements, "clear", lambda self, _: clear(self, _all))


def del_believes_that_it_saw_everything(patch: Patch) -> None:
    join = Elements.join

    def joined(self: Elements, other: Elements, our: Any, their: Any) -> None:
        newest = dict(self.newest)
        join(self, other, our, their)
        self.newest = newest

    patch.setattr(Elements, "join", joined)


def setting_removes_what_it_has_not_seen(patch: Patch) -> None:
    put = Elements.put

    def put_over(self: Elements, dot: Any, places: Any, items: Any, knows: Any) -> int:
        return put(self, dot, places, items, _all)

    patch.setattr(Elements, "put", put_over)


def the_item_that_came_first_counts(patch: Patch) -> None:
    patch.setattr(module, "by_rank", list)


def items_stand_as_they_came(patch: Patch) -> None:
    def came(self: Elements, *, reverse: bool = False) -> Any:
        found = [puts[0][1] for puts in self.puts.values()]
        return iter(found[::-1] if reverse else found)

    patch.setattr(Elements, "items", came)


def pushes_end_before_the_last_item(patch: Patch) -> None:
    places_at = Elements.places_at

    def before(self: Elements, index: int, *rest: int) -> list[bytes]:
        return places_at(self, index - (1 < index == len(self)), *rest)

    patch.setattr(Elements, "places_at", before)


def ranges_end_before_their_last_place(patch: Patch) -> None:
    span = Elements._take_span

    def shorter(self: Elements, order: Any, low: bytes, high: bytes, knows: Any) -> None:
        span(self, order, low, high if low == high else high[:-1], knows)

    patch.setattr(Elements, "_take_span", shorter)


def full_syncs_bring_back_what_was_taken(patch: Patch) -> None:
    join = Elements.join
    patch.setattr(Elements, "join", lambda self, other, our, their: join(self, other, {}, their))


def full_syncs_drop_what_the_other_side_lacks(patch: Patch) -> None:
    join = Elements.join

    class Everything(dict[int, int]):
        def get(self, *_: Any) -> Any:
            return 1 << 60

    patch.setattr(
        Elements, "join", lambda self, other, our, _: join(self, other, our, Everything())
    )


def snapshots_leave_lists_out(patch: Patch) -> None:
    restored = Elements.restored

    def without(kind: str, rows: Any) -> Elements:
        return restored(kind, {} if kind == "list" else rows)

    patch.setattr(Elements, "restored", without)


def streams_drop_sets(patch: Patch) -> None:
    note = streams.note_hidden

    def drop(keyspace: Any, db: int, key: bytes, shared: Shared, stream: Any) -> None:
        if stream is not None and stream.exists and shared.elements:
            shared.elements = {}
        note(keyspace, db, key, shared, stream)

    patch.setattr(streams, "note_hidden", drop)


def a_list_hides_a_set(patch: Patch) -> None:
    patch.setattr(
        Shared, "small_kinds", property(lambda self: [*sorted(self.elements), *_string(self)])
    )


def _string(shared: Shared) -> list[str]:
    return ["string"] if shared.is_register and shared.has_string else []


def a_new_set_has_the_deadline_of_the_former(patch: Patch) -> None:
    patch.setattr(prepare, "_end_if_empty", lambda *_: ())

    def begin(writer: Any, db: int, key: bytes, data: Any) -> Any:
        return ()

    patch.setattr(prepare, "_begin", begin)


def draws_meet_members_that_are_gone(patch: Patch) -> None:
    patch.setattr(DrawOrder, "remove", lambda self, members: None)


def copies_leave_out_what_is_hidden(patch: Patch) -> None:
    again = prepare._elements_again

    def shown(writer: Any, db: int, key: bytes, members: Any, items: Any) -> Any:
        return again(writer, db, key, members, [] if members else items)

    patch.setattr(prepare, "_elements_again", shown)


MISTAKES: Final[dict[str, Callable[[Patch], None]]] = {
    "SREM and pops take what they have not seen": removals_take_what_they_have_not_seen,
    "SADD of a member that is there changes nothing": adding_a_member_again_is_no_change,
    "DEL removes elements that it has not seen": del_removes_unseen_elements,
    "DEL takes what came by a full sync for seen": del_believes_that_it_saw_everything,
    "LSET removes an item that it has not seen": setting_removes_what_it_has_not_seen,
    "of items set at once the one that came first counts": the_item_that_came_first_counts,
    "items stand in the order of their arrival": items_stand_as_they_came,
    "RPUSH puts items before the last one": pushes_end_before_the_last_item,
    "a pop of several items leaves the last one": ranges_end_before_their_last_place,
    "a full sync brings back what was taken": full_syncs_bring_back_what_was_taken,
    "a full sync drops what the other side lacks": full_syncs_drop_what_the_other_side_lacks,
    "snapshots leave lists out": snapshots_leave_lists_out,
    "a stream drops the set that it meets": streams_drop_sets,
    "a list hides a set": a_list_hides_a_set,
    "a new set has the deadline of the former one": a_new_set_has_the_deadline_of_the_former,
    "draws meet members that are gone": draws_meet_members_that_are_gone,
    "RENAME and COPY leave out what a set hides": copies_leave_out_what_is_hidden,
}


if __name__ == "__main__":
    raise SystemExit(main(MISTAKES, ElementHistory))
