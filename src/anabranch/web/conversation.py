"""A client without a socket: commands of the page run as those of every other client.

So users, ACL rules, MONITOR, the slow log and the order of replies hold for the page as for any
client, and a reply comes when what it tells of is as safe as ``appendfsync`` asks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import hiredis

from anabranch.engine.acl.users import User
from anabranch.node.node import Node

REPLY_BYTES_MAX: Final = 4 * 1024 * 1024
"""A larger reply is dropped, and the caller gets an error instead."""

REPLY_LINES_MAX: Final = 100_000
"""A reply of more lines of the protocol is dropped, too: hiredis needs 10 ms for so many."""

_MORE: Final = object()


class ErrorReply(Exception):
    """An error reply; the text is the reply."""


class TooLarge(ErrorReply):
    """The reply was dropped; later commands get theirs."""

    def __init__(self) -> None:
        super().__init__("ERR the reply is too large for the page: ask for fewer with COUNT")


class Conversation:
    """One session; a :class:`anabranch.node.driver.ReplyWriter`. Close it with :meth:`close`."""

    def __init__(self, node: Node, address: str, local: str, user: User | None) -> None:
        """``user`` runs the commands; without one (None) ``AUTH`` must come first."""
        self._node = node
        self._region = node.region
        self.session = node.region.open_session(address, local)
        self.session.connection = self
        self.session.name = b"web"
        self.session.resp3 = True
        self.session.user = user
        self.session.refresh()
        self._held: deque[list[bytes]] = deque()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._works_later = False

    async def call(self, *words: bytes) -> Any:
        """The reply to one command, as hiredis decodes it; an error reply raises `ErrorReply`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._region.scheduler.begin_with_request()
        self._region.execute(self.session, [list(words)])
        self.flush()
        if self.has_more and self._region.can_go_on(self.session):
            self.go_on_later()
        self._node.end_turn()
        return await answer

    def close(self) -> None:
        """Forget the session and what it waits for."""
        if self.session.connection is None:
            return
        if self._works_later:
            self._region.scheduler.remove(self._go_on)
        self._region.close_session(self.session)
        self.session.connection = None
        self._held.clear()
        for answer in self._waiting:
            answer.cancel()
        self._waiting.clear()
        self._node.end_turn()

    # -- for the node -------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether a command has no reply yet."""
        return bool(self.session.backlog)

    @property
    def waits_for_older(self) -> bool:
        """Whether replies are held."""
        return bool(self._held)

    @property
    def unsent_bytes(self) -> int:
        """The bytes of replies that are held."""
        return sum(len(part) for parts in self._held for part in parts)

    def go_on_later(self) -> None:
        """Continue in a slice of a later turn."""
        self._works_later = True
        self._region.scheduler.schedule(self._go_on)

    def _go_on(self) -> bool:
        self._works_later = False
        self._region.resume(self.session)
        self.flush()
        self._node.durability.replies.end_turn()
        return self.has_more and self._region.can_go_on(self.session)

    def flush(self) -> None:
        """Deliver the replies in the outbox, or let them be held."""
        outbox = self.session.outbox
        if outbox:
            parts = self._node.durability.replies.hold(self, outbox)
            if parts is not None:
                self._held.append(parts)
            else:
                self._answer(outbox)
            outbox.clear()
        if self.session.closing and not self._held:
            self._end("the connection was closed by the server")

    def release(self, parts: list[bytes]) -> None:
        """Deliver the oldest held replies."""
        self._held.popleft()
        self._answer(parts)
        if self.session.closing and not self._held:
            self._end("the connection was closed by the server")

    def cut_off(self) -> None:
        """Deliver no further replies."""
        self._end("the connection was closed by the server")

    def _end(self, reason: str) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(ErrorReply(f"ERR {reason}"))
        self._waiting.clear()

    def _answer(self, parts: list[bytes]) -> None:
        if self._waiting and _is_too_large(parts):  # parts are whole replies
            too_large = self._waiting.popleft()
            if not too_large.done():
                too_large.set_exception(TooLarge())
            return
        for part in parts:
            self._reader.feed(part)
        while self._waiting:
            reply = self._reader.gets()
            if reply is _MORE:
                return
            if isinstance(reply, hiredis.PushNotification):
                continue
            answer = self._waiting.popleft()
            if answer.done():
                continue
            if isinstance(reply, hiredis.HiredisError):
                answer.set_exception(ErrorReply(str(reply)))
            else:
                answer.set_result(reply)


def _is_too_large(parts: list[bytes]) -> bool:
    if sum(map(len, parts)) > REPLY_BYTES_MAX:
        return True
    return sum(part.count(b"\r\n") for part in parts) > REPLY_LINES_MAX
