"""``anabranch spark audit`` and ``idmp-audit``: have all regions the same, and nothing twice?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli.numbers import FiniteRange
from anabranch.cli.spark.job import Job
from anabranch.cli.spark.record import Check, Record, Words, checks_of
from anabranch.cli.spark.shared import (
    check_regions,
    region_options,
    run,
    run_alone,
    session_options,
)

if TYPE_CHECKING:
    from anabranch.spark.jobs.audit import Audited
    from anabranch.spark.jobs.idmp_audit import Double, IdmpAudited, ProducerMemory


@click.command(
    cls=Job,
    help="""Compare the entries of all regions; exit 1 if there is a finding.

Entries that some regions have not received yet are not compared. Spark is started for more than
five million entries only.

\b
Example:
  anabranch spark audit --region-urls '{"eu": "redis://eu:6379", "us": "redis://us:6379"}'
""",
)
@region_options
@session_options
@click.option("--bucket-ms", type=click.IntRange(1), help="Span of time of one digest.")
@click.option(
    "--settle",
    "settle_s",
    type=FiniteRange(0),
    default=5.0,
    show_default=True,
    help="Seconds that regions may take to catch up with each other.",
)
@click.option("--limit", default=1000, show_default=True, help="Greatest number of findings.")
def audit(record: Record, url: str, master: str, options: dict[str, str], **more: Any) -> None:
    """Compare; the exit code is the result."""
    from anabranch.spark.jobs.audit import ALONE_MAX, AuditTooLarge  # noqa: PLC0415 - an extra
    from anabranch.spark.jobs.audit import audit as job  # noqa: PLC0415

    def audited(spark: Any, alone_max: int | None = None) -> Audited:
        return job(
            spark,
            alone_max=alone_max,
            options={"url": url, **options},
            progress=lambda text: record.step(f"anabranch: {text}"),
            **more,
        )

    check_regions(url, options, more["region_urls"])
    if len(more["region_urls"] or ()) < 2:
        raise click.UsageError("name two regions or more: --region-urls")
    try:
        run_alone(record, lambda: audited(None, ALONE_MAX), _audited)
    except AuditTooLarge:
        run(record, master, audited, _audited)


_HOLDS: Final = {
    "missing": "every region has the entries of the others",
    "extra": "no region has entries that their own region has not",
    "content": "entries of the same ID are the same",
}


def _audited(done: Audited) -> Words:
    found = []
    for each in done.findings:
        by = f", written by region {each.replica_id}" if each.replica_id else ""
        words = f"{each.kind}: {each.stream} {each.what}{by}: {', '.join(each.regions)}"
        found.append((each.kind, words))
    checks = checks_of(_HOLDS, found)
    apart = [f"{done.undecided} differences may be under way: the regions are apart"]
    checks.append(Check("all is decided", apart if done.undecided else (), fails=False))
    lines = ["there is more: raise --limit"] if done.more else []
    counts = ", ".join(
        f"{count} of {name}" for name, count in zip(done.regions, done.entries, strict=True)
    )
    verdict = "converged" if done.converged else "DIVERGED"
    return Words(f"{verdict}: {done.streams} streams, entries compared: {counts}", lines, checks)


@click.command(
    "idmp-audit",
    cls=Job,
    help="""Report refused duplicates, producers near their limits, and rows written twice.

It exits with 1 if rows that one producer wrote in two regions are there twice, which
one region knows of all. No Java is needed.

\b
Example:
  anabranch spark idmp-audit -u redis://eu:6379 --streams orders
""",
)
@region_options
@click.option(
    "--near",
    type=FiniteRange(0, 1),
    default=0.1,
    show_default=True,
    help="Fraction of capacity or duration that counts as nearly used up.",
)
def idmp_audit(record: Record, url: str, options: dict[str, str], **more: Any) -> None:
    """Look; the exit code is the result."""
    from anabranch.spark.jobs.idmp_audit import idmp_audit as job  # noqa: PLC0415 - an extra

    def audited() -> IdmpAudited:
        return job(
            options={"url": url, **options},
            progress=lambda text: record.step(f"anabranch: {text}"),
            **more,
        )

    check_regions(url, options, more["region_urls"])
    run_alone(record, audited, _idmp_audited)


def _idmp_audited(done: IdmpAudited) -> Words:
    lines = [
        f"{each.stream}{_at(each.region)}: {each.producers} producers, {each.iids} IDs remembered "
        f"for {each.duration_s} s ({each.maxsize} of each), {each.refused} duplicates refused"
        for each in done.memories
    ]
    capacity = [
        f"near capacity: {_name(each)}: {each.iids} of {each.maxsize} IDs, which reach back "
        f"{each.remembers_s:.0f} s"
        for each in done.near_capacity
    ]
    expiry = [
        f"near expiry: {_name(each)}: all is forgotten in {each.forgotten_in_s:.0f} s"
        for each in done.near_expiry
    ]
    checks = (
        Check("producers have room for more IDs", capacity, fails=False),
        Check("producers are remembered for a while", expiry, fails=False),
        Check("nothing is there twice", [_double("TWICE", each) for each in done.twice]),
    )
    lines += [_double("collapsed", each) for each in done.collapsed]
    last = f"{done.producers} producers, {len(done.twice)} rows or batches are there twice"
    return Words(last, lines, checks)


def _double(word: str, each: Double) -> str:
    places = zip(each.regions, each.ids or ("",) * len(each.regions), strict=True)
    accepted = " and ".join(f"{region} as {entry}" if entry else region for region, entry in places)
    return f"{word}: {each.stream} {each.producer}: {each.what}, accepted by regions {accepted}"


def _name(each: ProducerMemory) -> str:
    return f"{each.stream} {each.producer}{_at(each.region)}"


def _at(region: str) -> str:
    return f" at {region}" if region else ""
