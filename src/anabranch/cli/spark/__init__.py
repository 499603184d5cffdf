"""``anabranch spark ...``: the jobs of `anabranch.spark.jobs` from the command line."""

from __future__ import annotations

import click

from anabranch.cli.nearest import NearestGroup
from anabranch.cli.spark.audits import audit, idmp_audit
from anabranch.cli.spark.doctor import doctor
from anabranch.cli.spark.ingest import ingest
from anabranch.cli.spark.lag import lag
from anabranch.cli.spark.lake import archive, compact, migrate_lake, replay, verify
from anabranch.cli.spark.windows import windows

__all__ = ["command"]


@click.group(
    cls=NearestGroup,
    help="""Pipelines on Apache Spark. They need: pip install "anabranch[spark]".

This installs a Java runtime, too. 'anabranch spark doctor' checks the installation. Every job is
also a function of anabranch.spark.jobs.""",
)
def command() -> None:
    """The group of all jobs."""


for _each in (
    *(doctor, ingest, archive, compact, verify, replay, migrate_lake),
    *(windows, audit, idmp_audit, lag),
):
    command.add_command(_each)
