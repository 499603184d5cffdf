"""A small blocking client for Spark's worker processes: commands, pipelines, abilities of servers.

redis-py opens the connection (addresses, TLS, authentication) and hiredis parses; its command
methods, which wrap every reply, are left out. Connections are kept per process and address:
workers live longer than tasks, and a forked process must not use its parent's socket.

    with connect(options.server) as client:
        client.command("AB.EXPORT", key, region, 0, 100, repeatable=True)
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.exceptions import (
    AskError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
)
from redis.retry import Retry

from anabranch.errors import AnabranchError
from anabranch.spark.options import ServerOptions
from anabranch.spark.reading.offsets import LogBounds, LogCursor

Word = bytes | str | int
_Result = TypeVar("_Result")

_IDLE_SECONDS: Final = 5.0  # a connection that was unused for longer is checked with PING
_IDLE_MAX: Final = 8  # connections kept per address
_READ_BYTES: Final = 1 << 20
_BROKEN: Final = (redis.ConnectionError, redis.TimeoutError, OSError)
_CANNOT_WAIT: Final = (redis.AuthenticationError, AuthorizationError)
_NO_COMMAND: Final = re.compile(r".*permissions to run the '([^']*)' command", re.DOTALL)
_OF_CLUSTERS: Final = (AskError, ClusterCrossSlotError, ClusterDownError)  # MOVED is an ASK as well

_HINTS: Final = {
    "WRONGTYPE": "the key holds something that is no stream",
    "DB index": "check the option db",
    "Invalid stream ID": "an ID is such as 1718000000000-0",
    "maxmemory": "trim streams there (options maxLen and minId do), or raise its maxmemory",
    "read only replica": "give the address of its primary in option url",
    "NOREPLICAS": "it takes writes when as many others are connected as min-replicas-to-write says",
    "MISCONF": "it takes writes when its disk is mended, see its log",
}
"""What to do, by what is in the text of an error; redis-py removes some error codes."""

_idle: defaultdict[tuple[int, ServerOptions], list[ServerClient]] = defaultdict(list)


class ServerUnreachable(AnabranchError):
    """No stable connection after all attempts; the text names the address."""


class ServerRefused(AnabranchError):
    """The server answered with an error; the text is the server's, with its address and a hint."""


def connect(options: ServerOptions) -> ServerClient:
    """A connected client: one that is idle in this process, else a new one.

    Return it with `close`, or use it in ``with``. Raises `ServerUnreachable` or `ServerRefused`.
    """
    kept = _idle[os.getpid(), options]
    client = kept.pop() if kept else ServerClient(options)
    client.revive()
    return client


class ServerClient:
    """One connection. Not for several threads at a time."""

    def __init__(self, options: ServerOptions) -> None:
        """Nothing is opened yet; `connect` makes clients."""
        self._options = options
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self._used = 0.0
        self._has_bulk: bool | None = None

    # ------------------------------------------------------------------------------ one command

    def command(self, *words: Word, repeatable: bool = False, wait_ms: int = 0) -> Any:
        """Send one command and return its reply: bytes, integers, lists and None.

        `repeatable`: the command may be sent twice; after a broken connection it is sent again, up
        to `retries` times. `wait_ms` is how long the server may delay the reply on purpose. Raises
        `ServerRefused` for an error reply, `ServerUnreachable`.
        """
        (reply,) = self.pipeline([words], repeatable=repeatable, wait_ms=wait_ms)
        if isinstance(reply, redis.RedisError):
            raise self.refusal(reply) from None
        return reply

    def begin(self, commands: Sequence[Iterable[Word]]) -> Callable[[], list[Any]]:
        """Send commands that may be sent twice; returns a function that waits for the replies.

        Call the function before sending anything else. It returns and raises as `pipeline` does.
        """
        sent_by = None
        with suppress(ServerUnreachable):
            self._send(commands)
            sent_by = self._connection

        def replies() -> list[Any]:
            if sent_by is not None and sent_by is self._connection:
                with suppress(ServerUnreachable):
                    return [self.receive() for _ in commands]
            return self.pipeline(commands, repeatable=True)

        return replies

    def pipeline(
        self,
        commands: Sequence[Iterable[Word]],
        *,
        repeatable: bool = False,
        wait_ms: int = 0,
    ) -> list[Any]:
        """Send all commands at once and return their replies in order.

        An error reply is a `redis.RedisError` object in the list; the other commands took effect.
        Raises `ServerUnreachable`; then it is unknown
        which commands took effect.
        """

        def exchanged() -> list[Any]:
            self._send(commands)
            return [self.receive(wait_ms) for _ in commands]

        return self.tried(exchanged, repeatable=repeatable)

    def tried(
        self,
        action: Callable[[], _Result],
        *,
        repeatable: bool = True,
        between: Callable[[], object] | None = None,
    ) -> _Result:
        """The result of an action, tried as often as the options allow, with growing pauses.

        `between` prepares the next attempt; by default it makes another connection. Raises
        `ServerUnreachable`, as the action and `between` do.
        """
        for left in range(self._options.retries if repeatable else 0, 0, -1):
            with suppress(ServerUnreachable):
                return action()
            time.sleep(self._options.retry_interval_ms * 2 ** (self._options.retries - left) / 1000)
            (between or self.revive)()
        return action()

    def ask(self, commands: Sequence[Iterable[Word]]) -> list[Any]:
        """Replies to commands that only read; None where a key or a group does not exist.

        Raises `ServerRefused` for another error reply, `ServerUnreachable`.
        """
        return self.checked(self.pipeline(commands, repeatable=True)) if commands else []

    def checked(self, replies: list[Any]) -> list[Any]:
        """Replies that were received, as `ask` returns them; raises `ServerRefused`."""
        for at, reply in enumerate(replies):
            if isinstance(reply, redis.RedisError):
                if "no such key" not in str(reply) and not str(reply).startswith("NOGROUP"):
                    raise self.refusal(reply)
                replies[at] = None
        return replies

    def streams(self, pattern: str) -> set[str]:
        """The keys of all streams that match."""
        found: set[str] = set()
        at = None
        while at != b"0":
            words = ("SCAN", at or 0, "MATCH", pattern, "COUNT", 1000, "TYPE", "stream")
            at, keys = self.command(*words, repeatable=True)
            found.update(map(text_of, keys))
        return found

    def logs(
        self,
        streams: Sequence[str],
        places: Sequence[Mapping[str, LogCursor]] | None = None,
        *,
        limit: int = 1,
        waiting: Sequence[Word] = (),
        wait_ms: int = 0,
    ) -> list[dict[str, LogBounds] | None]:
        """The logs of each stream by region, of one moment; None for a stream that is not known.

        `places`: where a reader is in the logs of each stream, who reads `limit` entries.
        `waiting`: words of AB.OFFSETS by which the server waits, for `wait_ms` at most.
        """
        words = [*waiting]
        if places is not None:
            vector = [{name: each.position for name, each in row.items()} for row in places]
            words += ["FROM", json.dumps(vector), "LIMIT", limit]
        words += ["STREAMS", *map(stream_key, streams)]
        reply = self.command("AB.OFFSETS", *words, repeatable=True, wait_ms=wait_ms)
        return [None if rows is None else dict(map(LogBounds.of_row, rows)) for rows in reply]

    # --------------------------------------------------------------- commands packed by the caller

    def send(self, packed: Sequence[bytes | memoryview]) -> None:
        """Send wire bytes of whole commands, without waiting for their replies.

        Raises `ServerUnreachable`; the connection is closed then, `revive` makes another.
        """
        try:
            self._connected().send_packed_command(packed)
        except _BROKEN as error:
            raise self._broken(error) from None

    def _send(self, commands: Sequence[Iterable[Word]]) -> None:
        self.send(self._connected().pack_commands(commands))

    def receive(self, wait_ms: int = 0) -> Any:
        """The next reply to what was sent; an error reply as a `redis.RedisError` object.

        `wait_ms` is how long the server may delay the reply on purpose. Raises
        `ServerUnreachable`; then it is unknown which commands took effect.
        """
        if self._connection is None:
            raise self._unreachable(ConnectionError("connection lost"))
        seconds = (self._options.read_timeout_ms + wait_ms) / 1000
        try:
            reply = self._connection.read_response(disable_decoding=True, timeout=seconds)
        except _CANNOT_WAIT as error:
            reply = error
        except _BROKEN as error:
            raise self._broken(error) from None
        except redis.RedisError as error:
            reply = error
        self._used = time.monotonic()
        return reply

    def _broken(self, error: Exception) -> ServerUnreachable:
        self._drop()
        return self._unreachable(error)

    # --------------------------------------------------------------------------- what it can do

    @property
    def has_bulk(self) -> bool:
        """Whether the server has AB.OFFSETS, AB.EXPORT and AB.IMPORT (asked once a connection)."""
        self._connected()
        if self._has_bulk is None:
            (reply,) = self.pipeline([("AB.OFFSETS", "STREAMS", "")], repeatable=True)
            # A user with access to some keys only may run the command, and not with this key.
            is_about_keys = isinstance(reply, NoPermissionError) and not _NO_COMMAND.match(
                str(reply)
            )
            if is_about_keys or not isinstance(reply, redis.RedisError):
                self._has_bulk = True
            elif "unknown command" in str(reply):
                self._has_bulk = False
            else:
                raise self.refusal(reply)
        return self._has_bulk

    @property
    def has_marks(self) -> bool:
        """Whether the server recognises idempotent IDs of producers (Redis 8.6)."""
        return self.command("COMMAND", "INFO", "XCFGSET") not in ([], [None], None)

    @property
    def is_of_cluster(self) -> bool:
        """Whether the server is a node of a Redis Cluster, which has a part of the keys only."""
        # Every user may run HELLO, but not every user INFO.
        (reply,) = self.pipeline([("HELLO",)], repeatable=True)
        if isinstance(reply, redis.RedisError):
            return False
        return facts_of(reply).get("mode") == b"cluster"

    @property
    def address(self) -> str:
        """The address without user or password, for messages."""
        place = parse_url(self._options.url)
        if "path" in place:
            return str(place["path"])
        return f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"

    # ------------------------------------------------------------------------------- connection

    def revive(self) -> None:
        """Make sure that the connection works, with as many attempts as the options allow."""
        if self._connection is not None and time.monotonic() - self._used > _IDLE_SECONDS:
            with suppress(ServerUnreachable):
                self.pipeline([("PING",)])
        self.tried(self._connected, between=lambda: None)

    def _connected(self) -> Connection:
        if self._connection is None:
            try:
                self._connection = _open(self._options)
            except (redis.RedisError, OSError) as error:
                if isinstance(error, _BROKEN) and not isinstance(error, _CANNOT_WAIT):
                    raise self._unreachable(error) from None
                raise self.refusal(error) from None
            self._has_bulk = None
            self._used = time.monotonic()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def close(self) -> None:
        """Return the connection to this process, for the next `connect`."""
        kept = _idle[self._pid, self._options]
        if self._pid != os.getpid() or self._connection is None or len(kept) >= _IDLE_MAX:
            self._drop()
        elif self not in kept:
            kept.append(self)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Keep the connection, except after an error: unread replies may be left on it.

        Also after a refusal: another client may have refused, in the midst of this one's replies.
        """
        if kind is not None:
            self._drop()
        self.close()

    # ----------------------------------------------------------------------------------- errors

    def refusal(self, error: Exception) -> ServerRefused:
        """An error reply of a pipeline as the exception to raise, with a hint."""
        return ServerRefused(f"the server at {self.address} answered: {explained(error)}")

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        reason = str(error) or type(error).__name__
        waited = "retries and retryIntervalMs say how long to wait for it"
        if isinstance(error, BusyLoadingError):
            return ServerUnreachable(
                f"the server at {self.address} takes no commands yet ({reason}): {waited}"
            )
        asked = "is it running, and can every Spark worker reach this address?"
        if self._options.url.startswith("rediss"):
            asked += " Is the port one for TLS, and has every worker the files of tls.ca and so on?"
        return ServerUnreachable(
            f"no server at {self.address} ({reason}): {asked} It is taken from the option url; "
            f"{waited}"
        )


def facts_of(flat: Sequence[Any]) -> dict[str, Any]:
    """A map reply as a dictionary by name."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def now_ms(client: ServerClient) -> int:
    """The server's clock."""
    seconds, us = client.command("TIME", repeatable=True)
    return int(seconds) * 1000 + int(us) // 1000


def text_of(raw: bytes) -> str:
    """A key or a name as text, for any bytes; `stream_key` reverses it."""
    return raw.decode("utf-8", "surrogateescape")


def stream_key(stream: str) -> bytes:
    """The key of a stream whose name came from the server, or from an option."""
    return stream.encode("utf-8", "surrogateescape")


def shown(key: bytes) -> str:
    """A key or an ID, for messages."""
    return key.decode("utf-8", "backslashreplace")


def explained(error: Exception) -> str:
    """The text of an error reply, with a hint where there is one."""
    text = str(error)
    if isinstance(error, _CANNOT_WAIT) or text.startswith(("WRONGPASS", "NOAUTH")):
        hint = "; check the options username and password"
    elif isinstance(error, NoPermissionError) or "NOPERM" in text:  # also of a whole transaction
        found = _NO_COMMAND.match(text)
        rule = "a pattern for the key (~...)" if found is None else f"+{found[1]}"
        hint = f"; the user needs that permission: ACL SETUSER with {rule}"
    elif isinstance(error, _OF_CLUSTERS):
        if isinstance(error, AskError):  # redis-py removes the error code
            text = f"{'MOVED' if isinstance(error, MovedError) else 'ASK'} {text}"
        hint = (
            "; the server is a node of a Redis Cluster, and clusters are not supported: copy the "
            "streams to a server that has them all, or give the address of the node with this key"
        )
    else:
        hint = "".join(f"; {hint}" for part, hint in _HINTS.items() if part in text)
    return f"{text}{hint}"


def _open(options: ServerOptions) -> Connection:
    settings: dict[str, Any] = parse_url(options.url)
    kind = settings.pop("connection_class", Connection)
    given = {
        "username": options.username,
        "password": options.password,
        "db": options.db,
        "ssl_ca_certs": options.tls_ca,
        "ssl_certfile": options.tls_cert,
        "ssl_keyfile": options.tls_key,
    }
    settings.update({name: value for name, value in given.items() if value is not None})
    connection: Connection = kind(
        **settings,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_read_size=_READ_BYTES,
        socket_timeout=options.read_timeout_ms / 1000,
        socket_connect_timeout=options.connect_timeout_ms / 1000,
    )
    connection.connect()
    return connection
