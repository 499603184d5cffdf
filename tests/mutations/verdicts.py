"""Verdicts on mutations in a file, a line each, so that a run that was ended can be continued."""

from __future__ import annotations

from pathlib import Path

from tests.mutations.places import Place

__all__ = ["VerdictFile"]


class VerdictFile:
    """Verdicts on mutations; without a path they last as long as the object.

    A verdict holds as long as the function that was mutated does not change.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[tuple[str, str], str] = {}
        """By function and name the newest verdict."""
        if path is not None and path.exists():
            for line in path.read_text("utf-8").splitlines():
                verdict, code, name = line.split("\t", 2)
                self._found[code, name] = verdict

    def of(self, place: Place) -> str | None:
        """The verdict on a mutation of its function as it is today, if there is one."""
        return self._found.get((place.code, place.name))

    def add(self, place: Place, verdict: str) -> None:
        """Keep a verdict; it is in the file when this returns."""
        self._found[place.code, place.name] = verdict
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{verdict}\t{place.code}\t{place.name}\n")
