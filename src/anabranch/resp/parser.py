"""Requests out of bytes: resumable, linear, bounded.

Nearly all requests are ordinary ones in pipelines, and a fast function parses them. All other bytes
go to :class:`CarefulParser`, which knows every rule and every error text of Redis's request parser
but is slower. Both give the same requests (``tests/unit/resp/test_parser.py`` compares them).

If this module is compiled to machine code, the fast function is :func:`ordinary_requests`.
Interpreted, it would be slow; then hiredis parses, in C. But hiredis is a parser for *replies*: it
does not know inline commands, accepts elements that are not bulk strings, and allocates as much as
a hostile header declares. So a chunk is first searched for unusual input, and the result is
checked.

Never raises: requests before a protocol error must still run, so the error is left in ``error``
for the caller to send before closing.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Final

import hiredis

from anabranch.resp.inline import UnbalancedQuotes, split_words
from anabranch.resp.limits import ARGUMENT_BYTES, AUTHENTICATED, INLINE_MAX, RequestLimits
from anabranch.version import IS_COMPILED

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

# What hiredis must not see: counts of five digits and more (it would allocate what a hostile
# header declares) and elements of other types. A payload may look like that too; then the careful
# parser does the work and finds nothing wrong. Lengths need no look: a hostile one is never
# complete, and what is not complete is checked. Negative and zero counts make no list of bytes.
# Both patterns begin with a literal, and the first one fails at the end of a usual count; the
# second is only tried when one of its rare characters occurs. Its look-behinds let the everyday
# payloads "+" and "(5-0" of XRANGE pass.
_BAD_COUNT: Final = re.compile(rb"\*[0-9](?!\r)[0-9]{4}")
_OTHER_TYPE: Final = re.compile(rb"\r\n[+(=~%>|#](?<!\$\d\r\n.)(?<!\$\d\d\r\n.)", re.DOTALL)
_OTHER_SIGNS: Final = b"+(=~%>|#"
_JOIN: Final = b"".join
_HEADER_OVERLAP: Final = (
    32  # bytes of an unfinished request that a header split across chunks may span
)

_PARTIAL_MAX: Final = 64 * 1024
"""A larger unfinished request is completed by the careful parser, which keeps its bytes once."""

_MANY_ARGUMENTS: Final = re.compile(rb"\*[0-9]{3}")
"""hiredis makes room for as many arguments as are declared, 8 bytes each, before they come."""

_SHORTEST_ARGUMENT: Final = 6
"""``$0``, an empty payload, and the two line ends."""

ARGUMENTS_PIECE_BYTES: Final = 4096
"""So much of a request with many arguments is parsed at a time."""

_LARGE_BULK: Final = re.compile(rb"\r\n\$[0-9]{5,}\r\n")
_LARGE_BULK_BEFORE: Final = 1024
"""A chunk that has a large bulk string near its beginning is not searched: it is mostly payload."""


class RequestParser:
    """Bytes of one connection in, complete requests (lists of arguments) out."""

    def __init__(self, limits: RequestLimits = AUTHENTICATED) -> None:
        self.error: bytes | None = None
        self._limits = limits
        self._reader = hiredis.Reader()
        self._partial = b""  # what the reader holds of an unfinished request
        self._careful: CarefulParser | None = None
        if not limits.is_ordinary:
            self._careful = CarefulParser(limits)

    def set_limits(self, limits: RequestLimits) -> list[list[bytes]]:
        """New limits (a client authenticated, a setting changed).

        A header that only the old limits refused is looked at again; returns what that completes.
        """
        self._limits = limits
        if self._careful is None:
            return [] if limits.is_ordinary else self._be_careful()
        self._careful.limits = limits
        if self.error is not None and b"unauthenticated" in self.error:
            self._careful.error = None
        return self._feed_careful(b"")

    @property
    def is_careful(self) -> bool:
        """Whether requests are read by the slower parser."""
        return self._careful is not None

    @property
    def buffered(self) -> int:
        """Bytes received that are not yet part of a complete request."""
        return len(self._partial) if self._careful is None else self._careful.buffered

    @property
    def awaited(self) -> int:
        """Bytes that can be fed at once: no request ends in them, and parsing them is short.

        The rest of a long argument, or a piece of many arguments; 0 if a request may end soon.
        """
        return 0 if self._careful is None else self._careful.awaited

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The requests that these bytes complete; look at ``error`` afterwards."""
        if self._careful is not None:
            return self._feed_careful(data)
        partial = self._partial
        if len(data) >= ARGUMENTS_PIECE_BYTES and (
            _BAD_COUNT.match(data)  # incomplete: the quick function would read it in vain
            or (len(data) > _PARTIAL_MAX and _LARGE_BULK.search(data, 0, _LARGE_BULK_BEFORE))
        ):
            return self._be_careful(data)
        if IS_COMPILED:
            requests, rest = ordinary_requests(partial + data if partial else data)
        else:
            found = self._ask_hiredis(partial, data)
            if found is None:
                return self._be_careful(data)
            requests, rest = found
        if not rest:
            self._partial = b""
            return requests
        careful = CarefulParser(self._limits)
        more = careful.feed(rest)  # the line that is not complete may be wrong already
        if (
            more
            or careful.error is not None
            or rest[:1] != b"*"
            or len(rest) > _PARTIAL_MAX
            or (partial and not requests)  # byte by byte: do not look at the same bytes each time
            or not self._begin(rest)
        ):
            self.error = careful.error
            self._careful = careful
            self._partial = b""
            requests += more
            return requests
        self._partial = rest
        return requests

    def _begin(self, rest: bytes) -> bool:
        """Let hiredis read the beginning of a request; False if it would make too much room."""
        if not IS_COMPILED:
            if _MANY_ARGUMENTS.match(rest):
                return False
            self._reader.feed(rest)
            self._reader.gets()
        return True

    def _ask_hiredis(self, partial: bytes, data: bytes) -> tuple[list[list[bytes]], bytes] | None:
        """The requests that bytes complete, and what is left; None: the careful parser must look.

        The reader of hiredis has ``partial`` already. If anything is left it is a new one.
        """
        suspect = partial[-_HEADER_OVERLAP:] + data if partial else data
        if (not partial and data[0] != 0x2A) or _is_suspicious(suspect):
            return None
        reader = self._reader
        try:
            reader.feed(data)
            requests: list[list[bytes]] = list(iter(reader.gets, False))
            # A quick check: joining takes nothing but bytes. Empty is, for one, "$0" between two
            # requests: to hiredis a reply, to us a word.
            are_requests = all(map(_JOIN, requests))
        except (hiredis.ProtocolError, TypeError):
            return None
        if not are_requests:
            return None
        # Is the reader in the middle of a request? An unfinished bulk string shows; an array cut
        # exactly between two elements does not, so ask with an empty request.
        if not reader.has_data() and _is_idle(reader):
            return requests, b""
        self._reader = hiredis.Reader()
        return requests, (partial + data)[_encoded_size(requests) :]

    def _be_careful(self, data: bytes = b"") -> list[list[bytes]]:
        self._careful = CarefulParser(self._limits)
        partial, self._partial = self._partial, b""
        self._reader = hiredis.Reader()
        return self._feed_careful(partial + data)

    def _feed_careful(self, data: bytes) -> list[list[bytes]]:
        careful = self._careful
        assert careful is not None
        requests = careful.feed(data)
        self.error = careful.error
        if not careful.buffered and not careful.in_request and self._limits.is_ordinary:
            self._careful = None
        return requests


def ordinary_requests(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """The complete requests at the beginning of bytes, and the rest.

    The rest begins with what is not complete, or with what only the careful parser knows.
    """
    requests: list[list[bytes]] = []
    size: i64 = len(data)
    begin: i64 = 0  # of the present request
    while begin + 3 < size and data[begin] == 0x2A:
        count: i64 = data[begin + 1] - 0x30
        at: i64 = begin + 2
        if count < 1 or count > 9:
            break
        while at < size and 0x30 <= data[at] <= 0x39 and count < 10_000:
            count = count * 10 + (data[at] - 0x30)
            at += 1
        if at + 1 >= size or data[at] != 0x0D or data[at + 1] != 0x0A:
            break
        at += 2
        if at + _SHORTEST_ARGUMENT * count > size:
            break
        args: list[bytes] = [b""] * count
        done, at = _usual_arguments(data, at, args)
        if done < count:
            break
        requests.append(args)
        begin = at
    return requests, data[begin:] if begin else data


def _usual_arguments(data: bytes, begin: i64, args: list[bytes]) -> tuple[i64, i64]:
    """Fill a list with the arguments from an offset on; how many are complete, and their end.

    Stops at an argument that is not complete, or that only the careful parser knows.
    """
    size: i64 = len(data)
    count: i64 = len(args)
    at: i64 = begin
    done: i64 = 0
    while done < count:
        digit: i64 = at + 1  # the first one of the length
        if digit + 2 >= size or data[at] != 0x24:
            break
        length: i64 = data[digit] - 0x30
        digit += 1
        if length < 0 or length > 9:
            break
        if length:
            while digit < size and 0x30 <= data[digit] <= 0x39 and length < 100_000:
                length = length * 10 + (data[digit] - 0x30)
                digit += 1
        end: i64 = digit + 2 + length
        if end + 2 > size or data[digit] != 0x0D or data[digit + 1] != 0x0A:
            break
        args[done] = data[digit + 2 : end]
        at = end + 2  # as in Redis, the two bytes behind a payload are skipped unread
        done += 1
    return done, at


def _is_suspicious(data: bytes) -> bool:
    """Whether the careful parser should look at these bytes."""
    if _BAD_COUNT.search(data):
        return True
    for sign in _OTHER_SIGNS:
        if sign in data:
            return _OTHER_TYPE.search(data) is not None
    return False


def _is_idle(reader: hiredis.Reader) -> bool:
    """Whether the reader is between two requests; a reader that is not cannot be used again."""
    try:
        reader.feed(b"*0\r\n")
        return bool(reader.gets() == [])
    except hiredis.ProtocolError:
        return False


def _encoded_size(requests: list[list[bytes]]) -> int:
    """Bytes that requests took on the wire; hiredis accepts canonical headers only."""
    size = 0
    for request in requests:
        size += len(b"*%d\r\n" % len(request))
        for arg in request:
            size += len(arg) + 5 + len(str(len(arg)))
    return size


class CarefulParser:
    """Every rule of Redis's request parser, in Python."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.error: bytes | None = None
        self._buffer = bytearray()
        self._scanned = 0  # no line end before this offset
        self._missing = 0  # arguments the current request still lacks
        self._args: list[bytes] = []
        self._held = 0  # about how many bytes of memory these arguments take
        self._bulk = -1  # declared length of the argument being read, -1: header comes next
        # What has come of a large argument. BytesIO hands out its bytes without a copy.
        self._large: BytesIO | None = None
        self._large_bytes = 0

    @property
    def buffered(self) -> int:
        """About how many bytes are kept of what is not yet a complete request."""
        return len(self._buffer) + self._large_bytes + self._held

    @property
    def awaited(self) -> int:
        """Bytes that can be fed at once: no request ends in them, and parsing them is short."""
        if self._bulk < 0:
            missing = self._missing * _SHORTEST_ARGUMENT - len(self._buffer)
            return max(min(missing, ARGUMENTS_PIECE_BYTES), 0)
        of_argument = self._bulk + 2 - self._large_bytes - len(self._buffer)
        of_others = (self._missing - 1) * _SHORTEST_ARGUMENT
        return max(of_argument, min(of_others, ARGUMENTS_PIECE_BYTES))

    @property
    def in_request(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self._missing > 0

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The requests that these bytes complete; stops for good at the first error."""
        requests: list[list[bytes]] = []
        if self.error is not None:
            return requests
        large = self._large
        if large is not None:
            end = self._bulk - self._large_bytes
            if len(data) <= end:
                large.write(data)
                self._large_bytes += len(data)
                return requests
            large.write(data[:end])
            self._large_bytes = self._bulk
            data = data[end:]
        self._buffer += data
        start = 0
        while self.error is None:
            if self._missing > 1 and self._bulk < 0 and self.limits.is_ordinary:
                start = self._take_arguments(start)
            stop = self._step(start, requests)
            if stop < 0:
                break
            start = stop
        if start:
            del self._buffer[:start]
            self._scanned = max(self._scanned - start, 0)
        return requests

    def _take_arguments(self, start: int) -> int:
        """Take the usual arguments from ``start`` on, but not the last one; returns their end."""
        data = bytes(self._buffer[start:] if start else self._buffer)
        args = [b""] * min(self._missing - 1, len(data) // _SHORTEST_ARGUMENT)
        done, end = _usual_arguments(data, 0, args)
        self._args += args if done == len(args) else args[:done]
        self._missing -= done
        self._held += end + ARGUMENT_BYTES * done
        return start + end

    def _step(self, start: int, requests: list[list[bytes]]) -> int:
        """Consume one header, argument or line from ``start``; -1 when more bytes are needed."""
        if self._missing:
            if self._bulk < 0:
                return self._bulk_header(start)
            return self._bulk_body(start, requests)
        if start >= len(self._buffer):
            return -1
        if self._buffer[start] == 0x2A:
            return self._array_header(start)
        return self._inline(start, requests)

    def _fail(self, text: bytes) -> int:
        self.error = b"ERR Protocol error: " + text
        return -1

    def _line(self, start: int, end: bytes, too_long: bytes) -> int:
        """Offset of the line end at or after ``start``; -1 when it has not come (or never may)."""
        found = self._buffer.find(end, max(start, self._scanned - 1, 0))
        if found < 0:
            if len(self._buffer) - start > INLINE_MAX:
                return self._fail(too_long)
            self._scanned = len(self._buffer)
        return found

    def _array_header(self, start: int) -> int:
        end = self._line(start, b"\r\n", b"too big mbulk count string")
        if end < 0:
            return -1
        count = _integer(self._buffer[start + 1 : end])
        if count is None or count > AUTHENTICATED.arguments_max:
            return self._fail(b"invalid multibulk length")
        if count > self.limits.arguments_max:
            return self._fail(b"unauthenticated multibulk length")
        self._missing = max(count, 0)
        self._args = []
        self._held = 0
        return end + 2

    def _bulk_header(self, start: int) -> int:
        buffer = self._buffer
        if start < len(buffer) and buffer[start] != 0x24:
            return self._fail(b"expected '$', got '%c'" % buffer[start])
        end = self._line(start, b"\r\n", b"too big bulk count string")
        if end < 0:
            return -1
        size = _integer(buffer[start + 1 : end])
        limits = self.limits
        authenticated = limits.arguments_max == AUTHENTICATED.arguments_max
        top = limits.bulk_bytes_max if authenticated else AUTHENTICATED.bulk_bytes_max
        if size is None or not 0 <= size <= top:
            return self._fail(b"invalid bulk length")
        if size > limits.bulk_bytes_max:
            return self._fail(b"unauthenticated bulk length")
        self._bulk = size
        return end + 2

    def _bulk_body(self, start: int, requests: list[list[bytes]]) -> int:
        large = self._large
        stop = start + self._bulk - self._large_bytes
        if len(self._buffer) < stop + 2:
            if large is None and self._bulk >= _PARTIAL_MAX and len(self._buffer) <= stop:
                return self._begin_large(start)
            return -1
        argument = bytes(self._buffer[start:stop])
        if large is not None:
            large.write(argument)
            argument = large.getvalue()
            self._large = None
            self._large_bytes = 0
        self._args.append(argument)
        self._held += self._bulk + ARGUMENT_BYTES
        self._bulk = -1
        self._missing -= 1
        if not self._missing:
            requests.append(self._args)
            self._args = []
            self._held = 0
        return stop + 2  # as in Redis, the two bytes behind a payload are skipped unread

    def _begin_large(self, start: int) -> int:
        """Keep what has come of a large argument in an object of its own."""
        self._large = BytesIO()
        self._large.write(self._buffer[start:])
        self._large_bytes = len(self._buffer) - start
        del self._buffer[start:]
        return -1

    def _inline(self, start: int, requests: list[list[bytes]]) -> int:
        end = self._line(start, b"\n", b"too big inline request")
        if end < 0:
            return -1
        line = bytes(self._buffer[start:end]).removesuffix(b"\r")
        try:
            words = split_words(line)
        except UnbalancedQuotes:
            return self._fail(b"unbalanced quotes in request")
        if words and words[0].lower() in (b"post", b"host:"):
            self.error = b""  # a browser talked into attacking us: close without a word
            return -1
        if words:
            requests.append(words)
        return end + 1


def _integer(raw: bytes | bytearray) -> int | None:
    """A canonical signed decimal, or None; longer than 20 digits is never read as a number."""
    digits = raw[1:] if raw[:1] == b"-" else raw
    if not digits.isdigit() or len(digits) > 19 or (digits[0] == 0x30 and len(raw) > 1):
        return None
    return int(raw)
