"""Errors in the files of a log. Each message names the file and says what to do."""

from __future__ import annotations

from typing import Final

from anabranch.errors import AnabranchError
from anabranch.keyspace.replica import Replica

REGION_FILE: Final = "region"
"""The file beside the log that notes which region a directory belongs to."""


class LogError(AnabranchError):
    """The log cannot be used; the server does not start."""


class SyncFailedError(OSError):
    """A sync failed: the state of the disk is unknown."""


class CorruptLogError(LogError):
    """Bytes that were on the disk are missing or have changed.

    ``name`` is the file, ``offset`` where in it the damage begins, in bytes.
    """

    def __init__(self, name: str, offset: int, what: str, advice: str = "") -> None:
        self.name = name
        self.offset = offset
        self.what = what
        self.advice = advice
        text = f"{name} is damaged at byte {offset}: {what}"
        super().__init__(f"{text}. {advice}" if advice else text)


class AbsentFileError(LogError):
    """A required file is missing or too short.

    ``name`` is that file without its directory, ``what`` the rest of the sentence.
    """

    def __init__(self, name: str, shown: str, what: str, advice: str) -> None:
        self.name = name
        self.what = what
        super().__init__(f"{shown} {what}. {advice}")


class NewerFormatError(LogError):
    """A file of a newer version, from byte ``offset`` on; it is not changed."""

    def __init__(self, text: str, offset: int = 0) -> None:
        self.offset = offset
        super().__init__(text)


def check_mode(name: str, replica: Replica, *, regional: bool) -> None:
    """:class:`LogError` for sound files of a server on its own in a region, or the reverse.

    ``regional`` is about the files, ``replica`` that of this server.
    """
    if regional == replica.is_regional:
        return
    if regional:
        raise LogError(
            f"{name} belongs to a region of an Active-Active cluster, and this server was started "
            "without region-id. Nothing was changed; give the region its number"
        )
    raise LogError(
        f"{name} belongs to a server on its own, and this one was started with region-id. Nothing "
        "was changed; export the data from a server on its own and import it into the region"
    )


def check_region(name: str, note: str, replica: Replica, region: int) -> None:
    """:class:`LogError` if this region wrote a sound file, and this server is another one.

    ``note`` is the path of :data:`REGION_FILE`.
    """
    if region != replica.region:
        raise LogError(
            f"{name} belongs to region {region}, and this server was started as region "
            f"{replica.region}, by {note} or its settings. Nothing was changed. If these are the "
            f"files of region {region}, set region-id to {region} in {note}; if there is no such "
            "file, in the settings"
        )


def too_few_databases(name: str, number: int, count: int) -> LogError:
    """The files are sound, but this server was given fewer databases than they use."""
    return LogError(
        f"{name} has keys in database {number}, and this server has {count} databases. "
        f"Nothing was changed; start it with --databases {number + 1} or more"
    )
