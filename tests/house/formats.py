"""The part of `docs/formats.md` that is made from the code: the table of effect kinds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, get_type_hints

import msgspec

from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from tests.support.servers import REPOSITORY

_PAGE = REPOSITORY / "docs" / "formats.md"
_TABLE = re.compile(r"(?<=<!-- kinds begin -->\n).*?(?=<!-- kinds end -->)", re.DOTALL)

_FORMS = {
    repr(int): "int",
    repr(int | None): "int or nil",
    repr(bytes): "bin",
    repr(bytes | None): "bin or nil",
    repr(bool): "bool",
    repr(list[int]): "ints",
    repr(Sequence[int]): "ints",
    repr(list[bytes]): "bins",
    repr(tuple[int, int]): "[int, int]",
    repr(list[tuple[int, int]]): "[[int, int]]",
    repr(kinds.EntryId): "id",
    repr(kinds.EntryId | None): "id or nil",
    repr(kinds.EntryIds): "runs",
    repr(list[tuple[kinds.EntryId, int, int, int]]): "[[ms, seq, int, int, int]]",
    repr(list[tuple[kinds.EntryId, int, int, int, int, int]]): (
        "[[ms, seq, int, int, int, int, int]]"
    ),
    repr(list[tuple[bytes, bytes | None]]): "[[bin, bin or nil]]",
    repr(list[tuple[bytes, int, int]]): "[[bin, int, int]]",
    repr(list[tuple[bytes, int, int, int, int, int]]): "[[bin, int, int, int, int, int]]",
    repr(tuple[bytes, bytes, int] | None): "[bin, bin, int] or nil",
    repr(tuple[bytes, bytes] | None): "[bin, bin] or nil",
    repr(list[tuple[bytes, bytes, list[bytes]]]): "[[bin, bin, bins]]",
    repr(list[tuple[int, list[int]]]): "[[int, ints]]",
    repr(list[tuple[int, int, kinds.EntryId]]): "[[int, int, ms, seq]]",
    repr(list[tuple[int, int, int]]): "[[int, int, int]]",
    repr(list[tuple[int, int, bytes]]): "[[int, int, bin]]",
    repr(list[tuple[int, str, str, int]]): "[[int, str, str, int]]",
    repr(str): "str",
}
"""How the types of fields travel; the page explains the words."""


def formats_page() -> str:
    """The page as it is, with a table that is up to date."""
    table = "".join(kinds_table())
    page, count = _TABLE.subn(lambda _: table, _PAGE.read_text("utf-8"))
    assert count == 1, "the marks around the table are gone"
    return page


def kinds_table() -> list[str]:
    """A row for each kind, by its tag."""
    rows = ["| Tag | Kind | Fields | |\n|---|---|---|---|\n"]
    for kind in sorted(EFFECTS, key=_tag):
        fields = ", ".join(_fields(kind))
        local = " *local*" if kind.local else ""
        rows.append(f"| {_tag(kind)} | `{kind.__name__}`{local} | {fields} | {_meaning(kind)} |\n")
    return rows


def _tag(kind: type[kinds.Effect]) -> Any:
    return kind.__struct_config__.tag


def _fields(kind: type[kinds.Effect]) -> list[str]:
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in msgspec.structs.fields(kind):
        form = _FORMS[repr(hints[field.name])]
        default = "" if field.default is msgspec.NODEFAULT else f" = {_literal(field.default)}"
        found.append(f"`{field.name}` {form}{default}")
    return found


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(kind: type[kinds.Effect]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split())
    text = re.sub(r":class:`(?:kinds\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    return text.replace("|", "\\|")
