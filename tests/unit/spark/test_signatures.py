"""Each job has one signature, from which its function and its command are made."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.spark import command
from anabranch.cli.spark.results import figures_of, findings_of, lines_of
from anabranch.spark.jobs.lag import GroupLag, Lagged
from anabranch.spark.jobs.signatures import (
    JOBS,
    ArchiveJob,
    CompactJob,
    JobSignature,
    SessionNeeded,
    taking,
)
from anabranch.spark.options import OptionError


@pytest.mark.parametrize("signature", JOBS, ids=lambda each: each.__name__)
def test_a_command_has_the_parameters_and_defaults_of_its_job(
    signature: type[JobSignature],
) -> None:
    name = next(
        each
        for each in command.commands
        if each.replace("-", "") == signature.__name__.removesuffix("Job").lower()
    )
    made = command.commands[name]
    module = name.replace("-", "_")
    assert callable(getattr(import_module(f"anabranch.spark.jobs.{module}"), module))
    options = {each.name: each for each in made.params}
    for each in fields(signature):
        if not each.metadata:
            continue
        option: Any = options.pop(each.name)
        if isinstance(option, click.Argument):
            assert each.default is MISSING
            continue
        assert option.help == each.metadata["help"] != ""
    assert set(options) <= {"master", "as_json", "report"}
    words = [each.human_readable_name for each in made.params if isinstance(each, click.Argument)]
    parsed = made.make_context(name, [*words]).params
    given = {name: value for name, value in parsed.items() if name not in options}
    assert signature(**{**given, "lake": "LAKE"} if words else given) == (
        signature("LAKE") if words else signature()  # type: ignore[call-arg]
    )
    assert (signature.__doc__ or "").partition("\n")[0] in (made.help or "")


def test_a_job_gets_the_signature_that_was_given_by_names() -> None:
    @taking(CompactJob)
    def job(spark: object, given: CompactJob) -> tuple[object, CompactJob]:
        return spark, given

    spark, given = job(None, "lake", target_mib=7, streams=["s"])
    assert (spark, given.lake, given.target_mib, given.retain_hours) == (None, "lake", 7, 168)
    assert list(given.streams) == ["s"]
    with pytest.raises(TypeError, match="target_bytes"):
        job(None, "lake", target_bytes=7)  # type: ignore[call-arg]


def test_an_option_of_the_data_source_wins_over_a_parameter() -> None:
    given = ArchiveJob("lake", streams=["a", "b"], options={"startingTimestamp": "5"}).given
    assert given == {
        "url": "redis://127.0.0.1:6379", "subscribe": "a,b", "startingTimestamp": "5",
    }  # fmt: skip
    assert ArchiveJob("lake", pattern="a*").given["startingOffsets"] == "earliest"
    with pytest.raises(OptionError, match="several were"):
        list(ArchiveJob("lake", pattern="a*", streams=["a"]).check())


def test_only_a_limited_job_asks_for_a_session() -> None:
    CompactJob("lake").require_session(needed=True)
    with pytest.raises(SessionNeeded):
        CompactJob("lake", limited=True).require_session(needed=True)


def test_all_results_have_one_form() -> None:
    stuck = GroupLag("", "s", "g", 5, 5, 0.5, None, True, 0, 0, None, None)
    fine = GroupLag("eu", "s", "h", None, None, None, None, False, 2, 2, 1500, 500)
    done = Lagged(2_000, 1.25, (stuck, fine), dry_run=False)
    assert lines_of(done) == [
        "s g: lag 5 (at most 5), +0.5 entries/s, NEVER catches up at this rate; 0 pending (at "
        "most 0)",
        "s h at eu: lag not known; 2 pending (at most 2), the oldest 1.5 s old and delivered 0.5 s "
        "ago",
    ]
    assert findings_of(done) == (stuck,)
    assert dict(figures_of(done)) == {
        "samples": "2,000", "seconds": "1.2", "groups": "2", "dry run": "no",
    }  # fmt: skip


def test_a_wrong_value_is_refused_with_the_name_of_its_option(tmp_path: Path) -> None:
    for words, text in (
        (["compact", "lake", "--target-mib", "0"], "--target-mib"),
        (["idmp-audit", "--near", "2"], "--near"),
        (["lag", "--interval", "nan"], "--interval"),
        (["verify"], "LAKE"),
    ):
        done = CliRunner().invoke(command, words)
        assert (done.exit_code, text in done.stderr) == (2, True)
