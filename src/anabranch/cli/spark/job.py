"""The form of all sub-commands of ``anabranch spark``: options, the record, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anabranch.cli.spark.record import Record
from anabranch.errors import AnabranchError


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
                from anabranch.cli.spark.report import page_of  # noqa: PLC0415 - an extra

                record.page, record.page_of = page, page_of
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
