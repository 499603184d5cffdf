"""The newest commands that clients sent to a server under test."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from anabranch.engine.session import Session
    from anabranch.server.app import Server as LiveServer

OURSELVES: Final = "anabranch.testing"
"""The address of who asks without a connection."""

SEEN_MAX: Final = 1000
"""The number of newest commands that are remembered."""

ARGUMENT_BYTES_MAX: Final = 200
"""Of an argument, so many bytes are remembered."""

ARGUMENTS_MAX: Final = 100
"""The number of arguments of a command that are remembered."""


def our_session(live: LiveServer) -> Session:
    """A session of the test kit; it is no client, so it is not counted, listed or killed."""
    from anabranch.engine.session import Session  # noqa: PLC0415 - with the server

    return Session(0, live.region.acl.initial_user(), OURSELVES, OURSELVES)


class _SeenCommand(NamedTuple):
    now_us: int
    db: int
    address: str
    arguments: list[tuple[bytes, int]]
    """The beginning of each, and how long it is."""
    more: int
    """How many arguments were left out."""

    def line(self) -> str:
        from anabranch.engine.dispatch import quoted  # noqa: PLC0415 - with the server

        seconds, us = divmod(self.now_us, 1_000_000)
        words = [
            quoted(shown) + (b"... (%d bytes)" % size if size > len(shown) else b"")
            for shown, size in self.arguments
        ]
        if self.more:
            words.append(b"... (%d more)" % self.more)
        text = b" ".join(words).decode("ascii")
        return f"{seconds}.{us:06d} [{self.db} {self.address}] {text}"


class Seen:
    """Remembers the newest commands; long ones are shortened, so a large value costs little."""

    def __init__(self) -> None:
        self._commands: deque[_SeenCommand] = deque(maxlen=SEEN_MAX)
        self.count = 0
        """How many commands were seen since the start."""

    def watch(self, live: LiveServer) -> None:
        """Remember what clients send to this server, where MONITOR would show it."""

        def remember(session: Session, args: list[bytes]) -> None:
            if session.address != OURSELVES:
                self.count += 1
                self._commands.append(
                    _SeenCommand(
                        live.clock.now_us(),
                        session.db,
                        session.address,
                        [(arg[:ARGUMENT_BYTES_MAX], len(arg)) for arg in args[:ARGUMENTS_MAX]],
                        max(len(args) - ARGUMENTS_MAX, 0),
                    )
                )

        live.region.dispatcher.monitor(our_session(live), remember)

    def lines(self, since: int = 0) -> list[str]:
        """The commands as MONITOR prints them, oldest first; ``since``: not the first so many."""
        known = list(self._commands)
        left_out = max(since - (self.count - len(known)), 0)
        return [command.line() for command in known[left_out:]]

    def clear(self) -> None:
        """Forget the commands; :attr:`count` goes on."""
        self._commands.clear()
