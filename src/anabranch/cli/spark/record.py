"""The record of one run of a command, from which the terminal output and the report are made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from anabranch.cli.spark.results import figures_of, findings_of, lines_of
from anabranch.spark.jobs.signatures import JobStep

_STEPS_MAX: Final = 1_000


@dataclass(slots=True)
class Record:
    """One run of a command."""

    context: click.Context
    page_of: Callable[[Record], str] | None = None
    """Makes the report."""
    as_json: bool = False
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime | None = None
    steps: list[tuple[datetime, JobStep]] = field(default_factory=list)
    result: Any = None
    failure: str | None = None
    page: Path | None = None
    """Where the report goes."""

    @property
    def failed(self) -> bool:
        """Whether the run failed, or found something."""
        return self.result is None or bool(findings_of(self.result))

    def step(self, step: JobStep) -> None:
        """Say how far it is, on stderr."""
        print(step.text, file=sys.stderr, flush=True)
        self.steps.append((datetime.now(UTC), step))
        if len(self.steps) > _STEPS_MAX:
            del self.steps[1:-1:2]

    def tell(self, result: Any) -> None:
        """Print the result, and write the report."""
        self.result, self.ended = result, datetime.now(UTC)
        if self.as_json:
            print(json.dumps(asdict(result)))
        else:
            print(*lines_of(result), sep="\n", end="\n" if lines_of(result) else "")
            for name, value in figures_of(result):
                print(f"{name}: {value}")
            print(f"took: {(self.ended - self.began).total_seconds():.1f} s")
        sys.stdout.flush()
        self._write()

    def fail(self, text: str) -> NoReturn:
        """Say what is wrong, write the report and exit with code 1."""
        print(f"anabranch: {text}", file=sys.stderr)
        self.failure, self.ended = text, datetime.now(UTC)
        self._write()
        raise SystemExit(1)

    def _write(self) -> None:
        if self.page is not None and self.page_of is not None:
            try:
                self.page.write_text(self.page_of(self), encoding="utf-8")
            except OSError as problem:
                print(f"anabranch: no report: {problem}", file=sys.stderr)
                raise SystemExit(1) from None
