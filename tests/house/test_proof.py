"""Every command of the page of proofs exists, and takes what the page gives it."""

from __future__ import annotations

import argparse
import importlib
import sys

import pytest

from anabranch.cli.simulate import command as simulate
from tests.house.proof import ProofCommand, commands
from tests.support.servers import REPOSITORY


class _Parsed(Exception):
    """The program has taken its arguments, and does not begin."""


def check(command: ProofCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program parse its arguments; raise what it says to them."""
    if command.words[0] == "anabranch":
        simulate.make_context("simulate", command.words[2:])
        return
    python, option, module, *arguments = command.words
    assert (python, option) == ("python", "-m")
    if module == "pytest":
        for path in arguments:
            tests = sorted((REPOSITORY / path).glob("test_*.py")) or [REPOSITORY / path]
            assert any("def test_" in each.read_text("utf-8") for each in tests), path
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        parse(parser, given)
        raise _Parsed

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        patch.setattr(sys, "argv", [module, *arguments])
        is_package = (REPOSITORY / module.replace(".", "/")).is_dir()
        program = importlib.import_module(f"{module}.__main__" if is_package else module)
        with pytest.raises(_Parsed):
            program.main()


def test_every_command_of_the_page_takes_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    found = commands()
    assert len(found) >= 50
    for command in found:
        check(command, monkeypatch)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("python -m tests.crashes --crash 1000 --kills", SystemExit),
        ("python -m tests.mutatoins --seed 1", ImportError),
        ("python -m pytest tests/unit/nothing", FileNotFoundError),
    ],
    ids=["option", "program", "file"],
)
def test_a_command_that_is_wrong_is_noticed(
    line: str, problem: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(problem):
        check(ProofCommand(line, {}, line.split()), monkeypatch)
