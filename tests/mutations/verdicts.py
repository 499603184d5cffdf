"""Verdicts on mutations in a file, a line each, so that a run that was ended can be continued."""

from __future__ import annotations

from pathlib import Path

__all__ = ["VerdictFile"]


class VerdictFile:
    """Verdicts by the names of mutations; without a path they last as long as the object."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.found: dict[str, str] = {}
        """By name the newest verdict."""
        if path is not None and path.exists():
            for line in path.read_text("utf-8").splitlines():
                verdict, _, name = line.partition("\t")
                self.found[name] = verdict

    def add(self, name: str, verdict: str) -> None:
        """Keep a verdict; it is in the file when this returns."""
        self.found[name] = verdict
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{verdict}\t{name}\n")
