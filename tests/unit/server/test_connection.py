"""A connection without sockets: what the order of events does to its replies."""

from __future__ import annotations

import asyncio
import tracemalloc

from anabranch.config.settings import Settings
from anabranch.server.admission import Admission, ConnectionKind
from anabranch.server.app import Server
from anabranch.server.connection import CAREFUL_PIECE_BYTES, ClientConnection
from tests.support.wings import WINGS


class Sink(asyncio.Transport):
    """Where replies go."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Client:
    """A connection of a server."""

    def __init__(self, server: Server) -> None:
        place = Admission().admit(ConnectionKind.CLIENT, "127.0.0.1")
        assert place is not None
        self.sink = Sink()
        self.connection = ClientConnection(server.clients, server.node, place)
        self.connection.connection_made(self.sink)

    def send(self, *words: bytes) -> None:
        data = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self.connection.data_received(b"*%d\r\n%b" % (len(words), data))


def test_the_end_of_the_requests_does_not_drop_a_reply_that_is_not_written_yet() -> None:
    server = Server(Settings(), WINGS)
    waiting, other = Client(server), Client(server)
    waiting.send(b"BLPOP", b"list", b"0")
    server.node.flush_pending = lambda: None  # type: ignore[method-assign]  # a later slice does
    other.send(b"RPUSH", b"list", b"x")
    assert waiting.sink.written == b""
    assert waiting.connection.eof_received()
    assert waiting.sink.written == b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n"
    assert waiting.sink.closed


def test_a_request_that_blocks_after_the_end_of_the_requests_ends_the_connection() -> None:
    """Also if others wait behind it: nobody will ever read their replies."""
    server = Server(Settings(), WINGS)
    scheduler = server.node.region.scheduler
    scheduler.drive(lambda: None)
    client = Client(server)
    ping = b"*1\r\n$4\r\nPING\r\n"
    client.connection.data_received(
        ping * 20_000 + b"*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n" + ping
    )
    assert client.connection.eof_received()
    assert not client.sink.closed
    while len(scheduler):
        scheduler.run_turn()
        server.node.end_turn()
    assert client.sink.written == b"+PONG\r\n" * 20_000
    assert client.sink.closed


def test_lines_are_parsed_a_short_piece_at_a_time() -> None:
    """Also if pieces end within a line: the clock is looked at after each piece."""
    server = Server(Settings(), WINGS)
    scheduler = server.node.region.scheduler
    scheduler.drive(lambda: None)
    scheduler.ticks_ns = lambda: 0  # so requests see that their slice is over, pieces do not
    client = Client(server)
    line = b"PING\r\n"
    assert CAREFUL_PIECE_BYTES % len(line)
    client.connection.data_received(line * 20_000)
    most = 0
    while client.connection.has_more:
        most = max(most, len(client.connection.session.backlog))
        client.connection.go_on()
    assert client.sink.written == b"+PONG\r\n" * 20_000
    assert 0 < most <= CAREFUL_PIECE_BYTES // len(line) + 1


def test_a_read_that_is_part_of_one_argument_is_not_cut_up() -> None:
    """So the bytes of a large value are copied once on their way out of the parser."""
    server = Server(Settings(), WINGS)
    scheduler = server.node.region.scheduler
    scheduler.drive(lambda: None)
    scheduler.ticks_ns = lambda: 0  # no slice is over
    client = Client(server)
    value = bytes(4 << 20)
    data = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%b\r\n" % (len(value), value)
    client.connection.data_received(data[: 64 << 10])
    piece = data[64 << 10 : 3 << 20]
    tracemalloc.start()
    held, _ = tracemalloc.get_traced_memory()
    client.connection.data_received(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not client.connection.has_more
    assert peak - held < 1.3 * len(piece)
    client.connection.data_received(data[3 << 20 :])
    assert client.sink.written == b"+OK\r\n"
