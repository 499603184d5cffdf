"""``--report``: a page on a run, whole in itself, and nothing in it is secret or not escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.spark import command as group
from anabranch.cli.spark.record import Record
from anabranch.spark.jobs.signatures import JobStep
from tests.spark.reading import fill
from tests.support.servers import AnabranchServer

HOSTILE = '_<script>alert(1)</script>&"$x_{$'
VOID = {"meta"}


class Page(HTMLParser):
    """What a reader of the page sees: cells of tables and items of lists."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.items: list[str] = []
        self._open: list[str] = []
        self.feed(self.text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
        elif tag == "li":
            self.items.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "li" in self._open:
            self.items[-1] += data
        if "td" in self._open:
            self.rows[-1][-1] += data

    def figures(self) -> dict[str, str]:
        """The rows of two cells."""
        return {row[0]: row[1] for row in self.rows if len(row) == 2}


@pytest.fixture
def letting(ours: AnabranchServer) -> Iterator[str]:
    """The address of a server for a user with a password."""
    with ours.client() as client:
        client.call("ACL", "SETUSER", "ann", "on", ">s3cret", "~*", "+@all")
        yield f"redis://ann:s3cret@127.0.0.1:{ours.port}"
        client.call("ACL", "DELUSER", "ann")


def run(*words: str) -> int:
    done = CliRunner().invoke(group, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code


def test_a_page_has_result_and_options_and_no_secret(
    ours: AnabranchServer, letting: str, tmp_path: Path
) -> None:
    fill(ours, HOSTILE, 10)
    words = ["--region-urls", json.dumps({"eu": letting, "us": letting}), "-o", "password=s3cret"]
    page = tmp_path / "audit.html"
    words += ["-u", letting, "--streams", HOSTILE, "--settle", "30", "--report", str(page)]
    assert run("audit", *words) == 0
    found = Page(page)
    assert not re.search("s3cret|ann:", found.text)
    assert not found.tags & {"script", "b"}
    assert '<h1>anabranch spark audit: <span class="passed">passed</span></h1>' in found.text
    assert found.figures()["entries"] == "10, 10"
    at = f"127.0.0.1:{ours.port}"
    for row in (["-o", "password=***"], ["--region-urls", f"eu=redis://***@{at}"]):
        assert row in found.rows
    assert ["--settle", "30.0"] in found.rows
    assert ["--streams", HOSTILE] in found.rows
    assert any(row[-1].startswith("1 streams in eu, us") for row in found.rows if row)


def test_every_job_on_a_lake_has_its_page(
    ours: AnabranchServer, letting: str, tmp_path: Path
) -> None:
    fill(ours, HOSTILE, 100)
    lake = str(tmp_path / "lake")
    page = tmp_path / "page.html"
    words = ("--streams", HOSTILE, "-u", letting, "-o", "maxEntriesPerTrigger=30")
    assert run("archive", lake, *words, "--report", str(page)) == 0
    found = Page(page)
    assert found.figures()["entries"] == "100"
    assert '<span class="passed">' in found.text
    assert found.items[0].startswith(f"{HOSTILE}: 100 entries")
    assert not found.tags & {"script", "b"}
    steps = [row[1] for row in found.rows if row and row[-1].startswith("batch ")]
    assert steps[-1] == "batch 3: 10 entries, 0 left"
    assert len(steps) == 4
    assert run("compact", lake, "--report", str(page)) == 0
    assert Page(page).figures()["problems"] == "none"
    assert run("verify", lake, "--report", str(page)) == 0
    assert Page(page).figures()["findings"] == "none"
    for each in Path(lake).glob("stream=*/*/*.parquet"):
        each.unlink()
    assert run("verify", lake, "--report", str(page)) == 1
    found = Page(page)
    assert "<h2>Findings</h2>" in found.text
    assert all(each.startswith("missing ") for each in found.items)


def test_a_run_that_fails_has_a_page_that_says_why(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--streams", "s", "-u", "redis://ann:s3cret@127.0.0.1:1", "--report", str(page))
    assert run("archive", str(tmp_path / "lake"), *words) == 1
    found = Page(page)
    assert "no server at 127.0.0.1:1" in found.items[0]
    assert 'class="failed"' in found.text
    assert "s3cret" not in found.text


def test_a_page_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    for name in ("page.txt", "nowhere/page.html"):
        words = ["verify", str(tmp_path), "--report", str(tmp_path / name)]
        done = CliRunner().invoke(group, words)
        assert (done.exit_code, "Error: --report: " in done.stderr) == (2, True)


def test_steps_of_a_long_run_take_little_room_and_totals_stay_true(tmp_path: Path) -> None:
    import click

    record = Record(click.Context(group))
    for number in range(5_000):
        record.step(JobStep("more", 2 * number + 2))
    assert len(record.steps) < 1_001
    assert record.steps[-1][1].done == 10_000
