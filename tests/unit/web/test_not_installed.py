"""Without the extra ``web`` a server that asks for the HTTP port does not start, and says why."""

from __future__ import annotations

import sys

import pytest

from anabranch.errors import ConfigError
from anabranch.testing import Server


def forget_the_wing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("anabranch.web."):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    "missing",
    ["starlette.applications", "uvicorn.protocols.http.h11_impl", "prometheus_client.exposition"],
)
def test_a_missing_package_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_the_wing(monkeypatch)
    monkeypatch.setitem(sys.modules, missing, None)  # importing it fails
    with pytest.raises(ConfigError, match=r"need the extra 'web'.*anabranch\[web\].*" + missing):
        Server(http_port=1).start()


def test_a_missing_module_of_our_own_is_no_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_the_wing(monkeypatch)
    monkeypatch.setitem(sys.modules, "anabranch.web.guard", None)
    with pytest.raises(ModuleNotFoundError, match=r"anabranch\.web\.guard"):
        Server(http_port=1).start()


def test_other_servers_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_the_wing(monkeypatch)
    for missing in ("starlette", "uvicorn", "prometheus_client", "lupa", "greenlet"):
        monkeypatch.setitem(sys.modules, missing, None)
    with Server() as server:
        assert server.execute("PING") == b"PONG"
    assert not any(name.startswith("anabranch.web.") for name in sys.modules)
