"""Log lines in their formats."""

from __future__ import annotations

import json
import logging
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.config.settings import Settings
from anabranch.server import logs
from anabranch.server.logs import close_logs, emit, open_logs


@pytest.fixture(autouse=True)
def closed_afterwards() -> Iterator[None]:
    yield
    close_logs()


def line(tmp_path: Path, *, level: str = "info", **settings: object) -> str:
    path = tmp_path / "log"
    open_logs(Settings(logfile=str(path), **settings))
    emit(level, "thing.happened", name="a b", count=3)
    close_logs()
    return path.read_text().rstrip("\n")


def test_legacy_lines_look_like_those_of_redis(tmp_path: Path) -> None:
    text = line(tmp_path, log_format="legacy")
    assert re.fullmatch(
        r"\d+:M \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3} \* thing\.happened name=\"a b\" count=3",
        text,
    )
    assert " # " in line(tmp_path, level="warning", log_format="legacy")


def test_logfmt(tmp_path: Path) -> None:
    text = line(tmp_path, log_format="logfmt")
    assert re.fullmatch(
        r"ts=\d{4}-\d\d-\d\dT\S+ level=info event=thing\.happened name=\"a b\" count=3", text
    )


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_json_is_one_object_per_line(tmp_path: Path, log_format: str) -> None:
    record = json.loads(line(tmp_path, log_format=log_format))
    assert record.pop("ts").startswith("20")
    assert record == {"level": "info", "event": "thing.happened", "name": "a b", "count": 3}


def test_the_time_may_be_milliseconds(tmp_path: Path) -> None:
    text = line(tmp_path, log_format="logfmt", log_timestamp_format="milliseconds")
    assert re.match(r"ts=\d{13} ", text)
    (tmp_path / "log").unlink()
    text = line(tmp_path, log_format="legacy", log_timestamp_format="iso8601")
    assert re.match(r"\d+:M \d{4}-\d\d-\d\dT", text)


@pytest.mark.parametrize(
    ("loglevel", "shown"),
    [("debug", "diwe"), ("notice", "iwe"), ("warning", "we"), ("nothing", "")],
)
def test_the_level_decides_what_is_written(tmp_path: Path, loglevel: str, shown: str) -> None:
    path = tmp_path / "log"
    open_logs(Settings(logfile=str(path), loglevel=loglevel, log_format="json"))
    for level in ("debug", "info", "warning", "error"):
        emit(level, level)
    written = "".join(json.loads(text)["event"][0] for text in path.read_text().splitlines())
    assert written == shown


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    open_logs(Settings(logfile=str(path), log_format="logfmt"))
    emit("info", "one")
    path.rename(tmp_path / "log.1")
    emit("info", "two")
    assert "event=two" in path.read_text()


def test_tracebacks_are_kept_and_user_data_is_left_out_where_asked(tmp_path: Path) -> None:
    secret = "the value of a key"
    for hide in (False, True):
        path = tmp_path / f"log{hide}"
        open_logs(Settings(logfile=str(path), log_format="json", hide_user_data_from_log=hide))
        try:
            raise ValueError(secret)
        except ValueError as problem:
            emit("error", "command.internal_error", exc=problem)
        record = json.loads(path.read_text())
        assert "Traceback" in record["traceback"]
        assert (secret in path.read_text()) is not hide


def test_embedders_see_the_records_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("anabranch")
    monkeypatch.setattr(logger, "propagate", False)  # the handler hangs on the root logger too
    logger.addHandler(caplog.handler)
    try:
        logger.setLevel(logging.INFO)
        emit("info", "thing.happened", count=1)
    finally:
        logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records] == ["thing.happened"]


def test_trouble_that_others_cause_has_one_line_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    monkeypatch.setattr(logs, "_told", {})
    caplog.set_level("INFO", "anabranch")
    for about in ("client", "http") * 50:
        logs.emit_sparingly("warning", "listener.full", about=about, address="10.0.0.1")
    now += 0.9
    logs.emit_sparingly("warning", "listener.full", about="http", address="10.0.0.2")
    assert len(caplog.records) == 2
    now += 0.2
    logs.emit_sparingly("warning", "listener.full", about="http", address="10.0.0.3")
    assert [record.fields for record in caplog.records[2:]] == [  # type: ignore[attr-defined]
        {"address": "10.0.0.3", "about": "http", "left_out": 50}
    ]


def test_a_reader_that_has_gone_is_no_error() -> None:
    program = (
        "from anabranch.config.settings import Settings\n"
        "from anabranch.server.logs import emit, open_logs\n"
        "open_logs(Settings())\n"
        "for event in ('read.first', 'read.never', 'read.neither'):\n"
        "    emit('info', event)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "read.first" in process.stdout.readline()
        process.stdout.close()
        _, errors = process.communicate("\n\n\n")
    assert (errors, process.returncode) == ("", 0)


HOSTILE = "\x1b]0;PWN\x07\x1b[2J\x7f\x9b31m\u202e\u2028\r\n7:M forged"


@pytest.mark.parametrize("log_format", ["legacy", "logfmt", "json", "terminal"])
@pytest.mark.parametrize("place", ["reason", "message", "exception"])
def test_what_a_stranger_says_is_printable_and_stays_in_its_line(
    log_format: str, place: str
) -> None:
    problem = ValueError(HOSTILE) if place == "exception" else None
    fields = {} if problem else {place: HOSTILE, "blank": f"{HOSTILE} k=v"}
    record = logs.LOGGER.makeRecord(
        "anabranch", 30, "", 0, "region.refused", (),
        (ValueError, problem, None) if problem else None, extra={"fields": fields},
    )  # fmt: skip
    settings = Settings(log_format=log_format.replace("terminal", "auto"))
    formatter = {
        "legacy": logs.LegacyFormatter(settings),
        "logfmt": logs.LogfmtFormatter(settings),
        "json": logs.JsonFormatter(settings),
        "terminal": logs.TerminalFormatter(settings, colours=False),
    }[log_format]
    first, *further = formatter.format(record).split("\n")
    assert all(text.isprintable() for text in (first, *further))
    assert all(text.startswith("  ") for text in further)
    assert bool(further) is (place == "exception" and log_format in ("legacy", "terminal"))
    assert "\\u001b]0;PWN\\u0007" in "".join((first, *further)).replace("\\\\", "\\")
    if log_format == "json" and not problem:
        assert json.loads(first)[place] == HOSTILE


def test_lines_without_room_are_counted_where_there_is_room_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    open_logs(Settings(logfile=str(path), log_format="logfmt"))
    emit("info", "thing.before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        emit("info", "thing.torn")
        emit("info", "thing.lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    emit("info", "thing.after")
    emit("info", "thing.later")
    close_logs()
    before, torn, count, after, later = path.read_text().splitlines()
    assert len(torn) == 10
    assert "level=warning event=log.lines_lost lines=2" in count
    assert ("thing.before" in before, "thing.after" in after, "thing.later" in later) == (True,) * 3
    assert capfd.readouterr() == ("", "")


def test_a_file_that_cannot_be_opened_again_loses_lines_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log"
    path.parent.mkdir()
    open_logs(Settings(logfile=str(path), log_format="logfmt"))
    path.parent.rename(tmp_path / "away")
    emit("info", "thing.lost")
    path.parent.mkdir()
    emit("info", "thing.after")
    assert "event=log.lines_lost lines=1" in path.read_text()
    assert "thing.lost" not in path.read_text()
