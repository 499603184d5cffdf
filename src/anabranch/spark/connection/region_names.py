"""Names of regions in options: a number, as in offsets and rows, or a name.

A number means one log (``1``, or ``1.7`` for a later epoch of region 1), a name all logs of a
region. And whether a region may still add to a log.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from anabranch.spark.connection.client import ServerClient, ServerRefused, facts_of
from anabranch.spark.options import OptionError

_NUMBER: Final = re.compile(r"\d+(\.\d+)?", re.ASCII)


class RegionNames:
    """The regions that a server knows; it is asked only if necessary."""

    def __init__(self, client: ServerClient) -> None:
        """Asks nothing yet."""
        self._client = client
        self._members: list[tuple[str, str]] | None = None

    def covers(self, given: str, region: str) -> bool:
        """Whether `given` means that log; raises `OptionError` if it is no name of a region."""
        if given == region or not given or _NUMBER.fullmatch(given):
            return given == region
        numbers = [number for number, name in self._listed() if name == given]
        if not numbers:
            raise self._unknown(given, ())
        return region.partition(".")[0] in numbers

    def is_of(self, given: str, number: str) -> bool:
        """Whether `given` is a name of this region, or the number of one of its logs."""
        return given.partition(".")[0] == number or self.covers(given, number)

    def check(self, given: Iterable[str], present: Collection[str]) -> None:
        """Raise `OptionError` for a name that is neither a member nor an existing log."""
        for each in given:
            if each in present:
                continue
            try:
                members = self._listed()
            except ServerRefused:
                if not each or _NUMBER.fullmatch(each):
                    continue  # a user without permission can still use numbers
                raise
            if each not in {name for _, name in members} and (
                each.partition(".")[0] not in {number for number, _ in members}
                and (each or members)
            ):
                raise self._unknown(each, present)

    def _listed(self) -> list[tuple[str, str]]:
        """Number and name of each member; removed regions have no name."""
        if self._members is None:
            facts = rows_of(self._client, "AB.REGION", "LIST")
            self._members = [(str(row["region"]), row["name"].decode()) for row in facts]
        return self._members

    def _unknown(self, given: str, present: Iterable[str]) -> OptionError:
        found = {each: each for each in sorted(present) if each}
        for number, name in self._listed():
            found[number] = f"{number} ({name})" if name else number
        if not found:
            return OptionError(
                f"no region is called {given!r}: the server at {self._client.address} has no "
                "regions; leave the name out"
            )
        return OptionError(f"no region is called {given!r}; there are {', '.join(found.values())}")


def is_over(client: ServerClient, region: str, present: Iterable[str]) -> bool:
    """Whether a region adds nothing more to a log: it was removed, or writes in a later epoch.

    A region that was set back does the latter. What it had not sent to others is in no region then.
    `present` are the logs that there are; a user who may not list regions knows nothing else.
    """
    number, _, epoch = region.partition(".")
    parts = (each.partition(".") for each in present)
    if any(first == number and int(last or 0) > int(epoch or 0) for first, _, last in parts):
        return True
    try:
        rows = rows_of(client, "AB.REGION", "LIST") if region else []
    except ServerRefused:
        return False
    return any(
        str(row["region"]) == number
        and (row["state"] == b"removed" or row["epoch"] > int(epoch or 0))
        for row in rows
    )


def rows_of(client: ServerClient, *words: str) -> list[dict[str, Any]]:
    """The rows of a command about regions; none without regions."""
    try:
        return list(map(facts_of, client.command(*words, repeatable=True)))
    except ServerRefused as error:
        if "on its own" not in str(error) and "unknown command" not in str(error):
            raise
        return []
