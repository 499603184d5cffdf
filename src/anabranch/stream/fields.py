"""How the parts of a state are written: a table for each, with a row for each field.

A *form* says how values of one kind are written (as integers, bytes and lists, ready for msgpack),
how they are read again, and what they must look like if another region has written them. A state (a
stream, a log, a group ...) has a table of its fields: the names of attributes and their forms.
Snapshots and full syncs write and restore by these tables, and full syncs are checked by them, so a
new field is one new row. Those of a stream are in :mod:`anabranch.stream.frozen`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple, get_args

import msgspec

from anabranch.stream.entry_id import make, split
from anabranch.stream.ranges import Ranges

NUMBER_MAX: Final = (1 << 63) - 1
"""The greatest number of an effect, also in messages between regions."""

STAMP_MAX: Final = 1 << 62
"""The limit of stamps and positions: the server adds to them."""


class Form(NamedTuple):
    """How values of one kind are written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    kind: Any
    """The type of what is written."""
    parts: tuple[Any, ...] = ()
    """If it is spread over the row of a table: the types of its parts."""


def _same(value: Any) -> Any:
    return value


def pair(one: Any, other: Any) -> tuple[Any, Any]:
    """Make a pair; for :func:`row`."""
    return one, other


def plain(kind: Any) -> Form:
    """A value of this type that is written as it is."""
    return Form(_same, _same, kind)


def optional(form: Form) -> Form:
    """Such a value, or None."""
    write, read, kind, _ = form
    return Form(
        lambda value: None if value is None else write(value),
        lambda value: None if value is None else read(value),
        kind | None,
    )


def row(make_row: Callable[..., Any], *forms: Form) -> Form:
    """A tuple of these values, which ``make_row`` makes of them."""

    def write(values: Any) -> list[Any]:
        return [form.write(value) for form, value in zip(forms, values, strict=True)]

    def read(values: Any) -> Any:
        return make_row(*[form.read(value) for form, value in zip(forms, values, strict=True)])

    kinds = tuple([form.kind for form in forms])
    return Form(write, read, GenericAlias(tuple, kinds), kinds)


class FieldTable:
    """The fields of a state: attributes and their forms; ``a.b`` is the attribute of a part."""

    def __init__(self, **forms: Form) -> None:
        self._forms = forms
        self._values = attrgetter(*forms)
        self._writes = [None if form.write is _same else form.write for form in forms.values()]
        self._reads = [None if form.read is _same else form.read for form in forms.values()]
        self._places = [
            (attrgetter(part) if part else None, attribute)
            for part, _, attribute in [name.rpartition(".") for name in forms]
        ]
        self.kinds = tuple([form.kind for form in forms.values()])

    def write(self, state: object) -> list[Any]:
        """The fields of a state as plain values."""
        values: list[Any] = []
        for write, value in zip(self._writes, self._values(state), strict=True):
            if write is None:
                values.append(value)
            elif value or not isinstance(value, dict):
                values.append(write(value))
            else:  # most tables are empty
                values.append([])
        return values

    def read(self, values: list[Any]) -> list[Any]:
        """What :meth:`write` has returned, as it is in a state."""
        return [
            value if read is None else read(value)
            for read, value in zip(self._reads, values, strict=True)
        ]

    def restore(self, state: object, values: list[Any]) -> None:
        """Give a new state what :meth:`write` has returned; where that is empty, it stays new.

        Fields at the end may be missing: they were added later.
        """
        if len(values) > len(self._places):
            raise ValueError(f"{len(values)} fields where {len(self._places)} are known")
        for (part, attribute), read, value in zip(self._places, self._reads, values, strict=False):
            if value or not isinstance(value, list | dict):
                owner = state if part is None else part(state)
                setattr(owner, attribute, value if read is None else read(value))

    def check(self, state: object) -> None:
        """Assert that the fields are as they may be; raises :class:`msgspec.ValidationError`."""
        for value, form in zip(self._values(state), self._forms.values(), strict=True):
            require(form.write(value), form.kind)


def require(value: object, kind: Any) -> None:
    """Assert that a value has this type; without ``builtin_types`` text counts as bytes."""
    msgspec.convert(value, kind, builtin_types=(bytes,))


def record(new: Callable[[], Any], fields: FieldTable) -> Form:
    """An object with these fields; ``new`` makes an empty one."""

    def read(values: Any) -> Any:
        state = new()
        fields.restore(state, values)
        return state

    return Form(fields.write, read, GenericAlias(tuple, fields.kinds), fields.kinds)


def several(form: Form) -> Form:
    """A list of such values."""
    write, read, kind, _ = form
    return Form(
        lambda values: [write(value) for value in values],
        lambda values: [read(value) for value in values],
        GenericAlias(list, (kind,)),
    )


def keys(form: Form) -> Form:
    """A dictionary of which only the keys count."""
    values = several(form)
    return values._replace(read=lambda some: dict.fromkeys(values.read(some)))


def _spread(form: Form) -> Form:
    """The form of what is written side by side in the row of a table."""
    write, read, kind, parts = form

    def read_one(values: Any) -> Any:
        (value,) = values
        return read(value)

    return form if parts else Form(lambda value: [write(value)], read_one, kind, (kind,))


def table(key: Form, value: Form) -> Form:
    """A dictionary, written as rows: what the key is written as, then the value."""
    write_key, read_key, _, parts = _spread(key)
    write_value, read_value, _, rest = _spread(value)
    width = len(parts)
    return Form(
        lambda items: [[*write_key(each), *write_value(what)] for each, what in items.items()],
        lambda rows: {read_key(each[:width]): read_value(each[width:]) for each in rows},
        GenericAlias(list, (GenericAlias(tuple, parts + rest),)),
    )


def nested(key: Form, inner: Form) -> Form:
    """A dictionary of tables or lists, written as their rows, each behind the key."""
    write_key, read_key, _, parts = _spread(key)
    width = len(parts)
    (line,) = get_args(inner.kind)

    def read(rows: list[Any]) -> dict[Any, Any]:
        found: dict[Any, list[Any]] = {}
        for each in rows:
            found.setdefault(read_key(each[:width]), []).append(each[width:])
        return {each: inner.read(some) for each, some in found.items()}

    return Form(
        lambda items: [
            [*write_key(each), *rest] for each, some in items.items() for rest in inner.write(some)
        ],
        read,
        GenericAlias(list, (GenericAlias(tuple, parts + get_args(line)),)),
    )


def _id_of(parts: list[int]) -> int:
    ms, seq = parts
    return make(ms, seq)


INTEGER: Final = plain(int)
BOOL: Final = plain(bool)
BYTES: Final = plain(bytes)
TEXT: Final = plain(str)
NUMBER: Final = plain(Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)])
PLACE: Final = plain(Annotated[int, msgspec.Meta(ge=0, le=STAMP_MAX)])
REGION: Final = plain(Annotated[int, msgspec.Meta(ge=1, le=255)])
REPLICA_ID: Final = plain(Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)])
DOT: Final = row(pair, REPLICA_ID, NUMBER)._replace(write=list, read=tuple)
VECTOR: Final = table(REPLICA_ID, NUMBER)
RANGES: Final = several(NUMBER)._replace(write=Ranges.flat, read=Ranges.of_flat)
ID: Final = Form(split, _id_of, tuple[Annotated[int, msgspec.Meta(ge=0)], int])
