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
from anabranch.spark.jobs.doctor import CheckResult, Diagnosis
from anabranch.spark.jobs.signatures import (
    JOBS,
    ArchiveJob,
    CompactJob,
    JobSignature,
    taking,
)
from anabranch.spark.jobs.verify import Finding, Verified
from anabranch.spark.lake.table import Gap
from anabranch.spark.options import OptionError


@pytest.mark.parametrize("signature", JOBS, ids=lambda each: each.__name__)
def test_a_command_has_the_parameters_and_defaults_of_its_job(
    signature: type[JobSignature],
) -> None:
    name = signature.__name__.removesuffix("Job").lower()
    made = command.commands[name]
    assert callable(getattr(import_module(f"anabranch.spark.jobs.{name}"), name))
    options = {each.name: each for each in made.params}
    for each in fields(signature):
        if not each.metadata:
            continue
        option: Any = options.pop(each.name)
        if isinstance(option, click.Argument):
            assert each.default is MISSING
            continue
        assert option.help == each.metadata["help"] != ""
    assert set(options) <= {"master", "as_json"}
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


def test_all_results_have_one_form() -> None:
    gap = Gap("s", "1", 4, 9)
    wrong = Finding("gap", "s 1", "no entry has positions 5 to 8")
    done = Verified(2, 1_000, 5_000, 0, (gap,), (wrong,))
    assert lines_of(done) == [
        "gap: s/1: nothing between positions 4 and 9",
        "gap s 1: no entry has positions 5 to 8",
    ]
    assert findings_of(done) == (wrong,)
    assert dict(figures_of(done)) == {
        "files": "2", "entries": "1,000", "bytes": "5,000", "undigested": "0", "gaps": "1",
        "findings": "1",
    }  # fmt: skip
    told = Diagnosis(False, (CheckResult("Java", "17", True), CheckResult("bash", "none", False)))
    assert lines_of(told) == ["ok  Java: 17", "BAD bash: none"]
    assert dict(figures_of(told)) == {"healthy": "no", "checks": "2"}


def test_a_wrong_value_is_refused_with_the_name_of_its_option(tmp_path: Path) -> None:
    for words, text in (
        (["compact", "lake", "--target-mib", "0"], "--target-mib"),
        (["audit", "--settle", "nan"], "--settle"),
        (["verify"], "LAKE"),
    ):
        done = CliRunner().invoke(command, words)
        assert (done.exit_code, text in done.stderr) == (2, True)
