"""What open pages ask of the event loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.web.test_metrics import Process

pytest.importorskip("starlette", reason="the extra web is not installed")

from anabranch.scheduling import Steps
from anabranch.web.feed import Feed
from anabranch.web.identity import Viewer


async def test_of_many_pages_one_looks_in_a_turn() -> None:
    turn = 0
    turns: list[int] = []

    class Watch:
        async def look(self) -> dict[str, Any]:
            turns.append(turn)
            return {}

    feed = Feed(cast("Any", Process()), cast("Any", None))
    looks = [asyncio.ensure_future(feed._look(cast("Any", Watch()))) for _ in range(16)]
    while not all(look.done() for look in looks):
        turn += 1
        await asyncio.sleep(0)
    assert len(set(turns)) == len(looks)


async def test_pages_of_many_users_cost_one_summary_each_for_a_survey(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Feed(cast("Any", Process()), cast("Any", None))
    asked: list[bytes] = []

    def summary(viewer: Viewer) -> Steps[dict[str, Any]]:
        asked.append(viewer.user.name)
        yield
        return {"of": viewer.user.name}

    monkeypatch.setattr(feed, "_summary", summary)
    users = [SimpleNamespace(name=b"%d" % n, text=lambda n=n: b"%d" % n) for n in range(100)]
    for survey in (1, 2):
        feed.survey.count = survey
        for user in users * 3:
            found = await feed._streams(Viewer(cast("Any", user), False, "", ""))
            assert found == {"of": user.name}
        assert len(asked) == survey * len(users)


async def test_the_first_status_is_of_a_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(cast("Any", Process()), cast("Any", None))
    gone = asyncio.get_running_loop().create_future()

    async def about(_viewer: object) -> dict[str, Any]:
        return {"surveys": feed.survey.count}

    monkeypatch.setattr(feed, "_about", about)
    monkeypatch.setattr(feed, "_may_stay", lambda _viewer: True)
    messages = feed._messages(cast("Any", None), None, cast("Any", gone))
    await anext(messages)
    assert b'"surveys":1' in await anext(messages)
    await cast("Any", messages).aclose()
