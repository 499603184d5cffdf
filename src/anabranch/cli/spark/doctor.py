"""``anabranch spark doctor``: does Spark work here?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

__all__ = ["doctor"]


@click.command(
    help="""Find out whether Spark works here; exit 0 or 1.

--warm writes down what Java loads for Spark, some 200 MB in the cache, so that it is there at once
from the next start on. It takes a minute, and Java 25.""",
)
@click.option("-u", "url", envvar="ANABRANCH_URL", help="Ask this server what it can do.")
@click.option("--master", default="local[2,4]", show_default=True)
@click.option("--warm", is_flag=True, help="Make Spark start faster on this machine.")
@click.option("--dry-run", is_flag=True, help="Say where --warm would write, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(url: str | None, master: str, warm: bool, dry_run: bool, as_json: bool) -> None:
    """Print findings as they come."""
    from anabranch.spark.jobs.doctor import doctor as examine  # noqa: PLC0415

    if warm and not master.startswith("local"):
        raise click.UsageError("--warm is for local masters")
    if dry_run and not warm:
        raise click.UsageError("--dry-run is for --warm: nothing else is written")
    findings = []
    for each in examine(master, url, _progress if warm else None, dry_run=dry_run):
        findings.append(each)
        if not as_json:
            print(f"{'ok ' if each.good else 'BAD'} {each.what}: {each.found}", flush=True)
    healthy = all(each.good for each in findings)
    if as_json:
        print(json.dumps({"healthy": healthy, "findings": [asdict(each) for each in findings]}))
    raise SystemExit(0 if healthy else 1)


def _progress(step: str) -> None:
    print(f"{step} ...", file=sys.stderr, flush=True)
