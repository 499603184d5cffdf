"""The state of one connection, without its socket."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from anabranch.effects.applier import Author
from anabranch.engine.acl.users import User
from anabranch.engine.served_command import ServedCommand
from anabranch.keyspace.waiter import Waiter
from anabranch.metrics.holdings import Holdings
from anabranch.stream.shared import Dot


class Resumable(Protocol):
    """A request that takes several slices of time and is running."""

    def resume(self) -> None:
        """Continue after a pause; does nothing if it is running."""

    def cancel(self) -> None:
        """Cancel it: the reply is not needed any more."""


class Session(Author):
    """The state of one client on the server.

    Replies and pushes are appended to ``outbox``; the driver of the region writes them.
    ``plain`` is true while nothing special applies (authenticated, unrestricted user, no MULTI,
    no RESP2 subscription, replies on, no long requests): the dispatcher then skips all checks. Call
    :meth:`refresh` after changing anything it depends on.
    """

    def __init__(
        self,
        session_id: int,
        user: User | None,
        address: str,
        local: str,
        holdings: Holdings | None = None,
    ) -> None:
        """``holdings`` counts what the server holds for it; None if nothing is ever counted."""
        self.id = session_id
        self.address = address  # "ip:port" of the client, or the socket path
        self.local_address = local
        self.user = user  # None until authenticated
        self.holdings = holdings or Holdings()
        self.held_bytes = 0  # in memory, for this client alone
        self.db = 0
        self.resp3 = False
        self.name = b""
        self.library_name = b""
        self.library_version = b""
        self.outbox: list[bytes] = []
        self.backlog: deque[list[bytes]] = deque()  # requests that wait behind a blocked one
        self.waiter: Waiter | None = None
        self.subscribed: Waiter | None = None  # to entries, by AB.SUBSCRIBE
        self.sliced: Resumable | None = None  # of the first request of the backlog, in progress
        # transactions
        self.transaction: list[tuple[ServedCommand, list[bytes]]] | None = None
        self.transaction_bytes = 0  # about how many bytes of memory its requests take
        self.transaction_error: str | None = None
        self.watched: set[tuple[int, bytes]] = set()
        self.watch_broken = False
        # publish/subscribe
        self.channels: dict[bytes, None] = {}  # in the order of subscription
        self.patterns: dict[bytes, None] = {}
        self.shard_channels: dict[bytes, None] = {}
        # CLIENT REPLY: "on", "off", or "skip" for the next request
        self.reply_mode = "on"
        self.reply_skip = False
        self.monitoring = False
        self.is_long = False  # it has sent a request whose sizes must be checked
        self.no_evict = False
        self.no_touch = False
        self.created_ms = 0
        self.last_ms = 0  # last request
        self.last_command = ""
        self.commands = 0
        # its traffic, counted by the transport side
        self.descriptor = -1  # of the socket; -1 without one
        self.reads = 0
        self.input_bytes = 0
        self.output_bytes = 0
        self.query_bytes = 0  # received, and not yet run
        self.written_by = 0  # of its latest effect that goes to other regions: the replica ID,
        self.written_number = 0  # and the number; 0 if there is none
        self.stalled = False  # the client does not read what it is sent
        self.delayed = False  # until the clients are served that its last request woke
        self.closing = False  # close once the outbox is written
        self.connection: Any = None  # the transport side, opaque to the core
        self.plain = False
        self.refresh()

    @property
    def blocked(self) -> bool:
        """Whether a command of this connection is waiting for a key."""
        return self.waiter is not None

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine: loopback, or a Unix socket."""
        return self.address.startswith(("127.", "[::1]:", "[::ffff:127.", "/"))

    @property
    def written(self) -> Dot | None:
        """Its latest effect that goes to other regions."""
        return (self.written_by, self.written_number) if self.written_number else None

    def wrote(self, replica_id: int, number: int) -> None:
        """It has written an effect that goes to other regions."""
        self.written_by = replica_id
        self.written_number = number

    def hold(self, holder: str, size: int, shared: int = 0) -> None:
        """The server holds so many bytes more for this client, or less if negative.

        ``shared`` are more bytes that it holds for several clients together.
        """
        self.held_bytes += size
        self.holdings.change(holder, size + shared)

    def set_names(self, name: bytes, library_name: bytes, library_version: bytes) -> None:
        """Take over what the client calls itself and its library."""
        before = len(self.name) + len(self.library_name) + len(self.library_version)
        self.name = name
        self.library_name = library_name
        self.library_version = library_version
        self.hold("names", len(name) + len(library_name) + len(library_version) - before)

    @property
    def listens(self) -> bool:
        """Whether it waits for what is pushed: messages or entries."""
        return bool(self.subscriptions or self.shard_channels) or self.subscribed is not None

    @property
    def subscriptions(self) -> int:
        """Channels and patterns, as the subscribe replies count them."""
        return len(self.channels) + len(self.patterns)

    def refresh(self) -> None:
        """Recompute ``plain`` after a change of what it depends on."""
        self.plain = (
            self.user is not None
            and self.user.is_unrestricted
            and self.transaction is None
            and (self.resp3 or not (self.channels or self.patterns or self.shard_channels))
            and self.reply_mode == "on"
            and not self.reply_skip
            and not self.monitoring
            and not self.is_long
            and self.subscribed is None
        )
