"""``anabranch spark idmp-audit``: are idempotent producers safe?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.shared import (
    connected,
    fail,
    given,
    region_urls,
    regions_option,
    show,
    source_options,
)
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.spark.jobs.idmp_audit import IdmpAudited, ProducerMemory

__all__ = ["idmp_audit"]


@click.command(
    "idmp-audit",
    help="""Tell what was refused of producers, whose memory is short, and what was written twice.

Exit 1 if something that one producer wrote in two regions is there twice. It needs no Java.

\b
Example:
  anabranch spark idmp-audit -u redis://eu:6379 --streams orders
""",
)
@regions_option
@click.option("--streams", help="Comma-separated keys; all by default.")
@click.option("--pattern", help="Glob of keys, instead.")
@click.option(
    "--near",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="Part of capacity or duration that counts as nearly used up.",
)
@source_options
@connected
def idmp_audit(
    url: str,
    as_json: bool,
    urls: str | None,
    streams: str | None,
    pairs: tuple[str, ...],
    **more: Any,
) -> None:
    """Look, and tell by the exit code."""
    try:
        from anabranch.spark.jobs.idmp_audit import idmp_audit as job  # noqa: PLC0415

        done = job(
            region_urls=region_urls(urls),
            streams=streams.split(",") if streams else (),
            options={"url": url, **given(pairs)},
            **more,
        )
    except ImportError as problem:
        fail(f'{problem}. Spark is an extra: pip install "anabranch[spark]"')
    except AnabranchError as problem:
        fail(str(problem))
    if as_json:
        show(done, as_json=True)
    else:
        print(_in_words(done))
    raise SystemExit(1 if done.twice else 0)


def _in_words(done: IdmpAudited) -> str:
    lines = [
        f"{each.stream}{_at(each.region)}: {each.producers} producers, {each.iids} IDs remembered "
        f"for {each.duration_s} s ({each.maxsize} of each), {each.refused} duplicates refused"
        for each in done.memories
    ]
    lines += [
        f"near capacity: {_name(each)}: {each.iids} of {each.maxsize} IDs, which reach back "
        f"{each.remembers_s:.0f} s"
        for each in done.near_capacity
    ]
    lines += [
        f"near expiry: {_name(each)}: all is forgotten in {each.forgotten_in_s:.0f} s"
        for each in done.near_expiry
    ]
    for word, some in (("TWICE", done.twice), ("collapsed", done.collapsed)):
        lines += [
            f"{word}: {each.stream} {each.producer}: {each.what}, accepted by regions "
            + " and ".join(
                f"{region} as {entry}" if entry else region
                for region, entry in zip(
                    each.regions, each.ids or ("",) * len(each.regions), strict=True
                )
            )
            for each in some
        ]
    lines.append(f"{done.producers} producers, {len(done.twice)} rows or batches are there twice")
    return "\n".join(lines)


def _name(each: ProducerMemory) -> str:
    return f"{each.stream} {each.producer}{_at(each.region)}"


def _at(region: str) -> str:
    return f" at {region}" if region else ""
