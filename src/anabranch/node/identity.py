"""Files beside the log that record to which region a directory belongs, and its state.

Number and name of a region and its gossip port stay as they were when the directory was first used.
A start with others is refused, because other regions would take the log for that of another region.
Further files record

* that the region was removed from its cluster: then its directory is only read;
* that the region is a newcomer, or began anew without its data: it accepts no writes until it has
  the data of the others. Otherwise a new ID could be below theirs, and a retry of a message that
  the others know would be accepted as new;
* that the files were set back: other regions know different effects under the same numbers;
* where members are that have moved since they were admitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from anabranch.config.load import Loaded
from anabranch.config.settings import ROWS
from anabranch.errors import UNREADABLE, ConfigError
from anabranch.oplog.errors import REGION_FILE, LogError
from anabranch.oplog.storage import Storage
from anabranch.replication.interface import Address

_REMOVAL: Final = "removed"
_NEWCOMER: Final = "newcomer"
_SET_BACK: Final = "set-back"
_ADDRESSES: Final = "addresses"
_DIRECTIVES: Final = ("region-id", "region-name", "gossip-port")

_ADVICE: Final = (
    "it notes which region this is: remove it, and give --region-id, --region-name and "
    "--gossip-port"
)
_SET_BACK_ADVICE: Final = (
    "it notes that the files of this region were set back, and how far other regions agree with "
    "it: put the file back from a backup. If there is none, remove it: a start learns from the "
    "other regions again that the files were set back"
)
_ADDRESSES_ADVICE: Final = (
    "it notes the gossip addresses of regions that have moved: remove it, and restart these regions"
)
_Number = Annotated[int, msgspec.Meta(ge=0)]


class NotedIdentity(Struct, rename="kebab", forbid_unknown_fields=True):
    """The contents of the file: the directives of a region."""

    region_id: Annotated[int, msgspec.Meta(ge=1)]
    region_name: str
    gossip_port: int

    def __post_init__(self) -> None:
        """Refuse what the settings would refuse."""
        for name in _DIRECTIVES:
            try:
                ROWS[name].parse([str(self.value(name))])
            except ValueError as problem:
                raise ValueError(f"{name}: {problem}") from None

    def value(self, directive: str) -> Any:
        """The noted value of a directive, by its name."""
        return getattr(self, ROWS[directive].attribute)


class _SetBack(Struct):
    reason: str
    agreed: dict[_Number, _Number]


def recall(loaded: Loaded, storage: Storage) -> None:
    """Complete the settings from the file.

    Raises :class:`ConfigError` if the settings name another region, or a cluster and no region, or
    :class:`LogError` if the file cannot be read.
    """
    settings = loaded.settings
    _complete(loaded, storage)
    if (settings.cluster_create or settings.join) and not settings.region_id:
        raise ConfigError(
            "cluster-create and join are for regions: give each a region-id of its own, 1 to 255"
        )


def _complete(loaded: Loaded, storage: Storage) -> None:
    settings = loaded.settings
    try:
        noted = identity_in(storage)
    except FileNotFoundError:  # not even a directory
        return
    except OSError as problem:
        raise LogError(
            f"cannot read {storage.shown(REGION_FILE)}: {problem.strerror}. Nothing was changed"
        ) from None
    if noted is None:
        return
    for name in _DIRECTIVES:
        value = noted.value(name)
        if name in loaded.sources and settings.value(name) != value:
            raise ConfigError(
                f"{storage.shown('')} belongs to the region with {name} {value}, and {name} "
                f"{settings.value(name)} was given ({loaded.source(name)}). Leave it out, or give "
                f"another --dir; to change it on purpose, do so in {storage.shown(REGION_FILE)}"
            )
        setattr(settings, ROWS[name].attribute, value)


def remember(storage: Storage, region: int, name: str, gossip_port: int) -> None:
    """Write the file if it does not exist. Raises :class:`OSError`."""
    if REGION_FILE in storage.names():
        return
    noted = dict(zip(_DIRECTIVES, (region, name, gossip_port), strict=True))
    write_note(storage, REGION_FILE, json.dumps(noted).encode() + b"\n")


def write_removal(storage: Storage, reason: str) -> None:
    """Record that this region was removed from the cluster. Raises :class:`OSError`."""
    write_note(storage, _REMOVAL, reason.encode() + b"\n")


def removal_noted(storage: Storage) -> str:
    """Why this region was removed; empty if it was not. Raises :class:`OSError`."""
    if _REMOVAL not in storage.names():
        return ""
    with closing(storage.open(_REMOVAL)) as file:
        return file.read().decode("utf-8", "replace").strip() or "removed"


def write_set_back(storage: Storage, reason: str, agreed: Mapping[int, int]) -> None:
    """Record that others know different effects of this region. Raises :class:`OSError`.

    ``agreed``: by replica ID of this region, the number up to which their effects are the same.
    """
    noted = {"reason": reason, "agreed": {str(replica_id): n for replica_id, n in agreed.items()}}
    write_note(storage, _SET_BACK, json.dumps(noted).encode() + b"\n")


def set_back_noted(storage: Storage) -> tuple[str, dict[int, int]] | None:
    """What :func:`write_set_back` has recorded.

    Raises :class:`OSError`, or :class:`NoteError` if the file is damaged.
    """
    noted = read_note(storage, _SET_BACK, _SetBack, _SET_BACK_ADVICE)
    return None if noted is None else (noted.reason, noted.agreed)


def write_addresses(storage: Storage, addresses: Mapping[int, Address]) -> None:
    """Record where members are that have moved. Raises :class:`OSError`."""
    noted = {str(region): address for region, address in addresses.items()}
    write_note(storage, _ADDRESSES, json.dumps(noted).encode() + b"\n")


def addresses_noted(storage: Storage) -> dict[int, Address]:
    """What :func:`write_addresses` has recorded.

    Raises :class:`OSError`, or :class:`NoteError` if the file is damaged; a blank one
    is none.
    """
    form = dict[_Number, tuple[str, int]]
    return read_note(storage, _ADDRESSES, form, _ADDRESSES_ADVICE, may_be_blank=True) or {}


def write_newcomer(storage: Storage) -> None:
    """Record that this region lacks the data of the others. Raises :class:`OSError`."""
    write_note(storage, _NEWCOMER, b"\n")


def is_newcomer(storage: Storage) -> bool:
    """Whether this region lacks the data of the others. Raises :class:`OSError`."""
    return _NEWCOMER in storage.names()


def forget_newcomer(storage: Storage) -> None:
    """Remove the record of :func:`write_newcomer`. Raises :class:`OSError`; can be repeated."""
    if _NEWCOMER in storage.names():
        storage.remove(_NEWCOMER)
    storage.sync()


def identity_in(storage: Storage) -> NotedIdentity | None:
    """The contents of the file, or None if there is none.

    Raises :class:`OSError`, or :class:`NoteError` if the file is damaged.
    """
    return read_note(storage, REGION_FILE, NotedIdentity, _ADVICE)


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
