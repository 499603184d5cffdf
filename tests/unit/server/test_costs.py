"""What a command costs in function calls, and an entry in objects, within stated budgets.

Time is measured in ``benchmarks/``. These figures are the same on each machine: the interpreter
counts all functions that are called while a pipeline is served, built-in ones included. A budget is
a tenth above the figure at the time when it was set. A change that needs more raises the budget.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from anabranch.config.settings import Settings
from anabranch.server.admission import Admission, ConnectionKind
from anabranch.server.app import Server, Surroundings
from anabranch.server.clock import RealClock
from anabranch.server.connection import ClientConnection
from anabranch.version import IS_COMPILED
from tests.support.calls import calls_of
from tests.support.embedded import until
from tests.support.wings import WINGS

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be seen")

DEPTH: Final = 64

OBJECTS_MAX: Final = 0.2
"""For each entry of a long stream. Larger objects, such as the bytes of a node, are not counted."""


class StandingClock(RealClock):
    """No millisecond passes, and each look takes some nanoseconds."""

    def __init__(self) -> None:
        self._ticks = 0

    def now_us(self) -> int:
        return 1_700_000_000_000_000

    def ticks_ns(self) -> int:  # type: ignore[override]
        self._ticks += 100
        return self._ticks


class Sink(asyncio.Transport):
    """Where replies go."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.replies = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.replies = bytes(data)


class Client:
    """A connection of a server without sockets."""

    def __init__(self) -> None:
        self._server = Server(Settings(), WINGS, surroundings=Surroundings(clock=StandingClock()))
        self.sink = Sink()
        self.connection = self.connect(self.sink)

    def connect(self, sink: Sink) -> ClientConnection:
        """Another connection."""
        place = Admission().admit(ConnectionKind.CLIENT, "127.0.0.1")
        assert place is not None
        connection = ClientConnection(self._server.clients, self._server.node, place)
        connection.connection_made(sink)
        return connection

    def send(self, *requests: str) -> bytes:
        """Send a pipeline; what it answers."""
        self.connection.data_received(b"".join(map(encoded, requests)))
        return self.sink.replies

    def calls(self, requests: list[str]) -> float:
        """The calls that a request of a pipeline takes, when such a one ran before."""
        data = b"".join(map(encoded, requests))
        receive = self.connection.data_received
        count = calls_of(lambda: receive(data))
        assert b"-ERR" not in self.sink.replies
        return count / len(requests)


def encoded(request: str) -> bytes:
    words = request.encode().split()
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


@pytest.fixture
def client() -> Iterator[Client]:
    gc.collect()
    gc.disable()
    made = Client()
    made.send(*(f"XADD read {at}-1 a 1 b 2 c 3" for at in range(1, 501)), "XGROUP CREATE read g 0")
    yield made
    gc.enable()


def add(at: int) -> str:
    return "XADD s * a 1 b 2 c 3"


def add_idempotent(at: int) -> str:
    return f"XADD s IDMP producer {at} * a 1"


def add_by_content(at: int) -> str:
    return f"XADD s IDMPAUTO producer * a {at} b 2 c 3"


def add_trimmed(at: int) -> str:
    return "XADD s MAXLEN ~ 1000 * a 1"


def read_range(at: int) -> str:
    return f"XRANGE read {at + 1} + COUNT 10"


def read_back(at: int) -> str:
    return f"XREVRANGE read + {at + 1} COUNT 10"


def group_read(at: int) -> str:
    return "XREADGROUP GROUP g c COUNT 1 STREAMS read >"


def acknowledge(at: int) -> str:
    return f"XACK read g {at % 400 + 1}-1"


def delete(at: int) -> str:
    return f"XDEL read {at + 1}-1"


def ping(at: int) -> str:
    return "PING"


BUDGETS: Final[dict[Callable[[int], str], float]] = {
    ping: 8.5,
    add: 32,
    add_trimmed: 37.5,
    add_idempotent: 40.5,
    add_by_content: 70,
    read_range: 57,
    read_back: 60.5,
    group_read: 121,
    acknowledge: 48.5,
    delete: 86,
}


LONG_REQUEST: Final = 100_000
READ_BYTES: Final = 256 * 1024
ARGUMENT_MAX: Final = 0.15
"""For each argument of a long request: they are parsed many at a time."""

WORD_MAX: Final = 3.2
"""The same of an entry, whose words are joined in a loop that machine code runs without calls."""

WAKING_MAX: Final = 86
"""For each of many readers that one entry wakes."""


@pytest.mark.parametrize("request_of", BUDGETS)
def test_calls_of_a_command_in_a_pipeline(client: Client, request_of: Callable[[int], str]) -> None:
    for first in range(0, 2 * DEPTH, DEPTH):
        client.send(*map(request_of, range(first, first + DEPTH)))
    if request_of is acknowledge:
        client.send("XREADGROUP GROUP g c COUNT 400 STREAMS read >")
    calls = client.calls(list(map(request_of, range(2 * DEPTH, 3 * DEPTH))))
    assert calls <= BUDGETS[request_of]


@pytest.mark.parametrize("name", ["PING", "NOSUCH", "DEL", "XADD s *"])
def test_calls_of_an_argument_of_a_long_request(client: Client, name: str) -> None:
    words = " ".join([name, *(f"w{each}" for each in range(LONG_REQUEST))])
    data = encoded(words)

    def send() -> None:
        for at in range(0, len(data), READ_BYTES):
            client.connection.data_received(data[at : at + READ_BYTES])

    at_most = WORD_MAX if name.startswith("XADD") else ARGUMENT_MAX
    assert calls_of(send) <= at_most * LONG_REQUEST
    assert client.sink.replies


def test_calls_of_waking_a_reader(client: Client) -> None:
    """It runs its command again, and does not read its arguments again."""
    sinks = [Sink() for _ in range(DEPTH)]
    readers = [client.connect(sink) for sink in sinks]
    for _ in range(2):
        for reader in readers:
            reader.data_received(encoded("XREAD BLOCK 0 STREAMS w $"))
        calls = client.calls(["XADD w * a 1"]) / DEPTH
    assert all(sink.replies.endswith(b"a\r\n$1\r\n1\r\n") for sink in sinks)
    assert calls <= WAKING_MAX


def test_objects_that_an_entry_takes(client: Client) -> None:
    """Two in the newest node: fragment and ID. In full nodes some for the whole node."""
    entries = 5000
    client.send("XADD s * a 1")
    data = b"".join(encoded("XADD s * a 1") for _ in range(100))
    before = sys.getallocatedblocks()
    for _ in range(entries // 100):
        client.connection.data_received(data)
    assert sys.getallocatedblocks() - before < entries * OBJECTS_MAX


async def test_a_pipeline_leaves_the_slower_parser_at_the_next_request() -> None:
    """A request that comes in many pieces needs it, those behind it do not."""
    client = Client()
    data = encoded("XADD s *" + " field value" * 40) * 50
    for begin, end in ((0, 40), (40, 60), (60, 90)):
        client.connection.data_received(data[begin:end])
    assert client.connection._parser.is_careful
    client.connection.data_received(data[90:40_000])
    await until(lambda: not client.connection.has_more)
    assert not client.connection._parser.is_careful
