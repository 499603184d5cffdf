"""Without the extra ``lua`` scripts are refused with a clear error, and all else works."""

from __future__ import annotations

import sys

import pytest

from tests.support.region_harness import Harness

LIBRARY = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"
REFUSAL = "ERR scripts need Lua, which is not installed: pip install 'anabranch[lua]'"


@pytest.fixture(params=["lupa", "greenlet"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Harness:
    for name in list(sys.modules):
        if name.startswith("anabranch.scripting."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, request.param, None)  # importing it fails
    return Harness()


@pytest.mark.parametrize(
    "request_",
    [["EVAL", "return 1", 0], ["SCRIPT", "LOAD", "return 1"], ["FUNCTION", "LOAD", LIBRARY]],
)
def test_scripts_are_refused(server: Harness, request_: list[object]) -> None:
    assert server.error(*request_) == REFUSAL


def test_the_rest_of_a_transaction_runs(server: Harness) -> None:
    server.do("MULTI")
    server.do("SET", "a", "b")
    server.do("EVAL", "return 1", 0)
    server.do("GET", "a")
    done, refused, read = server.do("EXEC")
    assert (done, str(refused), read) == (b"OK", REFUSAL, b"b")


def test_what_needs_no_lua_answers(server: Harness) -> None:
    assert server.do("SCRIPT", "EXISTS", "0" * 40) == [0]
    assert server.do("FUNCTION", "LIST") == []
    assert server.error("EVALSHA", "0" * 40, 0).startswith("NOSCRIPT ")
    assert server.error("FCALL", "f", 0) == "ERR Function not found"
    assert server.error("SCRIPT", "KILL").startswith("NOTBUSY ")
