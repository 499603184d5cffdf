"""Every client of the page has tests, and every test of a client its row."""

from __future__ import annotations

import ast
import tomllib

import pytest

from tests.house.clients import BROKEN, CLIENT_TESTS, CLIENTS, Client, count_tests
from tests.support.servers import REPOSITORY

NOT_ONE_CLIENT = {
    "after_a_fail_over",
    "node_clients",
    "debian_clients",
    "on_a_region",
    "what_does_not_work",
}
PROGRAMS = ("*.mjs", "*.go", "*.php", "*.rb")
HELPERS = {
    *("node/checks.mjs", "node/queues.mjs", "node/lease_worker.mjs", "go/lease_worker.go"),
    *("node/fail_over.mjs", "node/socketio_processes.mjs"),
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.package}-{client.files}")
def test_a_row_has_tests(client: Client) -> None:
    assert count_tests(client) > 0


def test_each_file_of_tests_has_a_row() -> None:
    files = {path.stem.removeprefix("test_") for path in CLIENT_TESTS.glob("test_*.py")}
    rows = {name for client in CLIENTS for name in client.files.split()}
    assert files - NOT_ONE_CLIENT == {name for name in rows if "/" not in name}
    programs = {
        path.relative_to(CLIENT_TESTS).as_posix()
        for pattern in PROGRAMS
        for path in CLIENT_TESTS.glob(f"*/{pattern}")
    }
    assert programs - HELPERS == {name for name in rows if "/" in name}


def test_each_python_package_is_installed_for_the_tests() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    installed = {
        line.partition(">=")[0].partition("[")[0]
        for line in (
            *settings["project"]["dependencies"],
            *settings["dependency-groups"]["test"],
            *settings["dependency-groups"]["compat"],
        )
        if isinstance(line, str)  # the others include a group that has no clients
    }
    rows = {client.package for client in CLIENTS if client.source == "python"}
    assert rows - installed == set()


def test_what_does_not_work_is_shown_by_a_test() -> None:
    text = (CLIENT_TESTS / "test_what_does_not_work.py").read_text("utf-8")
    functions = {
        each.name
        for each in ast.parse(text).body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and each.name.startswith("test_")
    }
    assert functions == {test for *_, test in BROKEN}
