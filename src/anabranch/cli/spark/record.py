"""The record of one run of a command, from which the terminal output and the report are made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from anabranch.errors import AnabranchError

_STEPS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Check:
    """Something that was looked at."""

    what: str
    """What holds without problems: ``no position is missing``."""
    problems: Sequence[str] = ()
    fails: bool = True
    """A problem is a failure, and the command exits with 1."""


def checks_of(holds: Mapping[str, str], found: Iterable[tuple[str, str]]) -> list[Check]:
    """A check for each kind of finding: what holds without any, and the lines of those found."""
    lines: dict[str, list[str]] = {kind: [] for kind in holds}
    for kind, line in found:
        lines[kind].append(line)
    return [Check(what, lines[kind]) for kind, what in holds.items()]


@dataclass(frozen=True, slots=True)
class Words:
    """What a job says of its result."""

    last: str
    lines: Sequence[str] = ()
    checks: Sequence[Check] = ()

    @property
    def failed(self) -> bool:
        """Does a check fail?"""
        return any(each.problems and each.fails for each in self.checks)


@dataclass(frozen=True, slots=True)
class Step:
    """A line of progress."""

    at: datetime
    text: str
    total: int | None
    """What was done so far, if that is counted."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawn when the report is written."""

    title: str
    draw: Callable[[Path], None]
    """Gets a path that ends in ``.svg``."""


@dataclass(slots=True)
class Record:
    """One run of a command."""

    context: click.Context
    as_json: bool = False
    page: Path | None = None
    """Where the report goes."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime | None = None
    unit: str = "entries"
    """Of the totals of steps."""
    steps: list[Step] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    words: Words | None = None
    failure: str | None = None

    def step(self, text: str, *, more: int | None = None, total: int | None = None) -> None:
        """Say how far it is, on stderr. `more` was done since the last step, or `total` so far."""
        print(text, file=sys.stderr, flush=True)
        if more is not None:
            total = more + ((self.steps[-1].total or 0) if self.steps else 0)
        self.steps.append(Step(datetime.now(UTC), text, total))
        if len(self.steps) > _STEPS_MAX:
            del self.steps[1:-1:2]  # totals stay true

    def tell(self, result: Any, words: Words) -> None:
        """Print the result, and write the report."""
        self.words, self.ended = words, datetime.now(UTC)
        if self.as_json:
            print(json.dumps(asdict(result)))
        else:
            for line in (*words.lines, *(line for each in words.checks for line in each.problems)):
                print(line)
            print(f"{words.last}, in {(self.ended - self.began).total_seconds():.1f} s")
        sys.stdout.flush()
        self._write()

    def fail(self, text: str) -> NoReturn:
        """Say what is wrong, write the report and exit with code 1."""
        print(f"anabranch: {text}", file=sys.stderr)
        self.failure, self.ended = text, datetime.now(UTC)
        self._write()
        raise SystemExit(1)

    def _write(self) -> None:
        if self.page is not None:
            from anabranch.cli.spark.report import page_of  # noqa: PLC0415 - for those who ask

            try:
                self.page.write_text(page_of(self), encoding="utf-8")
            except OSError as problem:
                print(f"anabranch: no report: {problem}", file=sys.stderr)
                raise SystemExit(1) from None


class Job(click.Command):
    """A sub-command that gets a `Record`; its failures are one line and exit code 1.

    It has --json and --report, and exits with 1 if a check fails.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As of any command."""
        super().__init__(*args, **kwargs)
        self.params += (
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
            click.Option(
                ["--report"],
                type=click.Path(dir_okay=False, path_type=Path),
                help='Write an HTML page on this run: .html. Needs: pip install "anabranch[plot]"',
            ),
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        record = Record(ctx, ctx.params.pop("as_json"))
        page = ctx.params.pop("report")
        ctx.params["record"] = record
        try:
            if page is not None:
                _check(page)
                record.page = page
            super().invoke(ctx)
        except ImportError as problem:
            record.fail(f'{problem}. Spark is an extra: pip install "anabranch[spark]"')
        except (AnabranchError, OSError) as problem:
            record.fail(str(problem))
        if record.words is not None and record.words.failed:
            raise SystemExit(1)


def _check(page: Path) -> None:
    """Before anything is done."""
    from anabranch.spark.plots.plotting import check_matplotlib  # noqa: PLC0415 - an extra

    if page.suffix not in (".html", ".htm"):
        raise click.UsageError(f"--report: the name of a page ends in .html, not {str(page)!r}")
    if not page.parent.is_dir():
        raise click.UsageError(f"--report: {page.parent} is no directory")
    check_matplotlib()
