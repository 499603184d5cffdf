"""How often an XADD that is logged goes through the connection and through the log's rules."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType

import pytest

from anabranch.node import durability
from anabranch.server import connection
from tests.support.embedded import World

MODULES = {"connection": connection, "durability": durability}


@pytest.fixture
async def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[World]:
    made = World(tmp_path, caplog)
    yield made
    await made.stop()


async def test_one_visit_of_the_connection_and_two_of_durability(
    world: World,
) -> None:
    await world.start("no")
    (client,) = await world.clients(1)
    await client.do("XADD s 1-0 f v")  # from now on nobody else is expected to share its writes
    files = {module.__file__: name for name, module in MODULES.items()}
    visits: dict[str, list[str]] = {name: [] for name in MODULES}

    def look(frame: FrameType, event: str, _argument: object) -> None:
        """Note a call from outside of its file; ticks of the server are no part of the XADD."""
        code, caller = frame.f_code, frame.f_back
        name = files.get(code.co_filename)
        if (
            event == "call"
            and name
            and (not caller or caller.f_code.co_filename != code.co_filename)
        ):
            visits[name].append(code.co_name)

    sys.setprofile(look)
    try:
        reply = await client.do("XADD s 2-0 f v")
    finally:
        sys.setprofile(None)
    assert reply == b"2-0"
    assert visits["connection"] == ["data_received"]
    assert [each for each in visits["durability"] if each != "tick"] == ["hold", "end_turn"]
