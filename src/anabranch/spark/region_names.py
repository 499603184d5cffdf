"""Names of regions in options: a number, as in offsets and rows, or a name.

A number means one log (``1``, or ``1.7`` for a later epoch of region 1), a name all logs of a
region.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from anabranch.spark.client import Client, ServerRefused, facts_of
from anabranch.spark.options import OptionError

__all__ = ["RegionNames"]

_NUMBER: Final = re.compile(r"\d+(\.\d+)?", re.ASCII)


class RegionNames:
    """The regions that a server knows; it is asked only if necessary."""

    def __init__(self, client: Client) -> None:
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
            try:
                rows = self._client.command("AB.REGION", "LIST", repeatable=True)
            except ServerRefused as error:
                if "on its own" not in str(error) and "unknown command" not in str(error):
                    raise
                rows = []
            facts = map(facts_of, rows)
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
