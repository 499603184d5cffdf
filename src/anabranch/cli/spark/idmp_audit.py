"""``anabranch spark idmp-audit``: are idempotent producers safe?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.shared import Job, connected, report, run_alone

if TYPE_CHECKING:
    from anabranch.spark.jobs.idmp_audit import IdmpAudited, ProducerMemory

__all__ = ["idmp_audit"]


@click.command(
    "idmp-audit",
    cls=Job,
    help="""Tell what was refused of producers, whose memory is short, and what was written twice.

Exit 1 if something that one producer wrote in two regions is there twice. It needs no Java.

\b
Example:
  anabranch spark idmp-audit -u redis://eu:6379 --streams orders
""",
)
@connected
@click.option(
    "--near",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="Part of capacity or duration that counts as nearly used up.",
)
def idmp_audit(url: str, as_json: bool, options: dict[str, str], **more: Any) -> None:
    """Look, and tell by the exit code."""
    from anabranch.spark.jobs.idmp_audit import idmp_audit as job  # noqa: PLC0415 - an extra

    def audited() -> IdmpAudited:
        return job(
            options={"url": url, **options},
            progress=lambda text: report(f"anabranch: {text}"),
            **more,
        )

    done = run_alone(audited, as_json=as_json, in_words=_in_words)
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
