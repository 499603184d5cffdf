"""Common to the sub-commands of ``anabranch spark``: options, a session, output."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.spark.record import Record, Words
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.options import ServerOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")
_PROBLEM_CHARS_MAX = 2000
_LAST_BATCH_S = 10.0  # for a batch that is under way when a job is interrupted


# ------------------------------------------------------------------------------------ the options


def _names(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(_ctx: click.Context, _option: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """What ``-o name=value`` said, as options of the data source."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"-o takes name=value, not {pair!r}")
        options[name] = value
    from anabranch.spark.options import OptionError, check_names  # noqa: PLC0415 - an extra

    try:
        check_names(options)
    except OptionError as problem:
        raise click.UsageError(f"-o {problem}") from None
    return options


def _urls(_ctx: click.Context, _option: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        urls = json.loads(text)
    except ValueError as problem:
        raise click.UsageError(f"--region-urls is no JSON: {problem}") from None
    if not isinstance(urls, dict) or not all(isinstance(each, str) for each in urls.values()):
        raise click.UsageError('--region-urls is an object: {"eu": "redis://eu:6379", ...}')
    return urls


once_option = click.option(
    "--once/--follow",
    default=True,
    show_default=True,
    help="End when all present entries are read, or continue until interrupted.",
)
plot_option = click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help='Draw a picture: .svg or .png. Needs: pip install "anabranch[plot]"',
)
_server_options = (
    click.option(
        "-o",
        "options",
        multiple=True,
        callback=_pairs,
        metavar="NAME=VALUE",
        help="Option of the data source.",
    ),
    click.option(
        "-u",
        "url",
        default="redis://127.0.0.1:6379",
        show_default=True,
        envvar="ANABRANCH_URL",
        help="Address of the server, as workers reach it.",
    ),
)
session_options = click.option(
    "--master",
    default="local[2,4]",
    show_default=True,
    help="local[cores,failures], spark://HOST:PORT or sc://HOST.",
)
"""Of a job that may need a session."""


def names_option(
    name: str, text: str = "Comma-separated; all by default."
) -> Callable[[_Command], _Command]:
    """An option that takes several names; without it there are none."""
    return click.option(name, callback=_names, help=text)


def _all(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


common = _all(*_server_options, session_options)
"""Of a job that talks to a server as well: -u and -o."""

region_options = _all(
    click.option(
        "--region-urls", callback=_urls, metavar="JSON", help="Name to address of every region."
    ),
    names_option("--streams", "Comma-separated keys; all by default."),
    click.option("--pattern", help="Glob of keys, instead of --streams."),
    *_server_options,
)
"""Of a job that looks at streams in all regions."""

# -------------------------------------------------------------------------------------- the jobs


def run(
    record: Record,
    master: str,
    job: Callable[[SparkSession], _Result],
    in_words: Callable[[_Result], Words],
    *,
    check: Callable[[], ServerOptions | None] | None = None,
    follows: bool = False,
) -> None:
    """Run a job in a session of its own and tell its result.

    `in_words` describes it for people. `check` finds mistakes before Java starts, and returns the
    server that must answer. A job that `follows` ends well when it is interrupted.
    """
    logging.basicConfig(format="anabranch: %(message)s", level=logging.WARNING)
    if check is not None:
        checked(check, reachable=not master.startswith("sc://"))
    from anabranch.spark import session  # noqa: PLC0415 - what others do without
    from anabranch.spark.runtime.supervise import reason_of  # noqa: PLC0415 - an extra

    spark = session("anabranch", master)
    if not master.startswith("sc://"):
        spark.sparkContext.setLogLevel("OFF")  # what goes wrong is in the exception
    try:
        with _stopping(spark, follows=follows):
            # It is told before Spark is stopped, which takes about a second.
            run_alone(record, lambda: job(spark), in_words)
    except Exception as problem:  # Spark wraps ours in its own
        record.fail(reason_of(problem)[:_PROBLEM_CHARS_MAX])
    finally:
        spark.stop()


def checked(check: Callable[[], ServerOptions | None], *, reachable: bool = True) -> None:
    """Look at what can be wrong; mistakes in options are usage errors."""
    from anabranch.spark.connection.client import connect  # noqa: PLC0415 - an extra
    from anabranch.spark.options import OptionError  # noqa: PLC0415

    try:
        server = check()
        if server is not None and reachable:
            # Connect once: this raises `ServerUnreachable` and `ServerRefused`.
            connect(replace(server, retries=min(server.retries, 1))).close()
    except OptionError as problem:
        raise click.UsageError(str(problem)) from None


def check_regions(url: str, options: dict[str, str], region_urls: dict[str, str] | None) -> None:
    """Look at the options of a job in all regions, and whether the servers answer."""
    from anabranch.spark.options import ReadOptions  # noqa: PLC0415 - an extra

    def server(address: str) -> ServerOptions:
        return ReadOptions.parse({**options, "url": address, "subscribePattern": "*"}).server

    for each in (region_urls or {"": url}).values():
        checked(partial(server, each))


@contextmanager
def _stopping(spark: SparkSession, *, follows: bool) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the queries of a job that goes on until then.

    A batch that is under way is waited for, but not long: it would be repeated by the next run.
    """
    if not follows:
        yield
        return
    over = threading.Event()

    def stop() -> None:
        deadline = time.monotonic() + _LAST_BATCH_S
        while not over.is_set():  # a query may be about to start
            for query in spark.streams.active:
                if not query.status["isTriggerActive"] or time.monotonic() > deadline:
                    query.stop()
            over.wait(0.1)

    def ask(*_: object) -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        stopper.start()

    stopper = threading.Thread(target=stop, daemon=True)
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        over.set()
        if stopper.is_alive():
            stopper.join()


def run_alone(
    record: Record, job: Callable[[], _Result], in_words: Callable[[_Result], Words]
) -> None:
    """The same for a job that needs no session."""
    result = job()
    record.tell(result, in_words(result))


def run_on_lake(
    record: Record,
    lake: Path,
    master: str,
    job: Callable[[SparkSession | None], _Result],
    in_words: Callable[[_Result], Words],
) -> None:
    """The same for a job on a lake: in a session if the lake is large, else without."""
    from anabranch.spark.lake.table import ARROW_BYTES_MAX, Lake  # noqa: PLC0415 - an extra

    size = 0
    with suppress(AnabranchError):  # the job says it in its own way
        size = sum(each.nbytes for each in Lake(lake).files())
    if size > ARROW_BYTES_MAX:
        run(record, master, job, in_words)
    else:
        run_alone(record, lambda: job(None), in_words)


def counted(count: int, what: str) -> str:
    """``1 row``, ``2,500 rows``, ``2 entries``."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what if count == 1 else several}"


def as_time(ms: int) -> str:
    """Milliseconds since 1970 as a time in UTC, without a fraction if there is none."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ").replace("+00:00", "Z")
