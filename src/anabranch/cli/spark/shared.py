"""What the sub-commands of ``anabranch spark`` share: their options, a session, their output."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.options import ServerOptions

__all__ = [
    "as_time",
    "check_server",
    "checked",
    "common",
    "connected",
    "counted",
    "fail",
    "given",
    "region_urls",
    "regions_option",
    "run",
    "run_alone",
    "run_on_lake",
    "session_options",
    "source_options",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")
_PROBLEM_CHARS_MAX = 2000
_LAST_BATCH_S = 10.0  # for a batch that is under way when a job is interrupted


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_url = click.option(
    "-u",
    "url",
    default="redis://127.0.0.1:6379",
    show_default=True,
    envvar="ANABRANCH_URL",
    help="Server, as the workers see it.",
)


def common(command: _Command) -> _Command:
    """Give a sub-command the options of those that talk to a server: --url, --master, --json."""
    return session_options(_url(command))


def session_options(command: _Command) -> _Command:
    """Give a sub-command the options that all have: --master and --json."""
    master = click.option(
        "--master",
        default="local[2,4]",
        show_default=True,
        help="local[cores,failures], spark://HOST:PORT or sc://HOST.",
    )
    return _json(master(command))


def connected(command: _Command) -> _Command:
    """Give a sub-command that needs no session the options --url and --json."""
    return _json(_url(command))


def given(pairs: tuple[str, ...]) -> dict[str, str]:
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


source_options = click.option(
    "-o", "pairs", multiple=True, metavar="NAME=VALUE", help="Option of the data source."
)


regions_option = click.option(
    "--region-urls", "urls", metavar="JSON", help="Name to address of every region."
)


def region_urls(text: str | None) -> dict[str, str] | None:
    """What --region-urls said."""
    if text is None:
        return None
    try:
        urls = json.loads(text)
    except ValueError as problem:
        raise click.UsageError(f"--region-urls is no JSON: {problem}") from None
    if not isinstance(urls, dict) or not all(isinstance(each, str) for each in urls.values()):
        raise click.UsageError('--region-urls is an object: {"eu": "redis://eu:6379", ...}')
    return urls


def run(
    master: str,
    job: Callable[[SparkSession], _Result],
    *,
    as_json: bool,
    in_words: Callable[[_Result], str],
    check: Callable[[], ServerOptions | None] | None = None,
    follows: bool = False,
) -> _Result:
    """Run a job in a session of its own, print its result and return it.

    `in_words` says it to people. `check` looks at what can be
    wrong before Java starts, and names the server that must answer. A job that `follows` ends well
    when it is interrupted. Failures become exit code 1.
    """
    logging.basicConfig(format="anabranch: %(message)s", level=logging.WARNING)
    if check is not None:
        checked(check, lambda: None, reachable=not master.startswith("sc://"))
    try:
        from anabranch.spark import session  # noqa: PLC0415 - what others do without

        spark = session("anabranch", master)
    except ImportError as problem:
        fail(f'{problem}. Spark is an extra: pip install "anabranch[spark]"')
    except AnabranchError as problem:
        fail(str(problem))
    if not master.startswith("sc://"):
        spark.sparkContext.setLogLevel("OFF")  # what goes wrong is in the exception
    began = time.monotonic()
    try:
        with _stopping(spark, follows=follows):
            result = job(spark)
    except Exception as problem:  # Spark wraps ours in its own
        from anabranch.spark.supervise import reason_of  # noqa: PLC0415 - an extra

        fail(reason_of(problem)[:_PROBLEM_CHARS_MAX])
    else:
        # Before Spark is told to end, which takes it about a second.
        _tell(result, in_words, as_json=as_json, began=began)
    finally:
        spark.stop()
    return result


def checked(
    check: Callable[[], ServerOptions | None],
    job: Callable[[], _Result],
    *,
    reachable: bool = True,
) -> _Result:
    """Look at what can be wrong, then do something short: mistakes in options are usage errors."""
    from anabranch.spark.options import OptionError  # noqa: PLC0415 - an extra

    try:
        server = check()
        if server is not None and reachable:
            check_server(server)
        return job()
    except ImportError as problem:
        fail(f'{problem}. Spark is an extra: pip install "anabranch[spark]"')
    except OptionError as problem:
        raise click.UsageError(str(problem)) from None
    except (AnabranchError, OSError) as problem:
        fail(str(problem))


def check_server(server: ServerOptions) -> None:
    """Connect once, and let the user in; raises `ServerUnreachable` and `ServerRefused`."""
    from anabranch.spark.client import connect  # noqa: PLC0415 - an extra

    with connect(replace(server, retries=min(server.retries, 1))):
        pass


@contextmanager
def _stopping(spark: SparkSession, *, follows: bool) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the queries of a job that goes on until then.

    A batch that is under way is waited for, but not long: it would be repeated by the next run.
    """
    if not follows:
        yield
        return
    asked, over = threading.Event(), threading.Event()

    def stop() -> None:
        asked.wait()
        deadline = time.monotonic() + _LAST_BATCH_S
        while not over.is_set():  # a query may be about to start
            for query in spark.streams.active:
                if not query.status["isTriggerActive"] or time.monotonic() > deadline:
                    query.stop()
            over.wait(0.1)

    def ask(*_: object) -> None:
        asked.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        over.set()
        asked.set()
        stopper.join()


def run_alone(
    job: Callable[[], _Result],
    *,
    as_json: bool,
    in_words: Callable[[_Result], str],
    let: type[AnabranchError] | None = None,
) -> _Result:
    """The same for a job that needs no session. It may import what comes with Spark.

    Errors of kind `let` are the caller's.
    """
    began = time.monotonic()
    try:
        result = job()
    except ImportError as problem:
        fail(f'{problem}. Spark is an extra: pip install "anabranch[spark]"')
    except (AnabranchError, OSError) as problem:
        if let is not None and isinstance(problem, let):
            raise
        fail(str(problem))
    _tell(result, in_words, as_json=as_json, began=began)
    return result


def run_on_lake(
    lake: Path,
    master: str,
    job: Callable[[SparkSession | None], _Result],
    *,
    as_json: bool,
    in_words: Callable[[_Result], str],
) -> _Result:
    """The same for a job on a lake: in a session if the lake is large, else without."""

    def is_large() -> bool:
        from anabranch.spark.lake import ARROW_BYTES_MAX, Lake  # noqa: PLC0415 - an extra

        try:
            return sum(each.nbytes for each in Lake(lake).files()) > ARROW_BYTES_MAX
        except AnabranchError:
            return False  # the job says it in its own way

    try:
        large = is_large()
    except ImportError as problem:
        fail(f'{problem}. Lakes are an extra: pip install "anabranch[lake]"')
    if large:
        return run(master, job, as_json=as_json, in_words=in_words)
    return run_alone(lambda: job(None), as_json=as_json, in_words=in_words)


def _tell(
    result: _Result, in_words: Callable[[_Result], str], *, as_json: bool, began: float
) -> None:
    if as_json:
        print(json.dumps(asdict(result)))  # type: ignore[call-overload]
    else:
        print(f"{in_words(result)}, in {time.monotonic() - began:.1f} s")
    sys.stdout.flush()


def counted(count: int, what: str, several: str | None = None) -> str:
    """``1 row``, ``2,500 rows``."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def as_time(ms: int) -> str:
    """Milliseconds since 1970 as a time in UTC, without a fraction if there is none."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ").replace("+00:00", "Z")


def fail(text: str) -> NoReturn:
    """Say what is wrong and exit with code 1."""
    print(f"anabranch: {text}", file=sys.stderr)
    raise SystemExit(1)
