"""Fixtures for pytest, installed with the package; nothing is started before a test uses one.

===================== ======== ===============================================================
fixture               scope
===================== ======== ===============================================================
``anabranch_server``  session  `anabranch.testing.Server`; one for each process of pytest-xdist
``anabranch_url``     session  its address, for any client library
``anabranch``         function a redis-py client of it; the server is emptied before the test
``anabranch_async``   function a client of ``redis.asyncio``; the same
``anabranch_cluster`` function `anabranch.testing.Cluster` of eu, us and ap
===================== ======== ===============================================================

Servers with settings of their own: `anabranch_proc` and `anabranch_client` make fixtures.
``anabranch_settings`` in the configuration of pytest, or ``--anabranch-set directive=value``, are
settings for all of them. A test that fails shows, of the servers of its own fixtures, the seed, the
commands since its setup and the data. ``anabranch_async`` is for the plugin pytest-asyncio, or any
other way to run coroutines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from pprint import pformat
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from anabranch.testing.cluster import Cluster
    from anabranch.testing.server import Server

_COMMANDS_SHOWN: Final = 30
_LINES_SHOWN: Final = 60
_CHARACTERS_SHOWN: Final = 200
"""Of a value or a name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Settings of the servers."""
    text = "directives of anabranch servers in tests, a line 'directive value' for each"
    parser.addini("anabranch_settings", text, type="linelist", default=[])
    parser.getgroup("anabranch").addoption(
        "--anabranch-set",
        action="append",
        default=[],
        metavar="DIRECTIVE=VALUE",
        help="a directive of anabranch servers in tests; may be given several times",
    )


def _settings(config: pytest.Config, given: dict[str, object]) -> dict[str, object]:
    """Those of the fixture before those of the command line before those of the file."""
    found: dict[str, object] = {}
    for line in config.getini("anabranch_settings"):
        name, _, value = line.strip().partition(" ")
        found[name.replace("-", "_")] = value.strip()
    for word in config.getoption("--anabranch-set"):
        name, _, value = word.partition("=")
        found[name.replace("-", "_")] = value
    return found | given


def anabranch_proc(scope: Any = "session", **settings: Any) -> Callable[..., Iterator[Server]]:
    """A fixture that is a server with these settings; assign the result to a name."""

    @pytest.fixture(scope=scope)
    def server(pytestconfig: pytest.Config) -> Iterator[Server]:
        """A stream server in a thread of the test process (anabranch.testing.Server)."""
        from anabranch.testing.server import Server  # noqa: PLC0415 - only who asks for it

        with Server(**_settings(pytestconfig, settings)) as started:  # type: ignore[arg-type]
            yield started

    return server


def anabranch_client(server: str = "anabranch_server", **options: Any) -> Any:
    """A fixture that is a redis-py client of the server of that fixture, emptied before."""

    @pytest.fixture
    def client(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
        """A redis-py client of a server that is emptied before the test."""
        redis = pytest.importorskip("redis", reason="the client fixtures need redis-py")
        running = request.getfixturevalue(server)
        request.node.stash.setdefault(_USED, []).append(running)
        running.flush()
        with redis.Redis.from_url(running.url, **options) as made:
            yield made

    return client


anabranch_server = anabranch_proc()
anabranch = anabranch_client()


@pytest.fixture(scope="session")
def anabranch_url(anabranch_server: Server) -> str:
    """The address of the session's server, for any client library."""
    return anabranch_server.url


@pytest.fixture
def anabranch_async(anabranch_server: Server) -> redis.asyncio.Redis:
    """A client of redis.asyncio, for ``async with``; a test that awaits needs pytest-asyncio."""
    asynchronous = pytest.importorskip("redis.asyncio", reason="the client fixtures need redis-py")
    anabranch_server.flush()
    client: redis.asyncio.Redis = asynchronous.from_url(anabranch_server.url)
    return client


@pytest.fixture
def anabranch_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Three regions, eu, us and ap, new for each test (anabranch.testing.Cluster)."""
    from anabranch.testing.cluster import Cluster  # noqa: PLC0415 - only who asks for it

    with Cluster(**_settings(pytestconfig, {})) as started:  # type: ignore[arg-type]
        yield started


_SEEN_BEFORE: Final = pytest.StashKey[dict[int, int]]()
"""How many commands each server had seen when the setup of a test began, by its port."""


_USED: Final = pytest.StashKey[list["Server"]]()
"""The servers of the clients of a test."""


def _running() -> dict[int, Server]:
    kit = sys.modules.get("anabranch.testing.server")  # if one was started
    return {} if kit is None else kit.RUNNING


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what the servers have seen before this test."""
    item.stash[_SEEN_BEFORE] = {port: each.seen_count for port, each in _running().items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the servers of a test that failed were asked since its setup, and what they hold.

    Its servers are those of its fixtures, and those that it has started itself.
    """
    report = yield
    if report.when == "call" and report.failed:
        before = item.stash.get(_SEEN_BEFORE, {})
        used = _servers_of(item)
        for port, server in list(_running().items()):
            if server in used or port not in before:
                shown = _shown(server, before.get(port, 0))
                report.sections.append((f"anabranch {server.url}", shown))
    return report


def _servers_of(item: pytest.Item) -> list[Server]:
    """The servers among the fixtures of a test, regions of clusters included."""
    found: list[Server] = list(item.stash.get(_USED, ()))
    for value in getattr(item, "funcargs", {}).values():
        regions = getattr(value, "regions", None)
        found += regions.values() if isinstance(regions, dict) else [value]
    return found


def _shown(server: Server, seen_before: int) -> str:
    commands = server.commands_since(seen_before)
    lines = [repr(server), "", "commands since the setup:", *commands[-_COMMANDS_SHOWN:]]
    if len(commands) > _COMMANDS_SHOWN:
        lines.insert(3, f"... {len(commands) - _COMMANDS_SHOWN} before")
    if server.is_running:
        try:
            data = pformat(_brief(server.dump()), width=100, sort_dicts=False).splitlines()
        except Exception as problem:
            data = [f"cannot be shown: {problem!r}"]
        lines += ["", "data:", *data[:_LINES_SHOWN]]
        if len(data) > _LINES_SHOWN:
            lines.append(f"... and {len(data) - _LINES_SHOWN} more lines")
    return "\n".join(lines)


def _brief(value: Any) -> Any:
    """The beginning of a dump: what is shown must not take longer than the test."""
    if isinstance(value, str) and len(value) > _CHARACTERS_SHOWN:
        return f"{value[:_CHARACTERS_SHOWN]}... ({len(value)} characters)"
    if isinstance(value, dict):
        items = islice(value.items(), _LINES_SHOWN)
        first = {_brief(name): _brief(part) for name, part in items}
        if len(value) > len(first):
            first["..."] = f"{len(value) - len(first)} more"
        return first
    if isinstance(value, list | set | tuple):
        parts = sorted(value) if isinstance(value, set) else value
        first_parts = [_brief(part) for part in islice(parts, _LINES_SHOWN)]
        if len(value) > len(first_parts):
            first_parts.append(f"... {len(value) - len(first_parts)} more")
        return type(value)(first_parts)
    return value
