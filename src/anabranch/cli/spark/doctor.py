"""``anabranch spark doctor``: does Spark work here?"""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command(help="Find out whether Spark works here; exit 0 or 1.")
@click.option("-u", "url", envvar="ANABRANCH_URL", help="Ask this server what it can do.")
@click.option("--master", default="local[2,4]", show_default=True)
@click.option("--spark/--no-spark", default=True, help="Run a small job, or start no Spark at all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(url: str | None, master: str, spark: bool, as_json: bool) -> None:
    """Print findings as they come."""
    from anabranch.spark.jobs.doctor import doctor as examine  # noqa: PLC0415

    findings = []
    for each in examine(master, url, start_spark=spark):
        findings.append(each)
        if not as_json:
            print(f"{'ok ' if each.good else 'BAD'} {each.what}: {each.found}", flush=True)
    healthy = all(each.good for each in findings)
    if as_json:
        print(json.dumps({"healthy": healthy, "findings": [asdict(each) for each in findings]}))
    raise SystemExit(0 if healthy else 1)
