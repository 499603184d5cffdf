"""``/events``: one stream of server-sent events for each open page, at a bounded rate.

``status`` comes once a second with everything but the streams' entries, ``entries`` up to four
times a second if the page shows a stream and new entries arrived. Without an open page nothing is
computed, and what all pages show is computed once.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.node.node import Node
from anabranch.scheduling import Steps
from anabranch.web.answers import Problem, as_json, place_of, shown_name
from anabranch.web.availability import Health
from anabranch.web.entries import wanted_of
from anabranch.web.identity import Viewer, identify, may_run, may_see, require
from anabranch.web.slices import Streamed, in_slices
from anabranch.web.status import applied, status
from anabranch.web.stream_metrics import keep
from anabranch.web.survey import StreamSurvey
from anabranch.web.watch import Watch

BEAT_S: Final = 0.25
BEATS_PER_STATUS: Final = 4
STREAMS_SHOWN: Final = 12
SUMS: Final = (
    *("length", "added_rate", "delivered_rate", "acknowledged_rate", "lag", "pending", "groups"),
)

FRESH_S: Final = 0.2
"""Pages that ask within this time get the same status."""


class Feed:
    """``/status.json`` and ``/events``."""

    def __init__(
        self,
        node: Node,
        health: Health,
        limits: Callable[[], tuple[int, int]] = lambda: (sys.maxsize, sys.maxsize),
    ) -> None:
        """``limits``: how many pages may be open, of all addresses and of one."""
        self._limits = limits
        self._open: Counter[str] = Counter()  # feeds by address
        self._node = node
        self._health = health
        self.survey = StreamSurvey(node.region)
        self._status: dict[str, Any] = {}
        self._status_s = 0.0
        self._turn = asyncio.Lock()
        self._seen: dict[bytes, dict[str, Any]] = {}  # by the rules of a user
        self._seen_survey = 0  # the survey whose summaries these are
        self.routes = [Route("/status.json", self._one), Route("/events", self._events)]

    def close(self) -> None:
        """Stop the surveys. The connections end with their tasks."""
        self.survey.stop()

    async def _one(self, request: Request) -> Response:
        viewer = await identify(self._node, request)
        require(self._node.region, viewer.user, b"INFO")
        await self.survey.refresh()
        return as_json(await self._about(viewer))

    async def _events(self, request: Request) -> Response:
        viewer = await identify(self._node, request)
        require(self._node.region, viewer.user, b"INFO")
        place = place_of(request)
        address = request.client.host if request.client is not None else ""
        self._require_room(address)
        watch = None if place is None else Watch(self._node, viewer, place, wanted_of(request))
        return Streamed(
            lambda gone: self._counted(address, self._messages(viewer, watch, gone)),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    def _require_room(self, address: str) -> None:
        """Raise the answer for a page too many: others would find no place for their requests."""
        of_all, of_address = self._limits()
        if self._open[address] >= of_address:
            why = f"{of_address} pages of this server are open from your address"
        elif self._open.total() >= of_all:
            why = f"{of_all} pages of this server are open"
        else:
            return
        raise Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            "too_many_pages",
            f"{why}, and no more are answered: close one",
            {"retry-after": "5"},
        )

    async def _counted(self, address: str, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The messages of a feed, which is counted while they are read."""
        self._open[address] += 1
        try:
            async for each in messages:
                yield each
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    async def _messages(
        self, viewer: Viewer, watch: Watch | None, gone: asyncio.Task[None]
    ) -> AsyncIterator[bytes]:
        try:
            yield b"retry: 2000\n\n"
            async with self.survey.renewed():
                beat = 0
                while not gone.done() and self._may_stay(viewer):
                    if beat % BEATS_PER_STATUS == 0:
                        yield _message("status", await self._about(viewer))
                    if watch is not None:
                        seen = await self._look(watch)
                        has_news = seen["entries"] or seen.get("passed_over")
                        if has_news or beat % BEATS_PER_STATUS == 0:
                            yield _message("entries", {**seen, "applied": applied(self._node)})
                    beat += 1
                    await asyncio.wait({gone}, timeout=BEAT_S)
        finally:
            if watch is not None:
                watch.close()

    async def _look(self, watch: Watch) -> dict[str, Any]:
        """What is new in a stream. In one turn of the event loop one page begins to look."""
        async with self._turn:
            await asyncio.sleep(0)
        return await watch.look()

    def _may_stay(self, viewer: Viewer) -> bool:
        """Whether the user still has the permission: rules may have changed since the start."""
        region = self._node.region
        if region.acl.users.get(viewer.user.name) is not viewer.user or not viewer.user.enabled:
            return False
        if not viewer.may_act and not viewer.user.nopass:
            return False
        return may_run(region, viewer.user, b"INFO")

    async def _about(self, viewer: Viewer) -> dict[str, Any]:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._status_s > FRESH_S or not self._status:
            self._status = status(self._node, self._health.why_not_ready())
            self._status_s = now_s
        return {
            **self._status,
            "user": viewer.name,
            "may_act": viewer.may_act,
            "survey_age_s": round(monotonic() - self.survey.taken_s),
            **await self._streams(viewer),
        }

    async def _streams(self, viewer: Viewer) -> dict[str, Any]:
        """The part about the streams that the user may see; computed once for each survey."""
        if self._seen_survey != self.survey.count:
            self._seen, self._seen_survey = {}, self.survey.count
        seen, rules = self._seen, viewer.user.text()
        if rules not in seen:
            seen[rules] = await in_slices(self._summary(viewer))
        return seen[rules]

    def _summary(self, viewer: Viewer) -> Steps[dict[str, Any]]:
        visible = may_see(self._node.region, viewer.user)
        sums = dict.fromkeys(SUMS, 0.0)
        count = 0
        busiest: list[Any] = []
        retried: list[Any] = []
        for rows in self.survey.rows.some():
            for row in rows:
                if visible(row.key):
                    count += 1
                    for name in SUMS:
                        sums[name] += getattr(row, name)
                    busy = (row.added_rate, row.lag, row.length, count, row)
                    keep(busiest, busy, STREAMS_SHOWN)
                    if row.attempts:
                        keep(retried, (row.duplicates, row.attempts, count, row), STREAMS_SHOWN)
            yield
        memory: dict[str, int] = {}
        for (_, key), parts in self.survey.memory.items():
            if visible(key):
                for cause, size in parts.items():
                    memory[cause] = memory.get(cause, 0) + size
        shown = {
            (row.db, row.key): row
            for *_, row in (*sorted(busiest, reverse=True), *sorted(retried, reverse=True))
        }
        return {
            "survey": {
                "count": self.survey.count,
                "streams": count,
                "entries": int(sums["length"]),
                **{name: round(sums[name], 1) for name in SUMS if name != "length"},
            },
            "streams": [row.described() for row in shown.values()],
            "heat": [
                {**each, "key": shown_name(each["key"]), "group": shown_name(each["group"])}
                for each in self.survey.heat
                if visible(each["key"])
            ],
            "memory_by_cause": memory,
            "sees_all": viewer.user.is_unrestricted,
        }


def _message(event: str, content: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(content))
