"""Requests of the page beside its feed: the list of streams, and single commands.

A command runs as that of every other client, as the user of the request. With ``ask`` a command
that deletes is not run: the answer is what to ask first. Without a user or token
only commands run that change nothing, and none that Redis calls dangerous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.engine.key_extraction import keys_of
from anabranch.engine.spec import Command
from anabranch.node.node import Node
from anabranch.scheduling import Steps
from anabranch.web.answers import Problem, as_json, bad, number_of, plain, shown_name, words_of
from anabranch.web.conversation import Conversation, ErrorReply
from anabranch.web.identity import Viewer, identify, may_see
from anabranch.web.slices import in_slices
from anabranch.web.stream_metrics import keep
from anabranch.web.survey import StreamRow, StreamSurvey

BODY_BYTES_MAX: Final = 1024 * 1024
ANSWER_S: Final = 10.0
"""Seconds after which a blocking command is cancelled."""

PAGE_MAX: Final = 200
OFFSET_MAX: Final = 2_000
"""Streams behind this offset are found by a search, or in another order."""

_SORTS: Final = ("added_rate", "length", "lag", "pending", "size", "groups", "key")

_ELSEWHERE: Final = frozenset({"pubsub", "transactions", "connection", "scripting"})
"""Groups of commands that change a connection, of which each request has one of its own."""

_ALSO_READ: Final = frozenset({"ab.peers", "info", "ab.region|list", "ab.region|features", "ping"})
"""Commands without the flag ``readonly`` that change nothing."""


class Api:
    """``/api/streams`` and ``/api/command``."""

    def __init__(self, node: Node, survey: StreamSurvey) -> None:
        self._node = node
        self._survey = survey
        self.routes = [
            Route("/api/streams", self._streams),
            Route("/api/command", self._command, methods=["POST"]),
        ]

    async def _streams(self, request: Request) -> Response:
        """A page of the list of the latest survey."""
        viewer = await identify(self._node, request)
        visible = may_see(self._node.region, viewer.user)
        await self._survey.refresh()
        sort = request.query_params.get("sort", "added_rate")
        if sort not in _SORTS:
            raise bad(f"sort is one of {', '.join(_SORTS)}")
        asked = request.query_params.get("search", "").lower().encode("utf-8", "surrogatepass")
        offset = number_of(request, "offset", 0, OFFSET_MAX)
        limit = number_of(request, "limit", 50, PAGE_MAX)
        count, rows = await in_slices(self._found(asked, visible, sort, offset + limit))
        return as_json(
            {
                "count": count,
                "offset": offset,
                "streams": [row.described() for row in rows[offset:]],
            }
        )

    def _found(
        self, asked: bytes, visible: Callable[[bytes], bool], sort: str, most: int
    ) -> Steps[tuple[int, list[StreamRow]]]:
        """How many streams there are of this name, and the first of them in an order."""
        count = 0
        first: list[Any] = []
        for rows in self._survey.rows.some():
            for row in rows:
                if (not asked or asked in row.key.lower()) and visible(row.key):
                    count += 1
                    if sort == "key":
                        keep(first, (_Backwards(row.key), -row.db, row), most)
                    else:
                        ties = row.lag, row.length, _Backwards(row.key), -row.db
                        keep(first, (getattr(row, sort), *ties, row), most)
            yield
        return count, [row for *_, row in sorted(first, reverse=True)]

    async def _command(self, request: Request) -> Response:
        viewer = await identify(self._node, request)
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", "at most 1 MiB")
        except ClientDisconnect:
            raise bad("the body has not arrived") from None
        try:
            asked: Any = msgspec.json.decode(body)
            words = await in_slices(words_of(asked["command"]))
            db = int(asked.get("db", 0))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as mistake:
            raise bad(f'a request is {{"command": [...], "db": 0}}: {mistake}') from None
        if not 0 <= db < len(self._node.region.keyspace.databases):
            raise bad("there is no such database")
        self._check(viewer, words)
        if asked.get("ask") and (asks := self._question(words)) is not None:
            return as_json({"ask": asks})
        conversation = Conversation(self._node, viewer.address, viewer.local, viewer.user)
        conversation.session.db = db
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await conversation.call(*words)
        except ErrorReply as refusal:
            return as_json({"error": str(refusal)})
        except TimeoutError:
            return as_json({"error": f"ERR no reply within {ANSWER_S:.0f} s"})
        finally:
            conversation.close()
        return as_json({"reply": await in_slices(plain(reply))})

    def _question(self, words: list[bytes]) -> dict[str, Any] | None:
        """What the page asks its user before this command; None if it deletes nothing."""
        entry = self._node.region.dispatcher.find(words)
        if entry is None:
            return None
        is_region = self._node.persistence.exchange is not None
        return question(entry.command, words, is_region=is_region)

    def _check(self, viewer: Viewer, words: list[bytes]) -> None:
        """Raise 403 for a command that the page may not run. The rules of the user come later."""
        entry = self._node.region.dispatcher.find(words)
        if entry is None:  # an unknown command gets the reply that it always gets
            return
        command = entry.command
        if command.group in _ELSEWHERE and command.full_name not in _ALSO_READ:
            raise Problem(
                HTTPStatus.FORBIDDEN, "not_here", f"{command.full_name} is not for the page"
            )
        if not viewer.may_act and not _only_reads(command):
            raise Problem(
                HTTPStatus.FORBIDDEN,
                "read_only",
                f"{command.full_name} needs a user and password, or the token of http-token",
            )


class _Backwards:
    """A name that is greater than those behind it in the alphabet."""

    __slots__ = ("_name",)

    def __init__(self, name: bytes) -> None:
        self._name = name

    def __lt__(self, other: _Backwards) -> bool:
        return other._name < self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and other._name == self._name

    __hash__ = None  # type: ignore[assignment]


def _only_reads(command: Command) -> bool:
    if command.full_name in _ALSO_READ:
        return True
    return "readonly" in command.flags and "dangerous" not in command.categories


# which commands of the page's command line delete: the page asks before it runs one of them
#
# That follows from the command table: a row says of each key whether the command deletes in it. A
# few commands delete by an option, or what is no key.


_ALWAYS: Final = frozenset(
    {
        *("flushall", "flushdb", "acl|deluser", "ab.region|remove"),
        *("expire", "expireat", "pexpire", "pexpireat"),
    }
)

_BY_OPTION: Final = {
    "xadd": {b"MAXLEN", b"MINID"},
    "ab.import": {b"MAXLEN", b"MINID"},
    "restore": {b"REPLACE"},
    "copy": {b"REPLACE"},
    "getex": {b"EX", b"PX", b"EXAT", b"PXAT"},
}

_NEVER: Final = frozenset({"xautoclaim"})
"""Deletes pending entries whose entries are deleted already."""

_LOCAL: Final = frozenset({"xgroup|delconsumer", "acl|deluser"})
"""Concern this region alone."""


def question(command: Command, words: list[bytes], *, is_region: bool) -> dict[str, Any] | None:
    """What to ask before a command that deletes: ``what`` it does, and the ``name`` to type.

    The name is that of the only key, else that of the command. None: the command deletes nothing.
    """
    keys = keys_of(command, words)
    name = command.full_name
    deletes = name in _ALWAYS or any("delete" in flags.split() for _, flags in keys)
    if name in _BY_OPTION:
        deletes = any(word.upper() in _BY_OPTION[name] for word in words[2:])
    if not deletes or name in _NEVER:
        return None
    what = command.summary
    if len(keys) > 1:
        what += f" The command names {len(keys)} keys."
    if is_region and name not in _LOCAL:
        what += " It does so in all regions."
    shown = keys[0][0] if len(keys) == 1 else name.replace("|", " ").upper().encode()
    return {"what": what, "name": shown_name(shown)}
