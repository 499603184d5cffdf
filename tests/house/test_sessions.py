"""What the pages tell people to type is typed, and what they show comes out."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from anabranch.cli import group
from anabranch.config.load import load
from anabranch.testing import Server
from tests.house.markdown import code_spans, fences, pages
from tests.support.servers import REPOSITORY

_PROMPT = "127.0.0.1:6379> "
_ID = re.compile(r"\b\d{13}-\d+\b")
_MAKE = re.compile(r"^(?:[A-Z]+=\S+ )*make((?: [a-z-]+)+)", re.MULTILINE)

SESSIONS = [
    (name, number, fence.body)
    for name, text in pages().items()
    for number, fence in enumerate(fences(text, "console"), 1)
]
SHELL = [
    (name, line)
    for name, text in pages().items()
    for fence in fences(text, "sh")
    for line in fence.body.replace("\\\n", " ").splitlines()
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANABRANCH_PORT", "ANABRANCH_HZ"):
        monkeypatch.delenv(name, raising=False)


# -- redis-cli ----------------------------------------------------------------------------------


def steps(session: str) -> list[tuple[str, list[str]]]:
    """Commands and the lines they are said to give."""
    found: list[tuple[str, list[str]]] = []
    for line in session.splitlines():
        if line.startswith(_PROMPT):
            found.append((line.removeprefix(_PROMPT), []))
        elif found:
            found[-1][1].append(line)
        else:
            assert line.startswith("$ redis-cli"), line
    return found


def ask(server: Server, command: str) -> list[str]:
    """What redis-cli prints."""
    done = subprocess.run(
        ["redis-cli", "-p", str(server.port), "--no-raw"],
        check=True,
        input=f"{command}\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("page", "number", "session"), SESSIONS, ids=[f"{page}-{n}" for page, n, _ in SESSIONS]
)
def test_a_session_gives_what_the_page_shows(
    server: Server, page: str, number: int, session: str
) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("redis-cli is not installed: THE SESSIONS OF THE DOCUMENTS ARE NOT RUN")
    ask(server, "FLUSHALL")
    real: dict[str, str] = {}  # IDs made from the clock: those of the page, and those of today
    for command, expected in steps(session):
        got = ask(server, _ID.sub(lambda match: real[match[0]], command))
        assert len(got) == len(expected), (command, got)
        for line, shown in zip(got, expected, strict=True):
            ids = _ID.findall(shown)
            assert len(ids) == len(_ID.findall(line)), (command, got)
            for old, new in zip(ids, _ID.findall(line), strict=True):
                assert real.setdefault(old, new) == new, f"{command}: another {old}"
            assert _ID.sub("ID", line) == _ID.sub("ID", shown), command
    assert len(set(real.values())) == len(real)


# -- Python -------------------------------------------------------------------------------------


def test_the_example_of_the_readme_prints_what_it_shows(server: Server) -> None:
    text = pages()["README.md"]
    code, _ = fences(text, "python")  # tests/clients/test_redis_py_multidb.py runs the other one
    (shown,) = fences(text, "text")
    assert "port=6379" in code.body
    ask(server, "FLUSHALL")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code.body.replace("port=6379", f"port={server.port}"), {})
    assert printed.getvalue() == shown.body


def test_the_test_of_the_testing_page_passes() -> None:
    (code,) = fences(pages()["docs/testing.md"], "python")
    exec(code.body, {})


# -- the shell ----------------------------------------------------------------------------------


def test_make_knows_the_targets_that_are_named() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.M))
    for page, text in pages().items():
        shown = re.findall(r"`(make [^`]+)`", text) + [line for name, line in SHELL if name == page]
        for line in shown:
            match = _MAKE.match(line)
            for target in match[1].split() if match else ():
                assert target in targets, f"{page}: {line}"


def shown_commands() -> Iterator[tuple[str, str]]:
    """Page and command line of `anabranch`: blocks of the shell, transcripts, running text."""
    for page, text in pages().items():
        for fence in fences(text):
            for line in fence.body.replace("\\\n", " ").splitlines():
                is_typed = fence.language == "sh" or line.startswith("$ ")
                for part in line.removeprefix("$ ").split(" | ") if is_typed else ():
                    if re.match(r"(?:[A-Z_]+=\S+ )*anabranch ", part):
                        yield page, part
        if page not in {"CHANGELOG.md", "docs/formats.md"}:  # the past; words of the handshake
            yield from ((page, span) for span in code_spans(text) if span.startswith("anabranch "))


def test_commands_and_options_that_are_shown_exist() -> None:
    checked = 0
    for page, line in shown_commands():
        words = shlex.split(line, comments=True)
        words = words[words.index("anabranch") + 1 :]
        if words[0] in {"serve", "config"}:  # they take directives: see the next test
            continue
        command: click.Command = group.command
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name = words.pop(0)
            found = command.get_command(click.Context(command), name)
            assert found is not None, (page, line)
            command = found
        parameters = command.get_params(click.Context(command))
        known = {"-h"}.union(*([*each.opts, *each.secondary_opts] for each in parameters))
        for word in words:
            option = word.partition("=")[0]
            assert option in known or not re.match(r"--?[a-z]", option), (page, line, option)
        checked += 1
    assert checked >= 50


def test_programs_that_are_shown_exist_and_take_the_options() -> None:
    checked = 0
    for page, text in pages().items():
        shown = [line for fence in fences(text) for line in fence.body.splitlines()]
        for line in [*shown, *code_spans(text)]:
            if line.startswith(("python -m benchmarks", "python -m tests")):
                words = shlex.split(line, comments=True)
                module = REPOSITORY.joinpath(*words[2].split("."))
                assert module.is_dir() or module.with_suffix(".py").is_file(), (page, line)
                files = (REPOSITORY / words[2].partition(".")[0]).rglob("*.py")
                source = "".join(path.read_text("utf-8") for path in files)
                for word in words[3:]:
                    assert not word.startswith("--") or f'"{word}"' in source, (page, line)
                checked += 1
    assert checked >= 20


def test_starts_that_are_shown_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(tmp_path)
    monkeypatch.chdir(tmp_path)
    checked = 0
    for page, line in SHELL:
        words = shlex.split(line, comments=True)
        variables = {}
        while words and "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if words[:2] in (["anabranch", "serve"], ["anabranch", "config"]):
            own = {"--changed", "--json"}
            loaded = load([word for word in words[2:] if word not in own], variables)
            assert loaded.notes == [], (page, line)
            checked += 1
    assert checked >= 5


def test_the_settings_of_the_example_are_shown_as_they_are(tmp_path: Path) -> None:
    path = example(tmp_path)
    (shown,) = [
        fence.body
        for fence in fences(pages()["docs/operations.md"], "text")
        if fence.body.startswith("$ ANABRANCH_HZ=20 ")
    ]
    command, _, expected = shown.partition("\n")
    arguments = shlex.split(command.replace("my.conf", str(path)))
    assert arguments[:4] == ["$", "ANABRANCH_HZ=20", "anabranch", "config"]
    result = CliRunner().invoke(group.command, arguments[3:], env={"ANABRANCH_HZ": "20"})
    assert result.output.replace(f"{path}:", "my.conf:") == expected


def example(folder: Path) -> Path:
    """The configuration file of the operations page."""
    (text,) = [
        fence.body
        for fence in fences(pages()["docs/operations.md"], "")
        if fence.body.startswith("port 6393")
    ]
    path = folder / "my.conf"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["serve"],
        ["config"],
        ["health"],
        ["version"],
        ["import"],
        ["export"],
        ["inspect"],
    ],
)
def test_help_is_there(arguments: list[str]) -> None:
    result = CliRunner().invoke(group.command, [*arguments, "--help"], prog_name="anabranch")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: anabranch")
