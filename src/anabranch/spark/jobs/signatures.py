"""The signatures of all jobs: their parameters, from which ``anabranch spark`` makes its options.

A signature is a class whose fields are the parameters of one job, with types, defaults and help;
its docstring is the help of the command. `taking` gives the function of the job the same
parameters. Commands are listed and explained without Arrow and Spark, so nothing here imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar

from anabranch.spark.options import OptionError, ReadOptions, ServerOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_P = ParamSpec("_P")
_Signature = TypeVar("_Signature")
_Result = TypeVar("_Result")


Progress = Callable[[str], None]
"""Gets a line for people: how far a job is."""


def taking(
    signature: Callable[_P, _Signature],
) -> Callable[
    [Callable[[SparkSession | None, _Signature], _Result]],
    Callable[Concatenate[SparkSession | None, _P], _Result],
]:
    """Give a job, which takes a session and a signature, the parameters of the signature."""

    def decorate(
        job: Callable[[SparkSession | None, _Signature], _Result],
    ) -> Callable[Concatenate[SparkSession | None, _P], _Result]:
        @wraps(job)
        def call(spark: SparkSession | None, /, *given: _P.args, **named: _P.kwargs) -> _Result:
            return job(spark, signature(*given, **named))

        return call

    return decorate


def _option(default: Any, text: str = "", **more: Any) -> Any:
    """A parameter that is an option of the command as well: ``--name``, with this help.

    `more`: ``least`` of a number; ``names`` instead of that of the field; ``metavar``.
    """
    return field(default=default, metadata={"help": text, **more})


_ARGUMENT: Final = {"is_argument": True}
"""Of a parameter that is an argument of the command."""


@dataclass(frozen=True, slots=True)
class JobSignature:
    """What all jobs have."""

    _: KW_ONLY
    progress: Progress = lambda _step: None
    dry_run: bool = False
    """Report what would be done, and write nothing."""

    takes_session: ClassVar[bool] = True
    """Whether there is work for Spark."""

    def check(self) -> Iterator[ServerOptions]:
        """The servers that must answer; raises `OptionError` for options that cannot be."""
        yield from ()


@dataclass(frozen=True, slots=True)
class _OnServer(JobSignature):
    """A job that talks to a server."""

    _: KW_ONLY
    options: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"help": "Option of the data source.", "names": ("-o",), "metavar": "NAME=VALUE"},
    )
    url: str = _option(
        "redis://127.0.0.1:6379", "Address of the server, as workers reach it.", names=("-u",)
    )

    @property
    def given(self) -> dict[str, str]:
        """All options of the data source."""
        return {"url": self.url, **self.options}


_DRY_RUN: Final = "Report what would be done, and write nothing."


@dataclass(frozen=True, slots=True)
class ArchiveJob(_OnServer):
    """Copy what is new in streams to Parquet files in a LAKE.

    It starts where the last run ended and says where that is, and after each batch how many entries
    are left. The option '-o maxEntriesPerTrigger=100000' limits the size of a batch.

    Example:
      anabranch spark archive lake/ --streams orders,payments
    """

    lake: str | Path = field(metadata=_ARGUMENT)
    _: KW_ONLY
    streams: Sequence[str] = _option((), "Comma-separated keys.")
    pattern: str | None = _option(None, "Glob of keys, instead of --streams.")
    once: bool = _option(
        True,
        "End when all present entries are read, or continue until interrupted.",
        names=("--once/--follow",),
    )
    follow_deletions: bool = _option(
        False, "Also delete from the lake what was deleted from the streams, not what was trimmed."
    )
    dry_run: bool = _option(False, _DRY_RUN)
    checkpoint: str | Path | None = None
    """Its directory; by default it is in the lake."""
    interval_s: float = 10.0
    """From one batch to the next, if it goes on."""
    stop: Event = field(default_factory=Event, compare=False)
    """Set it, and the job ends after the batch that is under way."""

    @property
    def given(self) -> dict[str, str]:
        """All options of the data source; streams are read from their first entry on."""
        what = {"startingOffsets": "earliest"}
        if {"startingoffsets", "startingtimestamp"} & {name.lower() for name in self.options}:
            what = {}
        if self.streams:
            what["subscribe"] = ",".join(self.streams)
        if self.pattern is not None:
            what["subscribePattern"] = self.pattern
        if self.follow_deletions:
            what["changes"] = "true"
        return {"url": self.url, **what, **self.options}

    @property
    def read(self) -> ReadOptions:
        """How the streams are read; raises `OptionError`."""
        options = ReadOptions.parse(self.given)
        options.check_kind("streaming")
        if options.frontier_interval_ms is not None:
            raise OptionError("an archive has no watermark: leave frontierInterval out")
        return options

    def check(self) -> Iterator[ServerOptions]:
        """The server with the streams."""
        yield self.read.server


@dataclass(frozen=True, slots=True)
class CompactJob(JobSignature):
    """Merge small files of a LAKE, and remove those merged long ago.

    Files of one stream and day are merged. Readers and 'archive' may run at the same time. The job
    can be interrupted at any moment and run again. It exits with 1 if files have changed since they
    were written; the files of such a day are not merged.

    Example:
      anabranch spark compact lake/ --target-mib 256 --retain-hours 24
    """

    lake: str | Path = field(metadata=_ARGUMENT)
    _: KW_ONLY
    streams: Sequence[str] = _option((), "Comma-separated; all by default.")
    target_mib: int = _option(128, "Largest size of a merged file.", least=1)
    retain_hours: int = _option(
        168, "How long merged files stay for readers of older versions.", least=0
    )
    dry_run: bool = _option(False, _DRY_RUN)


@dataclass(frozen=True, slots=True)
class VerifyJob(JobSignature):
    """Read all files of a LAKE, and compare them with its log.

    It checks digests, counts and days, and looks for missing files, for positions without an entry
    and for positions with two entries. It exits with 1 if there is a finding.

    Example:
      anabranch spark verify lake/ --allow-gaps
    """

    lake: str | Path = field(metadata=_ARGUMENT)
    _: KW_ONLY
    allow_gaps: bool = _option(False, "Missing positions are no finding.")


@dataclass(frozen=True, slots=True)
class AuditJob(_OnServer):
    """Compare the entries of all regions; exit 1 if there is a finding.

    Entries that some regions have not received yet are not compared.

    Example:
      anabranch spark audit --region-urls '{"eu": "redis://eu:6379", "us": "redis://us:6379"}'
    """

    takes_session: ClassVar[bool] = False
    _: KW_ONLY
    region_urls: Mapping[str, str] | None = _option(
        None, "Name to address of every region.", metavar="JSON"
    )
    streams: Sequence[str] = _option((), "Comma-separated keys; all by default.")
    pattern: str | None = _option(None, "Glob of keys, instead of --streams.")
    settle_s: float = _option(
        5.0,
        "Seconds that regions may take to catch up with each other.",
        least=0,
        names=("--settle",),
    )
    limit: int = _option(1000, "Greatest number of findings.")

    @property
    def servers(self) -> dict[str, ServerOptions]:
        """All regions by name; raises `OptionError` if there is nothing to compare."""
        what = {"subscribe": ",".join(self.streams)} if self.streams else {}
        read = ReadOptions.parse(
            {**self.given, **(what or {"subscribePattern": self.pattern or "*"})}
        )
        urls = self.region_urls or {}
        if len(urls) < 2:
            raise OptionError(
                "two regions are needed to compare: name them by --region-urls (region_urls), such "
                'as {"eu": "redis://eu:6379", "us": "redis://us:6379"}'
            )
        return {name: replace(read.server, url=url) for name, url in urls.items()}

    def check(self) -> Iterator[ServerOptions]:
        """All regions."""
        yield from self.servers.values()


@dataclass(frozen=True, slots=True)
class DoctorJob(JobSignature):
    """Find out whether Spark works here; exit 1 if it does not."""

    takes_session: ClassVar[bool] = False
    _: KW_ONLY
    url: str | None = _option(None, "Ask this server what it can do.", names=("-u",))
    master: str = _option("local[2,4]", "Where to run the small job.")
    start_spark: bool = _option(
        True, "Run a small job, or start no Spark at all.", names=("--spark/--no-spark",)
    )


JOBS: Final[tuple[type[JobSignature], ...]] = (
    *(DoctorJob, ArchiveJob, CompactJob, VerifyJob, AuditJob),
)
"""In the order of the help. The function of ``AuditJob`` is `anabranch.spark.jobs.audit.audit`."""
