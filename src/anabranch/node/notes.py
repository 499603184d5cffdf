"""Small files beside the log, in JSON; each is read, checked and replaced as a whole."""

from __future__ import annotations

from contextlib import closing
from typing import TypeVar

import msgspec

from anabranch.errors import UNREADABLE
from anabranch.oplog.errors import LogError
from anabranch.oplog.storage import Storage

T = TypeVar("T")


class NoteError(LogError):
    """A note is damaged. Nothing was changed."""


def read_note(
    storage: Storage, name: str, form: type[T], advice: str, *, may_be_blank: bool = False
) -> T | None:
    """What the file contains, or None if there is none.

    Raises :class:`OSError`, or :class:`NoteError` if its contents do not have this form; ``advice``
    says what the note is good for, and what to do without it. ``may_be_blank``: an empty file, or
    one of zeros, is as good as none, because what it said is learned again.
    """
    if name not in storage.names():
        return None
    with closing(storage.open(name)) as file:
        data = file.read()
    if may_be_blank and not data.strip(b"\0"):
        return None
    try:
        return msgspec.json.decode(data, type=form)
    except UNREADABLE as problem:
        raise NoteError(
            f"cannot read {storage.shown(name)}: {problem}. Nothing was changed; {advice}"
        ) from None


def write_note(storage: Storage, name: str, data: bytes) -> None:
    """Replace the file, and sync it. Raises :class:`OSError`; the former one may be left then."""
    file = storage.create(name + ".new")
    try:
        file.write(data)
        file.sync()
    finally:
        file.close()
    storage.rename(name + ".new", name)
    storage.sync()
