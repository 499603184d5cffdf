"""``anabranch spark idmp-audit``: are idempotent producers safe?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.record import Check, Job, Record, Words
from anabranch.cli.spark.shared import region_options, run_alone

if TYPE_CHECKING:
    from anabranch.spark.jobs.idmp_audit import IdmpAudited, ProducerMemory
    from anabranch.spark.producers import Double

__all__ = ["idmp_audit"]


@click.command(
    "idmp-audit",
    cls=Job,
    help="""Report refused duplicates, producers near their limits, and rows written twice.

It exits with 1 if rows that one producer wrote in two regions are there twice. No Java is needed.

\b
Example:
  anabranch spark idmp-audit -u redis://eu:6379 --streams orders
""",
)
@region_options
@click.option(
    "--near",
    type=click.FloatRange(0, 1),
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

    run_alone(record, audited, _in_words)


def _in_words(done: IdmpAudited) -> Words:
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
