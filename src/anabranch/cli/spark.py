"""``anabranch spark ...``: the jobs of `anabranch.spark.jobs` from the command line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_PROBLEM_CHARS_MAX = 2000


@click.group(
    help="""Pipelines on Apache Spark. They need: pip install "anabranch[spark]".

A Java runtime comes along; 'anabranch spark doctor' says whether everything is in place. Every job
is also a function of anabranch.spark.jobs.""",
)
def command() -> None:
    """The group itself has nothing to do."""


def _common(command: _Command) -> _Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--master",
            default="local[2,4]",
            show_default=True,
            help="local[cores,failures], spark://HOST:PORT or sc://HOST.",
        ),
        click.option(
            "-u",
            "url",
            default="redis://127.0.0.1:6379",
            show_default=True,
            envvar="ANABRANCH_URL",
            help="Server, as the workers see it.",
        ),
    ):
        command = option(command)
    return command


def _given(pairs: tuple[str, ...]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"-o takes name=value, not {pair!r}")
        options[name] = value
    return options


_options = click.option(
    "-o", "pairs", multiple=True, metavar="NAME=VALUE", help="Option of the data source."
)


def _run(master: str, job: Callable[[SparkSession], Any], *, as_json: bool) -> None:
    """Run a job in a session of its own and print its result; failures become exit code 1."""
    logging.basicConfig(format="anabranch: %(message)s", level=logging.WARNING)
    try:
        from anabranch.spark import session  # noqa: PLC0415 - what others do without

        spark = session("anabranch", master)
    except ImportError as problem:
        _fail(f'{problem}. Spark is an extra: pip install "anabranch[spark]"')
    except AnabranchError as problem:
        _fail(str(problem))
    try:
        result = asdict(job(spark))
    except Exception as problem:  # Spark wraps ours in its own
        _fail(_told(problem))
    finally:
        spark.stop()
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        shown = ", ".join(map(str, value)) or "none" if isinstance(value, (list, tuple)) else value
        print(f"{name.replace('_', ' ')}: {shown}")


def _told(problem: Exception) -> str:
    """The line that is about us, of all that Spark says."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("anabranch.")]
    line = (own or lines or [type(problem).__name__])[0]
    if own:
        line = line.partition(": ")[2]
    return line[:_PROBLEM_CHARS_MAX]


def _fail(text: str) -> NoReturn:
    print(f"anabranch: {text}", file=sys.stderr)
    raise SystemExit(1)


@command.command(help="Find out whether Spark works here; exit 0 or 1.")
@click.option("-u", "url", envvar="ANABRANCH_URL", help="Ask this server what it can do.")
@click.option("--master", default="local[2,4]", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(url: str | None, master: str, as_json: bool) -> None:
    """Print findings as they come."""
    from anabranch.spark.jobs.doctor import doctor as examine  # noqa: PLC0415

    findings = []
    for each in examine(master, url):
        findings.append(each)
        if not as_json:
            print(f"{'ok ' if each.good else 'BAD'} {each.what}: {each.found}", flush=True)
    healthy = all(each.good for each in findings)
    if as_json:
        print(json.dumps({"healthy": healthy, "findings": [asdict(each) for each in findings]}))
    raise SystemExit(0 if healthy else 1)


@command.command(
    help="""Append the rows of CSV, JSON lines and Parquet files to a stream, each file once.

PATHS are files or directories. A second run adds nothing; a run that died is completed.

\b
Example:
  anabranch spark ingest orders.csv --stream orders --schema 'number int, city string'
""",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--stream", required=True, help="Where to.")
@click.option("--key", help="Column; rows go to STREAM:VALUE.")
@click.option("--schema", help="Columns and their types, as in SQL.")
@click.option("--bad-stream", help="For lines that do not fit. [default: STREAM:bad]")
@click.option("--dry-run", is_flag=True, help="Read and count only.")
@_options
@_common
def ingest(
    url: str,
    master: str,
    as_json: bool,
    paths: tuple[Path, ...],
    pairs: tuple[str, ...],
    **more: Any,
) -> None:
    """Files into streams."""
    from anabranch.spark.jobs.ingest import ingest as job  # noqa: PLC0415

    def progress(path: Path, rows: int) -> None:
        print(f"{path}: {rows} rows", file=sys.stderr)

    options = _given(pairs)
    _run(
        master,
        lambda spark: job(spark, paths, url=url, progress=progress, options=options, **more),
        as_json=as_json,
    )


@command.command(
    help="""Copy streams to Parquet files in directory LAKE, from where the last run ended.

\b
Example:
  anabranch spark archive lake/ --streams orders,payments
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--streams", help="Comma-separated keys.")
@click.option("--pattern", help="Glob of keys, instead.")
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@_options
@_common
def archive(
    url: str,
    master: str,
    as_json: bool,
    lake: Path,
    streams: str | None,
    pattern: str | None,
    follow: bool,
    pairs: tuple[str, ...],
) -> None:
    """Streams into a lake."""
    from anabranch.spark.jobs.archive import archive as job  # noqa: PLC0415

    if (streams is None) == (pattern is None):
        raise click.UsageError("give one of --streams and --pattern")
    what = {"subscribe": streams} if streams is not None else {"subscribePattern": str(pattern)}
    options = {"url": url, **what, **_given(pairs)}
    _run(master, lambda spark: job(spark, lake, once=not follow, options=options), as_json=as_json)


@command.command(
    help="""Write the entries of a LAKE to streams again, with their IDs or with new ones.

\b
Example:
  anabranch spark replay lake/ -u redis://other:6379
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--streams", help="Comma-separated; all by default.")
@click.option("--since-ms", type=int, help="Only IDs from this time on.")
@click.option("--until-ms", type=int, help="Only IDs before this time.")
@click.option("--prefix", default="", help="Put this before the names of streams.")
@click.option("--new-ids", is_flag=True, help="Do not keep IDs.")
@click.option("--dry-run", is_flag=True, help="Count only.")
@_options
@_common
def replay(
    url: str,
    master: str,
    as_json: bool,
    lake: Path,
    streams: str | None,
    new_ids: bool,
    pairs: tuple[str, ...],
    **more: Any,
) -> None:
    """A lake into streams."""
    from anabranch.spark.jobs.replay import replay as job  # noqa: PLC0415

    names = streams.split(",") if streams else None
    options = _given(pairs)
    _run(
        master,
        lambda spark: job(
            spark, lake, url=url, streams=names, keep_ids=not new_ids, options=options, **more
        ),
        as_json=as_json,
    )
