"""``anabranch spark ...`` as people use it: checked first, ended by Ctrl-C, and quiet."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.spark import command as group
from tests.spark.processes import kill_session
from tests.spark.test_lake_jobs import command
from tests.spark.test_sink import fill, url
from tests.support.servers import AnabranchServer

ROWS = 300


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["archive", "lake"], 2, "name the streams"),
        (["archive", "lake", "--streams", "s", "-o", "dbb=1"], 2, "did you mean db"),
        (["archive", "lake", "--streams", "s", "-o", "db=x"], 2, "a whole number is needed"),
        (["archive", "lake", "--streams", "s", "-o", "tls.ca=x"], 2, "let it begin with rediss"),
        (["archive", "lake", "--streams", "s", "-o", "maxLen=1"], 2, "unknown option 'maxLen'"),
        (["archive", "lake", "--streams", "s", "-o", "password=x"], 1, "username and password"),
        (["archive", "lake", "--streams", "s", "-o", "regions"], 2, "-o takes name=value"),
        (["archive", "lake", "--streams", "s", "-o", "endingTimestamp=1"], 2, "is for batch reads"),
        (["archive", "lake", "--streams", "s", "-o", "frontierInterval=1s"], 2, "no watermark"),
        (["audit", "-o", "retries=x"], 2, "a whole number is needed"),
        (["audit", "-o", "tls.ca=x"], 2, "let it begin with rediss://"),
        (["audit"], 2, "two regions are needed to compare: name them by --region-urls"),
        (["audit", "-o", "subscribe=s"], 2, "several were given"),
    ],
)
def test_mistakes_are_told_before_java_starts(
    ours: AnabranchServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("anabranch.spark.session", lambda *_: pytest.fail("a session was made"))
    done = CliRunner().invoke(group, [*words, "-u", url(ours)])
    assert (done.exit_code, message in done.stderr) == (code, True), done.output


def test_a_server_that_is_not_there_is_told_before_java_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("anabranch.spark.session", lambda *_: pytest.fail("a session was made"))
    done = CliRunner().invoke(group, ["archive", "w", "--streams", "s", "-u", "127.0.0.1:1"])
    assert (done.exit_code, "no server at 127.0.0.1:1" in done.stderr) == (1, True)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_follows_ends_well_when_it_is_interrupted(
    ours: AnabranchServer, tmp_path: Path, number: int
) -> None:
    fill(ours, "s", ROWS)
    words = ("archive", "lake", "--streams", "s", "--follow", "-u", url(ours))
    job = command(*words, place=tmp_path)
    assert job.stderr is not None
    lines = []
    try:
        for line in job.stderr:
            lines.append(line)
            if line.startswith("batch "):
                break
        else:
            pytest.fail(f"it ended before its first batch: {lines}")
        # A terminal tells all processes of the job.
        (os.killpg if number == signal.SIGINT else os.kill)(job.pid, number)
        told, noise = job.communicate(timeout=600)
    finally:
        kill_session(job.pid)
    lines += noise.splitlines(keepends=True)
    assert job.returncode == 0, (told, lines)
    assert re.search(r"(?s)\nentries: 300\n.*\ntook: \d+\.\d s\n$", told)
    assert [each for each in lines if not re.match("anabranch: |batch ", each)] == []
