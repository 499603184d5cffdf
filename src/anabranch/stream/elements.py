"""The elements of a key that several regions change: the members of a set, the items of a list.

An element stands at a *place*. The place of a member is the member itself. The place of an item is
made when it is pushed, between those of its neighbours: bytes that sort as the items do, so there
is one order, which is the same in every region. What stands at a place has the dot of the effect
that put it there. To put something there replaces what the effect had seen at this place; to take
removes what it had seen. Nothing is left of what was taken: the version vector tells that.

A place consists of *levels*. Level by level it says: a coarse rank, who has chosen it, and the
number of its effect, negative for what was put before something of its own. So what one region
pushes, one after the other, has one rank, and pushes of several regions do not mix.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, repeat
from operator import countOf, indexOf, itemgetter
from typing import Any, Final

import msgspec
from sortedcontainers import SortedList
from xxhash import xxh3_128_intdigest

from anabranch.stream.register import Dot

SET: Final = "set"
LIST: Final = "list"
KINDS: Final = (SET, LIST)

Put = tuple[Dot, bytes]
"""What stands at a place: the effect that put it there, and the item; nothing for a member."""

Puts = tuple[Put, ...]
"""Several, if regions put something there at once; the first counts, and clients see it."""

Covered = Callable[[Dot], bool]
Vector = Mapping[int, int]

_LEVEL: Final = struct.Struct(">QBIQI")  # rank, replica ID (40 bits), number, index
PLACE_BYTES_MAX: Final = 64 * _LEVEL.size
"""A list whose places would become longer is written again, with short places."""

_UPTO_NUMBER: Final = _LEVEL.size - 4
_ZERO: Final = 1 << 63
"""Ranks and numbers may be negative, so this is added."""
_RANK_MAX: Final = 1 << 62
_END: Final = b"\xff"
"""Above all places."""
_MODULUS: Final = 1 << 128
_first: Final = itemgetter(0)
_item: Final = itemgetter(1)

PLACES_A_STEP: Final = 1000
"""So many places are written, read and checked at a time."""


def by_rank(puts: Puts) -> list[Put]:
    """What stands at one place; that of the greatest region is the first, and counts."""
    return sorted(puts, key=lambda put: (put[0][0] & 0xFF, put[0]), reverse=True)


class Elements:
    """The members of a set, or the items of a list."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.puts: dict[bytes, Puts] = {}
        """By place."""
        self.order: SortedList[bytes] | None = SortedList() if kind == LIST else None
        """The places of a list."""
        self.newest: dict[int, int] = {}
        """The greatest number of each replica ID that was put, taken or not."""
        self.digest = 0
        """The sum of a hash of each thing at each place."""

    def __len__(self) -> int:
        return len(self.puts)

    def put(
        self, dot: Dot, places: Collection[bytes], items: Iterable[bytes], knows: Covered
    ) -> int:
        """Put something at places; returns at how many of them nothing stood before.

        ``items`` are those of a list, in the order of the places.
        """
        known = self.puts
        before = len(known)
        own: Any = dot  # one object for all of them, also in the compiled form
        put: Iterable[Any] = (
            repeat(((own, b""),), len(places))
            if self.order is None
            else [((own, item),) for item in items]
        )
        fresh: dict[bytes, Any] = {}
        for place, puts in zip(places, put, strict=True):
            if place in known:
                self._change(place, self._unseen(place, knows) + puts)
            else:
                fresh[place] = puts
        known.update(fresh)
        self.digest = (self.digest + self._sum(fresh)) % _MODULUS
        if self.order is not None:
            self.order.update(fresh)
        replica_id, number = dot
        self.newest[replica_id] = max(number, self.newest.get(replica_id, 0))
        return len(known) - before

    def take(self, places: list[bytes], knows: Covered) -> int:
        """Take members away, or items between two places each; returns how many are gone."""
        before = len(self.puts)
        if self.order is not None:
            for low, high in zip(places[::2], places[1::2], strict=True):
                self._take_span(self.order, low, high, knows)
        elif self._knows_all(knows):
            self._drop([place for place in dict.fromkeys(places) if place in self.puts])
        else:
            for place in places:
                self._change(place, self._unseen(place, knows))
        return before - len(self.puts)

    def _take_span(self, order: SortedList[bytes], low: bytes, high: bytes, knows: Covered) -> None:
        first, end = order.bisect_left(low), order.bisect_right(high)
        places = list(order.islice(first, end))
        if not self._knows_all(knows) and not all(
            knows(dot) for place in places for dot, _ in self.puts[place]
        ):
            for place in places:
                self._change(place, self._unseen(place, knows))
        elif 2 * len(places) > len(order):  # less is left than goes
            left = [*order.islice(0, first), *order.islice(end)]
            self.puts = {place: self.puts[place] for place in left}
            self.order = SortedList(left)
            self.digest = self._sum(self.puts) % _MODULUS
        else:
            self._drop(places)
            del order[first:end]

    def _drop(self, places: list[bytes]) -> None:
        """Take away what stands at these places; the caller takes them out of the order."""
        gone = {place: self.puts.pop(place) for place in places}
        self.digest = (self.digest - self._sum(gone)) % _MODULUS

    def _knows_all(self, knows: Covered) -> bool:
        """Whether everything that was ever put was seen."""
        return all(map(knows, self.newest.items()))

    def left_without(self, places: list[bytes], knows: Covered) -> int:
        """How many elements are left if these are taken away."""
        named = (
            places
            if self.order is None
            else chain.from_iterable(
                self.order.irange(low, high)
                for low, high in zip(places[::2], places[1::2], strict=True)
            )
        )
        gone = [each for each in named if each in self.puts and not self._unseen(each, knows)]
        return len(self.puts) - len(gone)

    def clear(self, knows: Covered) -> None:
        """Take everything away that was seen."""
        if self._knows_all(knows):
            self.puts, self.newest, self.digest = {}, {}, 0
            self.order = None if self.order is None else SortedList()
        else:
            for place in list(self.puts):
                self._change(place, self._unseen(place, knows))

    def _unseen(self, place: bytes, knows: Covered) -> Puts:
        puts = self.puts.get(place)
        return () if puts is None else tuple([put for put in puts if not knows(put[0])])

    def _change(self, place: bytes, puts: Puts) -> None:
        """Let these things stand at a place."""
        before = self.puts.get(place)
        if before is not None:
            self.digest -= self._hash(place, before)
        if len(puts) > 1:
            puts = tuple(by_rank(puts))
        if puts:
            self.puts[place] = puts
            self.digest += self._hash(place, puts)
            if before is None and self.order is not None:
                self.order.add(place)
        elif before is not None:
            del self.puts[place]
            if self.order is not None:
                self.order.remove(place)
        self.digest %= _MODULUS

    def _hash(self, place: bytes, puts: Puts) -> int:
        return self._sum({place: puts})

    def _sum(self, some: Mapping[bytes, Any]) -> int:
        """The sum of the hashes of what stands at places; typed parts would be copied."""
        seed, total = KINDS.index(self.kind), 0
        head, size = b"", -1
        known: Any = None
        for place, puts in some.items():
            for put in puts:
                if put[0] is not known or len(place) != size:
                    known, size = put[0], len(place)
                    head = b"%d:%d:%d:" % (known[0], known[1], size)
                total += xxh3_128_intdigest(head + place + put[1], seed)
        return total

    def join(self, other: Elements, our: Vector, their: Vector) -> None:
        """Add what is new of another state, and drop what the other side has taken."""
        here, there = self.puts, other.puts
        if not here and (
            not any(map(our.get, other.newest))
            or all(dot[1] > our.get(dot[0], 0) for puts in there.values() for dot, _ in puts)
        ):  # all of it is new
            self.puts, self.digest = dict(there), other.digest
            self.order = None if other.order is None else SortedList(other.order)
        elif self.digest != other.digest:
            places = [place for place, puts in there.items() if here.get(place) != puts]
            places += [place for place in here if place not in there]
            for place in places:
                self._change(place, _joined(here.get(place, ()), there.get(place, ()), our, their))
        for replica_id, number in other.newest.items():
            self.newest[replica_id] = max(number, self.newest.get(replica_id, 0))

    # -- a list ---------------------------------------------------------------------------------

    def at(self, index: int) -> bytes:
        """The item at an index; negative ones are counted from the end."""
        assert self.order is not None
        return self.puts[self.order[index]][0][1]

    def items(self, *, reverse: bool = False) -> Iterator[bytes]:
        """All items in their order."""
        order = self.order or ()
        return self.items_at(reversed(order) if reverse else order)

    def items_at(self, places: Iterable[bytes]) -> Iterator[bytes]:
        """The items at places: machine code of the interpreter alone, as there may be very many."""
        return map(_item, map(_first, map(self.puts.__getitem__, places)))

    def places_at(self, index: int, count: int, own: int, number: int) -> list[bytes]:
        """New places for so many items before the one at an index, of an effect of this dot."""
        order = self.order
        assert order is not None
        low = order[index - 1] if index else b""
        high = order[index] if index < len(order) else _END
        return places_between(low, high, own, number, count)

    def spans(self, indexes: Iterable[int]) -> list[bytes]:
        """First and last place of each run of items at these ascending indexes."""
        assert self.order is not None
        if isinstance(indexes, range):  # pops and trims: neighbours
            return [self.order[indexes[0]], self.order[indexes[-1]]] if indexes else []
        places: list[bytes] = []
        last = -2
        for index in indexes:
            place = self.order[index]
            if index == last + 1:
                places[-1] = place
            else:
                places += (place, place)
            last = index
        return places

    # -- to be kept -----------------------------------------------------------------------------

    @classmethod
    def restored(cls, kind: str, rows: Any) -> Elements:
        """Read a copy of :attr:`puts` that msgpack has kept; :class:`ValueError` if it is none."""
        elements = cls(kind)
        elements.restore(rows)
        return elements

    def restore(self, rows: Any) -> None:
        """Read another part of such a copy."""
        puts = msgspec.convert(rows, dict[bytes, Puts], builtin_types=(bytes,))
        known: dict[Put, Puts] = {}
        for place, some in puts.items():
            if self.kind == SET and len(some) == 1:
                puts[place] = known.setdefault(some[0], some)  # one object for those of one effect
            elif len(some) > 1:
                puts[place] = tuple(by_rank(some))
            for (replica_id, number), _ in some:
                if number > self.newest.get(replica_id, 0):
                    self.newest[replica_id] = number
        self.digest = (self.digest + self._sum(puts)) % _MODULUS
        self.puts.update(puts)
        if self.order is not None:
            self.order.update(puts)

    def check(self) -> None:
        """Assert that everything is as it should be, also where another region has sent it."""
        for _ in self.check_steps():
            pass

    def check_steps(self) -> Iterator[None]:
        """The same in short steps; nothing may change meanwhile."""
        assert self.kind in KINDS, "elements of no kind"
        total = 0
        for count, (place, puts) in enumerate(self.puts.items()):
            if count % PLACES_A_STEP == 0:
                yield
            assert len({dot for dot, _ in puts}) == len(puts) > 0, "a place with nothing"
            assert all(number <= self.newest[replica_id] for (replica_id, number), _ in puts)
            total += self._hash(place, puts)
            if self.kind == LIST:
                assert is_place(place), "a place that is none"
            else:
                assert not any(item for _, item in puts), "a member with an item"
        assert total % _MODULUS == self.digest
        assert self.order is None or list(self.order) == sorted(self.puts)


def _joined(mine: Puts, others: Puts, our: Vector, their: Vector) -> Puts:
    """What is left of both sides at one place."""
    left = [put for put in mine if put in others or put[0][1] > their.get(put[0][0], 0)]
    new = [put for put in others if put not in mine and put[0][1] > our.get(put[0][0], 0)]
    return tuple(left + new)


class Items:
    """The items of a list of several regions, to be read like those of any list."""

    def __init__(self, elements: Elements) -> None:
        self.elements = elements

    def __len__(self) -> int:
        return len(self.elements.puts)

    def __getitem__(self, index: int) -> bytes:
        return self.elements.at(index)

    def __iter__(self) -> Iterator[bytes]:
        return self.elements.items()

    def __reversed__(self) -> Iterator[bytes]:
        return self.elements.items(reverse=True)

    def part(self, first: int, end: int) -> list[bytes]:
        """The items from one index up to another, which is excluded."""
        elements = self.elements
        assert elements.order is not None
        return list(elements.items_at(elements.order.islice(first, end)))

    def index(self, wanted: bytes) -> int:
        """The index of the first such item; :class:`ValueError` without one."""
        return indexOf(self, wanted)

    def count(self, wanted: bytes) -> int:
        """How many items are equal to this one."""
        return countOf(self, wanted)


# -- places -------------------------------------------------------------------------------------


def is_place(place: bytes) -> bool:
    """Whether these bytes are the place of an item."""
    if len(place) % _LEVEL.size or not 0 < len(place) <= PLACE_BYTES_MAX:
        return False
    return all(abs(level[0] - _ZERO) <= _RANK_MAX for level in _LEVEL.iter_unpack(place))


def are_places(some: Iterable[bytes]) -> bool:
    """Whether all of these are places of items. Those of one effect differ in their index only."""
    return all(is_place(begin + bytes(4)) for begin in {place[:-4] for place in some})


def places_between(low: bytes, high: bytes, own: int, number: int, count: int) -> list[bytes]:
    """Ascending places above one and below another, as short as may be.

    Nothing stands between these two where ``own`` chooses. Empty ``low`` is below all.
    """
    for prefix in _candidates(low, high, own, number):
        first = prefix + bytes(4)
        if low < first and prefix + (count - 1).to_bytes(4, "big") < high:
            return [prefix + index.to_bytes(4, "big") for index in range(count)]
    raise AssertionError("there is always a place below a level")


def _candidates(low: bytes, high: bytes, own: int, number: int) -> Iterator[bytes]:
    """Places without their index, that which is preferred first."""
    size = _LEVEL.size
    if not low and high == _END:
        yield _level(0, own, number)
    if low:
        yield _beside(low[:size], own, number)
        yield low[:-size] + _beside(low[-size:], own, number)
    if high != _END:
        yield _beside(high[:size], own, -number)
        yield high[:-size] + _beside(high[-size:], own, -number)
        if high.startswith(low):
            yield low + _beside(high[len(low) : len(low) + size], own, -number)
    yield low + _level(0, own, number)


def _beside(level: bytes, own: int, number: int) -> bytes:
    """The level behind another one, or before it if the number is negative."""
    rank, upper, lower, _, _ = _LEVEL.unpack(level)
    if upper << 32 | lower != own:
        rank += 1 if number > 0 else -1
    return _level(rank - _ZERO, own, number)


def _level(rank: int, own: int, number: int) -> bytes:
    return _LEVEL.pack(rank + _ZERO, own >> 32, own & 0xFFFFFFFF, number + _ZERO, 0)[:_UPTO_NUMBER]
