"""``anabranch spark ...``: the jobs of `anabranch.spark.jobs` from the command line.

Each command is made of the signature of its job: parameters, their types, defaults and help.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any

import click

from anabranch.cli.failures import Failed
from anabranch.cli.group import NearestGroup
from anabranch.cli.options import FiniteRange
from anabranch.cli.spark.results import findings_of, tell
from anabranch.cli.spark.running import run
from anabranch.errors import AnabranchError
from anabranch.spark.jobs.signatures import JOBS, ArchiveJob, JobSignature
from anabranch.spark.options import OptionError

__all__ = ["command"]


@click.group(
    cls=NearestGroup,
    help="""Pipelines on Apache Spark. They need: pip install "anabranch[spark]".

This installs a Java runtime, too. 'anabranch spark doctor' checks the installation. Every job is
also a function of anabranch.spark.jobs.""",
)
def command() -> None:
    """The group of all jobs."""


# ------------------------------------------------------------------------- parameters to options


def _parameter(name: str, hint: str, of: Field[Any]) -> click.Parameter:
    """The argument or the option for a parameter of a job; `hint` is its type."""
    about = of.metadata
    if about.get("is_argument"):
        return click.Argument([name], type=click.Path(path_type=Path))
    names = about.get("names") or (f"--{name.replace('_', '-')}",)
    more: dict[str, Any] = {"help": about["help"], "metavar": about.get("metavar")}
    if name == "url":
        more["envvar"] = "ANABRANCH_URL"
    if name == "options":
        return click.Option([*names, name], multiple=True, callback=_pairs, **more)
    if of.default not in (None, (), "", False, MISSING):
        more |= {"default": of.default, "show_default": True}
    elif of.default == "":
        more["default"] = ""
    if hint == "bool":
        more |= {"is_flag": True, "default": of.default}
    elif "Sequence" in hint:
        more["callback"] = _names
    elif "Mapping" in hint:
        more["callback"] = _urls
    elif "int" in hint:
        more["type"] = click.IntRange(about["least"]) if "least" in about else int
    elif "float" in hint:
        more["type"] = FiniteRange(about.get("least"))
    elif "Path" in hint:
        more["type"] = click.Path(path_type=Path)
    return click.Option([*names, name], **more)


def _names(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(_ctx: click.Context, _option: click.Parameter, pairs: Sequence[str]) -> dict[str, str]:
    """What ``-o name=value`` said, as options of the data source."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"-o takes name=value, not {pair!r}")
        options[name] = value
    return options


def _urls(
    _ctx: click.Context, _option: click.Parameter, text: str | None
) -> Mapping[str, str] | None:
    if text is None:
        return None
    try:
        urls = json.loads(text)
    except ValueError as problem:
        raise click.UsageError(f"--region-urls is no JSON: {problem}") from None
    if not isinstance(urls, dict) or not all(isinstance(each, str) for each in urls.values()):
        raise click.UsageError('--region-urls is an object: {"eu": "redis://eu:6379", ...}')
    return urls


_MASTER = click.Option(
    ["--master"],
    help="Let Spark do the work: local[cores,failures], spark://HOST:PORT or sc://HOST.",
)
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")


# --------------------------------------------------------------------------------------- commands


class _JobCommand(click.Command):
    """A command that runs a job; a failure is one line and exit code 1, as is a finding."""

    def __init__(self, signature: type[JobSignature]) -> None:
        self._signature = signature
        parameters = [
            _parameter(each.name, str(each.type), each)
            for each in fields(signature)
            if each.metadata
        ]
        arguments = [each for each in parameters if isinstance(each, click.Argument)]
        options = [each for each in parameters if isinstance(each, click.Option)]
        master = [_MASTER] if signature.takes_session else []
        text = (getdoc(signature) or "").replace("\nExample:", "\n\b\nExample:")
        super().__init__(
            signature.__name__.removesuffix("Job").lower(),
            params=[*arguments, *options, *master, _JSON],
            help=text,
        )

    def invoke(self, ctx: click.Context) -> None:
        """Run the job; exit with 1 if it finds something, or fails."""
        given = dict(ctx.params)
        told = partial(tell, began=time.monotonic(), as_json=given.pop("as_json"))
        master = given.pop("master") if self._signature.takes_session else None
        try:
            job = getattr(import_module(f"anabranch.spark.jobs.{self.name}"), str(self.name))
            given["progress"] = partial(print, file=sys.stderr, flush=True)
            signature = self._signature(**given)
            if isinstance(signature, ArchiveJob):
                given["stop"] = signature.stop
            result = run(partial(job, **given), signature, master, told)
        except ImportError as problem:
            raise Failed(f'{problem}. Spark is an extra: pip install "anabranch[spark]"') from None
        except OptionError as problem:
            raise click.UsageError(str(problem)) from None
        except (AnabranchError, OSError) as problem:
            raise Failed(str(problem)) from None
        if findings_of(result):
            raise SystemExit(1)


for _each in JOBS:
    command.add_command(_JobCommand(_each))
