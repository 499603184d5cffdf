"""Hostile byte sequences for a server that speaks RESP: the same seed makes the same ones.

Two kinds. *Broken bytes* violate the protocol: cut, mutated, mistyped, nested, endless, oversized.
*Hostile requests* are well-formed and mean harm: absurd numbers, IDs, counts, globs, corrupted
payloads, options in the wrong place. Nothing is in here that a Redis user may do to a server
outright (SHUTDOWN, CLIENT PAUSE, CLIENT KILL, DEBUG SLEEP, passwords, limits by CONFIG SET).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.wire import encode_command

EOF = "eof"  # stop sending, read all replies until the server closes
CLOSE = "close"  # close without reading
RESET = "reset"  # the same, with unread data thrown away

DEFAULT_BULK_MAX = 512 * 1024 * 1024


@dataclass(slots=True)
class Attack:
    """What one connection does."""

    kind: str
    chunks: list[bytes]
    ending: str = EOF
    sequences: int = 1  # how many hostile sequences this is
    replies: int | None = None  # exactly so many must come, None: any number of whole ones
    requests: list[list[bytes]] = field(default_factory=list)  # for messages

    def described(self) -> str:
        """Enough to send it again."""
        shown = [repr(chunk[:2000]) for chunk in self.chunks[:20]]
        return f"{self.kind}, then {self.ending}: {' + '.join(shown)}"


NUMBERS = [
    *(b"0", b"1", b"2", b"3", b"10", b"100", b"1000", b"-1", b"-2", b"-10"),
    *(b"-0", b"+1", b"01", b"007", b" 1", b"1 ", b"1\n", b"1\0", b"", b"-", b"+", b"--1"),
    *(b"1.5", b"0.001", b"1e9", b"1e-400", b"1e400", b"0x10", b"nan", b"inf", b"-inf", b"-nan"),
    *(b"1_000", b"\xd9\xa1", b"\xc2\xb2", b"1,000", b"0b1", b"\xef\xbc\x91"),
    *(b"2147483647", b"2147483648", b"-2147483648", b"4294967295", b"4294967296"),
    *(b"1000000", b"1000000000", b"1000000000000000"),
    *(b"9223372036854775806", b"9223372036854775807", b"9223372036854775808"),
    *(b"-9223372036854775807", b"-9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551615", b"18446744073709551616", b"9" * 30, b"-" + b"9" * 30),
    *(b"9" * 5000, b"0" * 5000, b"1" + b"0" * 400, b"." * 30, b"9" * 4299 + b".5"),
]

IDS = [
    *(b"*", b"-", b"+", b"$", b">", b"0", b"0-0", b"0-1", b"1", b"1-1", b"1-2", b"2-1", b"5-5"),
    *(b"7-*", b"0-*", b"*-*", b"*-1", b"-1", b"1-", b"-*", b"(", b"(-", b"(+", b"(1", b"(1-1"),
    *(b"((1", b"1-1-1", b"1--1", b"+1-1", b" 1-1", b"1- 1", b"1-1 ", b"1-1\0x", b"\0", b"0-"),
    *(b"18446744073709551615-18446744073709551615", b"18446744073709551615-*"),
    *(b"18446744073709551615", b"18446744073709551614-18446744073709551615"),
    *(b"18446744073709551616-0", b"0-18446744073709551616", b"0-18446744073709551615"),
    *(b"(18446744073709551615-18446744073709551615", b"(0-0", b"9" * 5000 + b"-1"),
    *(b"1-" + b"9" * 5000, b"9" * 126, b"9" * 127, b"0" * 127, b"0" * 128, b"1.5-1", b"1e3-1"),
]

GLOBS = [
    *(b"*", b"**", b"?", b"[", b"[]", b"[^]", b"[a", b"[a-", b"[z-a]", b"[]-a]", b"\\", b"*\\"),
    *(b"[\\]", b"[\\", b"[^\\]]", b"[a-\\]", b"\0", b"*\0*", b"s[0-9]", b"{s,k}", b"(s|k)", b"s$"),
    *(b"a*" * 100 + b"b", b"*" * 5000, b"*a" * 2000, b"?*" * 1000, b"[a-z]*" * 300, b"\\" * 999),
    *(b"[" * 3000, b"[^" * 1500, b"*?" * 500 + b"[x]", b"\xff*\xfe", b"[\x00-\xff]*", b"(?>.*)*"),
]

WORDS = [
    word.encode()
    for word in (
        "NOMKSTREAM MAXLEN MINID = ~ LIMIT KEEPREF DELREF ACKED IDMP IDMPAUTO COUNT STREAMS GROUP "
        "NOACK CLAIM IDLE TIME RETRYCOUNT FORCE JUSTID LASTID MKSTREAM ENTRIESREAD ENTRIESADDED "
        "MAXDELETEDID CREATE SETID DESTROY CREATECONSUMER DELCONSUMER STREAM GROUPS CONSUMERS FULL "
        "IDS SILENT FAIL FATAL IDMP-DURATION IDMP-MAXSIZE DURATION MAXSIZE CFGSET CFGGET HELP "
        "MATCH TYPE REPLACE ABSTTL FREQ DB NX XX GT LT ASYNC SYNC GET LIST INFO SAMPLES AUTH "
        "SETNAME LIB-NAME LIB-VER FILTERBY ACLCAT PATTERN MODULE ID SKIPME stream string maxlen "
        "count streams block"
    ).split()
]

# @-words stand for a hostile or at least unfriendly choice of their kind.
STREAM_TEMPLATES = [
    line.split()
    for line in """
XADD @key * f v
XADD @key @id f v
XADD @key @id @blob @blob
XADD @key MAXLEN ~ @num LIMIT @num * f v
XADD @key MAXLEN = @num * f v
XADD @key @policy MAXLEN @num * f v
XADD @key MINID @id @word @id f v
XADD @key NOMKSTREAM @policy MAXLEN @num @id f v g w
XADD @key IDMP @blob @blob * f v
XADD @key IDMP p @num * f v
XADD @key IDMPAUTO @blob * f v
XADD @key * f
XTRIM @key MAXLEN @word @num LIMIT @num
XTRIM @key MAXLEN ~ @num LIMIT @num @policy
XTRIM @key MINID ~ @id LIMIT @num @policy
XTRIM @key MINID @id @policy
XDEL @key @id @id @id
XDELEX @key @policy IDS 2 @id @id
XDELEX @key @word IDS @num @id @id
XACKDEL @key @group @policy IDS 2 @id @id
XACKDEL @key @group @word IDS @num @id @id
XSETID @key @id
XSETID @key @id ENTRIESADDED @num MAXDELETEDID @id
XLEN @key
XRANGE @key @id @id COUNT @num
XRANGE @key - + COUNT @num
XREVRANGE @key @id @id COUNT @num
XREAD COUNT @num STREAMS @key @key @id @id
XREAD STREAMS @key @id
XREADGROUP GROUP @group @consumer COUNT @num STREAMS @key >
XREADGROUP GROUP @group @consumer COUNT @num NOACK STREAMS @key @id
XREADGROUP GROUP @group @consumer CLAIM @num STREAMS @key @key > >
XGROUP CREATE @key @group @id MKSTREAM ENTRIESREAD @num
XGROUP CREATE @key @group $ MKSTREAM
XGROUP SETID @key @group @id ENTRIESREAD @num
XGROUP DESTROY @key @group
XGROUP CREATECONSUMER @key @group @consumer
XGROUP DELCONSUMER @key @group @consumer
XACK @key @group @id @id
XNACK @key @group @nack IDS @num @id @id
XNACK @key @group @nack IDS 2 @id @id
XNACK @key @group FAIL IDS 1 @id RETRYCOUNT @num FORCE
XPENDING @key @group
XPENDING @key @group IDLE @num @id @id @num @consumer
XPENDING @key @group - + @num
XCLAIM @key @group @consumer @num @id @id IDLE @num TIME @num RETRYCOUNT @num FORCE JUSTID
XCLAIM @key @group @consumer 0 @id FORCE LASTID @id
XAUTOCLAIM @key @group @consumer @num @id COUNT @num JUSTID
XAUTOCLAIM @key @group @consumer 0 @id COUNT @num
XINFO STREAM @key
XINFO STREAM @key FULL COUNT @num
XINFO GROUPS @key
XINFO CONSUMERS @key @group
XCFGSET @key IDMP-DURATION @num IDMP-MAXSIZE @num
XIDMP CFGSET @key DURATION @num
XIDMP CFGGET @key @word
XIDMPRECORD @key @blob @blob @id
XIDMPRECORD @key p @num @id
DUMP @key
COPY @key @key REPLACE
RENAME @key @key
PEXPIRE @key @num
DEL @key
DEBUG DIGEST-VALUE @key
RESTORE @key @num @payload REPLACE
RESTORE @key 0 @payload REPLACE
RESTORE @key 0 @blob REPLACE ABSTTL IDLETIME @num FREQ @num
""".strip().splitlines()
]

TEMPLATES = [
    line.split()
    for line in """
KEYS @glob
SCAN @num MATCH @glob COUNT @num TYPE @word
SCAN 0 MATCH @glob
PUBSUB CHANNELS @glob
CONFIG GET @glob
COMMAND LIST FILTERBY PATTERN @glob
COMMAND LIST FILTERBY ACLCAT @word
COMMAND GETKEYS @any @any @any @any @any
COMMAND GETKEYSANDFLAGS XREADGROUP GROUP g c COUNT @num STREAMS @key @key > @id
COMMAND DOCS @any @word
COMMAND INFO @any
EXPIRE @key @num @word
PEXPIRE @key @num
EXPIREAT @key @num
PEXPIREAT @key @num NX
TTL @key
PERSIST @key
DEL @key @key
UNLINK @key
EXISTS @key @key @any
TYPE @key
RENAME @key @key
RENAMENX @key @key
COPY @key @key REPLACE
COPY @key @key DB @num REPLACE
MOVE @key @num
SELECT @num
SWAPDB @num @num
FLUSHDB
FLUSHALL
RANDOMKEY
OBJECT @word @key
MEMORY USAGE @key SAMPLES @num
SET @other @blob
GET @other
INCR @other
LPUSH @other @blob
RPUSH @other @blob
LPOP @other @num
LRANGE @other @num @num
SADD @other @blob
SMEMBERS @other
MULTI
EXEC
DISCARD
WATCH @key @key
UNWATCH
HELLO @num
HELLO 3 SETNAME @blob
HELLO 3 AUTH @blob @blob
HELLO 2
AUTH @blob @blob
PING @blob
ECHO @blob
RESET
INFO @word
TIME
ROLE
DBSIZE
LASTSAVE
CLIENT SETNAME @blob
CLIENT SETINFO LIB-NAME @blob
CLIENT LIST ID @num @num
CLIENT INFO
CLIENT GETNAME
CLIENT UNBLOCK @num ERROR
CLIENT TRACKING @word @word
CLIENT NO-TOUCH @word
SLOWLOG GET @num
LATENCY HISTORY @any
LATENCY HISTOGRAM @any
PUBLISH @glob @blob
SPUBLISH @glob @blob
ACL WHOAMI
ACL CAT @word
ACL GETUSER @any
ACL DRYRUN default @any @any @any
ACL GENPASS @num
ACL LOG @num
ACL SETUSER @user @rule @rule @rule
ACL DELUSER @user
CONFIG SET @config @num
CONFIG SET @config @any @config @num
SCRIPT EXISTS @blob
FUNCTION LIST @word
EVALSHA @any @num @key
EVAL @blob @num
DEBUG OBJECT @key
DEBUG DIGEST-VALUE @key @key
DEBUG DIGEST
DEBUG ERROR @blob
LOLWUT VERSION @num @num @num
@any @any @any
@blob
""".strip().splitlines()
]

# These answer never, later, or more than once, so replies cannot be counted behind them.
WILD_TEMPLATES = [
    line.split()
    for line in """
SUBSCRIBE @any @glob
PSUBSCRIBE @glob @glob
SSUBSCRIBE @any
UNSUBSCRIBE
PUNSUBSCRIBE @glob
MONITOR
CLIENT REPLY OFF
CLIENT REPLY SKIP
CLIENT REPLY ON
QUIT
WAIT @num 1
WAITAOF 0 @num 1
BLPOP @key @num
BLPOP @key @key 0.01
XREAD BLOCK @num COUNT @num STREAMS @key $
XREAD BLOCK 0 STREAMS @key @key $ $
XREADGROUP GROUP @group @consumer BLOCK @num STREAMS @key >
XREADGROUP GROUP @group @consumer BLOCK 0 CLAIM @num STREAMS @key @key > >
PSYNC ? -1
SYNC
REPLCONF capa eof
POST / HTTP/1.1
Host: localhost
""".strip().splitlines()
]

# Harmless ones: the canary and the limits of the test must stay as they are.
CONFIGS = [
    name.encode()
    for name in (
        "stream-node-max-entries stream-node-max-bytes stream-idmp-duration stream-idmp-maxsize "
        "notify-keyspace-events slowlog-max-len slowlog-max-argc slowlog-log-slower-than "
        "latency-monitor-threshold "
        "hash-max-listpack-entries list-max-listpack-size lua-time-limit nonsense appendfsync"
    ).split()
]

RULES = [
    rule.encode()
    for rule in (
        "on off nopass resetpass reset resetkeys resetchannels allkeys allcommands nocommands "
        "~s* ~ ~[ %R~s* %W~* %RW~k %~ %X~k &c* & +@all -@all +@stream -@write +xadd -xadd "
        "+xinfo|stream +xinfo|nope -@nope +@ + - >pw <pw #beef !beef (+@all ~*) (+xadd (+get ~s) "
        "clearselectors sanitize-payload skip-sanitize-payload +select|1 +config|get|x"
    ).split()
]


class HostileSource:
    """An endless source of attacks."""

    def __init__(self, seed: int, commands: Sequence[bytes], payloads: Sequence[bytes]) -> None:
        """`commands`: names the server knows; `payloads`: valid ones of DUMP, to be corrupted."""
        self.random = random.Random(seed)
        self.names = [name for name in commands if name.partition(b"|")[0] not in _OUTRIGHT]
        self.payloads = list(payloads)
        self._focus = b"s1"  # the key that most requests are about
        self._evil = 0.5  # share of words that are absurd
        self._breakers: list[tuple[Callable[[], list[bytes]], int]] = [
            (self._truncated, 16),
            (self._mutated, 30),
            (self._hostile_lengths, 14),
            (self._wrong_types, 10),
            (self._nested, 4),
            (self._inline, 10),
            (self._binary, 6),
            (self._resp3, 6),
            (self._other_protocol, 2),
            (self._endless_line, 1),
        ]

    def attack(self) -> Attack:
        """The next one."""
        chance = self.random.random()
        if chance < 0.94:
            return self.broken_bytes()
        if chance < 0.985:
            return self.hostile_requests()
        return self.wild_requests()

    # -- broken bytes -----------------------------------------------------------------------------

    def broken_bytes(self) -> Attack:
        """One sequence that breaks the protocol, or leaves in the middle of it."""
        choose = self.random
        makers, weights = zip(*self._breakers, strict=True)
        maker = choose.choices(makers, weights)[0]
        chunks = maker()
        if len(chunks) == 1 and choose.random() < 0.3:
            chunks = self._split(chunks[0])
        ending = choose.choices((EOF, CLOSE, RESET), (8, 1, 1))[0]
        return Attack(maker.__name__.strip("_"), chunks, ending)

    def _split(self, data: bytes) -> list[bytes]:
        """The same bytes in several pieces, cut anywhere."""
        count = self.random.randint(1, 4)
        cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(count))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        return [piece for piece in pieces if piece]

    def _pipeline(self) -> bytes:
        requests = [self._request(TEMPLATES) for _ in range(self.random.randint(1, 5))]
        return b"".join(map(encode_command, requests))

    def _truncated(self) -> list[bytes]:
        data = self._pipeline()
        return [data[: self.random.randrange(len(data)) or 1]]

    def _mutated(self) -> list[bytes]:
        choose = self.random
        data = bytearray(self._pipeline())
        for _ in range(choose.randint(1, 6)):
            at = choose.randrange(len(data) + 1)
            how = choose.randrange(6)
            if how == 0 and at < len(data):
                data[at] ^= 1 << choose.randrange(8)
            elif how == 1:
                data[at:at] = choose.randbytes(choose.randint(1, 4))
            elif how == 2:
                del data[at : at + choose.randint(1, 10)]
            elif how == 3:
                data[at:at] = data[at : at + choose.randint(1, 40)]
            elif how == 4 and at < len(data):
                data[at] = choose.choice(b"*$+-:_,(#%~>|=!.\r\n\0 0123456789\xff")
            else:
                data[at:at] = choose.choice((b"\r\n", b"\n", b"*1\r\n", b"$3\r\n", b"$-1\r\n"))
        return [bytes(data) or b"\0"]

    def _hostile_lengths(self) -> list[bytes]:
        choose = self.random
        length = choose.choice(
            [
                *NUMBERS,
                b"1000000000",
                b"2147483647",
                b"2147483648",
                b"%d" % DEFAULT_BULK_MAX,
                b"%d" % (DEFAULT_BULK_MAX + 1),
                b"%d" % choose.randrange(1 << choose.randint(1, 70)),
            ]
        )
        body = choose.randbytes(choose.randint(0, 60))
        return [
            choose.choice(
                (
                    b"*%b\r\n$4\r\nPING\r\n" % length,
                    b"*1\r\n$%b\r\nPING\r\n" % length,
                    b"*2\r\n$4\r\nECHO\r\n$%b\r\n%b" % (length, body),
                    b"*%b\r\n" % length + b"$1\r\na\r\n" * choose.randint(1, 50),
                    b"*3\r\n$4\r\nXLEN\r\n$%b\r\ns\r\n*1\r\n$4\r\nPING\r\n" % length,
                    b"*1\r\n$4\r\nPING\r\n*%b\r\n" % length,
                    b"*%b" % length,
                    b"$%b\r\n%b\r\n" % (length, body),
                )
            )
        ]

    def _wrong_types(self) -> list[bytes]:
        choose = self.random
        out = bytearray()
        for _ in range(choose.randint(1, 3)):
            args = self._request(TEMPLATES)
            out += b"*%d\r\n" % len(args)
            for arg in args:
                shown = arg.replace(b"\r", b"").replace(b"\n", b"")
                out += choose.choice(
                    (
                        b"$%d\r\n%b\r\n" % (len(arg), arg),
                        b"$%d\r\n%b\r\n" % (len(arg), arg),
                        b"$%d\r\n%b\r\n" % (len(arg), arg),
                        b"+%b\r\n" % shown,
                        b":%d\r\n" % choose.randrange(1 << 65),
                        b"-%b\r\n" % shown,
                        b"$-1\r\n",
                        b"*-1\r\n",
                        b"*1\r\n$%d\r\n%b\r\n" % (len(arg), arg),
                        b"$%d\n%b\n" % (len(arg), arg),
                        b"$%d\r\n%b" % (len(arg), arg),
                        b"%d\r\n%b\r\n" % (len(arg), arg),
                    )
                )
        return [bytes(out)]

    def _nested(self) -> list[bytes]:
        choose = self.random
        heads = (b"*1\r\n", b"*2\r\n$1\r\na\r\n", b"*2\r\n", b"%1\r\n+k\r\n", b">1\r\n")
        head = choose.choice(heads)
        return [head * choose.choice((2, 8, 9, 10, 100, 1000)) + b"$4\r\nPING\r\n"]

    def _inline(self) -> list[bytes]:
        choose = self.random
        alphabet = choose.choice(
            (
                b"PING ECHO XADD s * f v \"'\\x41\\n\t",
                b"\"'\\ \r\n",
                bytes(range(32, 127)),
                bytes(range(256)),
            )
        )
        line = bytes(choose.choices(alphabet, k=choose.choice((1, 5, 30, 300, 3000))))
        end = choose.choice((b"\r\n", b"\n", b"", b"\r", b"\n\r\n\r\n"))
        return [choose.choice((b"", b"PING\r\n", b"ECHO ", b"\n")) + line + end]

    def _binary(self) -> list[bytes]:
        choose = self.random
        return [choose.randbytes(choose.choice((1, 2, 10, 100, 1000, 20_000)))]

    def _resp3(self) -> list[bytes]:
        choose = self.random
        pieces = (
            *(b"%1\r\n+a\r\n+b\r\n", b"~2\r\n:1\r\n:2\r\n", b">1\r\n+x\r\n", b"|1\r\n+a\r\n+b\r\n"),
            *(b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(99999999999999999999\r\n", b"=7\r\ntxt:abc\r\n"),
            *(b"!5\r\nERR x\r\n", b"$?\r\n;4\r\nabcd\r\n;0\r\n", b"*?\r\n+a\r\n.\r\n", b":1\r\n"),
            *(b"+OK\r\n", b"-ERR x\r\n", b"$4\r\nPING\r\n", b"*1\r\n", b"*0\r\n", b"*-1\r\n"),
        )
        return [b"".join(choose.choices(pieces, k=choose.randint(1, 6)))]

    def _other_protocol(self) -> list[bytes]:
        tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.random.randbytes(500)
        http = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
        post = b"POST /x HTTP/1.1\r\nHost: localhost\r\n\r\nXADD s * a b\r\n"
        ssh = b"SSH-2.0-OpenSSH_9.9\r\n" + self.random.randbytes(200)
        memcached = b"set k 0 0 5\r\nhello\r\nget k\r\n"
        return [self.random.choice((tls, http, post, ssh, memcached))]

    def _endless_line(self) -> list[bytes]:
        heads = (b"*", b"$", b"*1\r\n$", b"PING ", b'ECHO "', b"*2\r\n$4\r\nECHO\r\n$")
        head = self.random.choice(heads)
        size = self.random.choice((65_000, 65_535, 65_537, 70_000, 200_000))
        return [head + self.random.choice((b"1", b"a", b" ", b"\0", b'"')) * size]

    # -- hostile requests -------------------------------------------------------------------------

    def hostile_requests(self) -> Attack:
        """A pipeline of well-formed requests, each of which has exactly one reply."""
        count = self.random.randint(1, 20)
        requests = self._stage() if self.random.random() < 0.7 else []  # to be hostile to
        requests += [self._request(TEMPLATES) for _ in range(count)]
        count = len(requests)
        data = b"".join(map(encode_command, requests))
        chunks = [data] if self.random.random() < 0.7 else self._split(data)
        return Attack("requests", chunks, EOF, count, count, requests)

    def _stage(self) -> list[list[bytes]]:
        """A stream with entries, groups and pending entries; one reply each."""
        key = self._key()
        requests = [b"DEL %b" % key]
        requests += [b"XADD %b %d-%d f v" % (key, ms, seq) for ms in (1, 2, 3) for seq in (1, 2, 3)]
        requests += [b"XGROUP CREATE %b %b 0" % (key, group) for group in (b"g1", b"g2", b"g3")]
        requests += [
            b"XREADGROUP GROUP %b %b COUNT 3 STREAMS %b >" % (group, consumer, key)
            for group in (b"g1", b"g2")
            for consumer in (b"c1", b"c2")
        ]
        self._focus = key
        return [line.split(b" ") for line in requests]

    def wild_requests(self) -> Attack:
        """A pipeline with requests that wait, listen, fall silent or hang up."""
        choose = self.random
        count = choose.randint(1, 20)
        requests = [
            self._request(WILD_TEMPLATES if choose.random() < 0.4 else TEMPLATES)
            for _ in range(count)
        ]
        data = b"".join(map(encode_command, requests))
        ending = choose.choices((EOF, CLOSE, RESET), (6, 2, 2))[0]
        return Attack("wild", self._split(data), ending, count, None, requests)

    def _request(self, templates: Sequence[Sequence[str]]) -> list[bytes]:
        choose = self.random
        self._evil = choose.choice((0.02, 0.15, 0.15, 0.5))
        if templates is TEMPLATES and choose.random() < 0.6:
            template = choose.choice(STREAM_TEMPLATES)
        else:
            template = choose.choice(templates)
        args = [self._filled(word) for word in template]
        while choose.random() < self._evil / 3 and templates is TEMPLATES:
            at = choose.randrange(len(args) + 1)
            how = choose.randrange(4)
            if how == 0:
                args.insert(at, self._any())
            elif how == 1 and len(args) > 1 and at < len(args):
                del args[at]
            elif how == 2 and at < len(args) and at:
                args[at] = self._any()
            elif at < len(args) and at:
                args.insert(at, args[choose.randrange(1, len(args))])
        return args if is_fair(args) or templates is WILD_TEMPLATES else [b"PING"]

    def _filled(self, word: str) -> bytes:
        if word[0] != "@":
            return word.encode()
        maker: Callable[[], bytes] = getattr(self, f"_{word[1:]}")
        return maker()

    def _num(self) -> bytes:
        choose = self.random
        if choose.random() > self._evil:
            return b"%d" % choose.randrange(6)
        if choose.random() < 0.3:
            return b"%d" % (choose.randrange(-(1 << 66), 1 << 66) >> choose.randrange(66))
        return choose.choice(NUMBERS)

    def _id(self) -> bytes:
        choose = self.random
        if choose.random() > self._evil:
            return b"%d-%d" % (choose.randrange(5), choose.randrange(4))
        return choose.choice(IDS)

    def _key(self) -> bytes:
        if self.random.random() > self._evil:
            return self._focus
        if self.random.random() < 0.8:
            return self.random.choice((b"s1", b"s2", b"s3"))
        return self._other()

    def _other(self) -> bytes:
        return self.random.choice((b"s4", b"t1", b"t2", b"k\0\r\n\xff", b"", b"*[s"))

    def _policy(self) -> bytes:
        return self.random.choice((b"KEEPREF", b"DELREF", b"ACKED"))

    def _nack(self) -> bytes:
        return self.random.choice((b"SILENT", b"FAIL", b"FATAL"))

    def _group(self) -> bytes:
        if self.random.random() > self._evil:
            return self.random.choice((b"g1", b"g1", b"g2"))
        return self.random.choice((b"g3", b"g4", b"", b"\xff\r\n"))

    def _consumer(self) -> bytes:
        return self.random.choice((b"c1", b"c2", b"c3", b"", b"\0\r\n"))

    def _user(self) -> bytes:
        return self.random.choice((b"u1", b"u2", b"u3", b"u 4", b"", b"\xff"))

    def _rule(self) -> bytes:
        return self.random.choice(RULES)

    def _config(self) -> bytes:
        return self.random.choice(CONFIGS)

    def _glob(self) -> bytes:
        choose = self.random
        if choose.random() < 0.6:
            return choose.choice(GLOBS)
        return bytes(choose.choices(b"*?[]^-\\as1\xff", k=choose.randint(1, 40)))

    def _blob(self) -> bytes:
        choose = self.random
        size = choose.choice((0, 1, 3, 3, 16, 40, 200, 5000))
        return choose.choice((b"\r\n", b"x", b"\0", b"\xff\xfe", b"$1\r\n", b"-ERR ", b"'\"\\"))[
            :size
        ] * (size // 4 + 1) + choose.randbytes(size // 8)

    def _payload(self) -> bytes:
        """A payload of DUMP with something wrong inside, behind a checksum that is not checked."""
        choose = self.random
        data = bytearray(choose.choice(self.payloads)[:-10])
        for _ in range(choose.choice((0, 1, 1, 2, 4))):
            at = choose.randrange(len(data))
            how = choose.randrange(5)
            if how == 0:
                data[at] ^= 1 << choose.randrange(8)
            elif how == 1:
                data[at] = choose.choice(b"\x00\x01\x7f\x80\x81\xc0\xc3\xf0\xf4\xfe\xff")
            elif how == 2:
                del data[at : at + choose.randint(1, 8)]
            elif how == 3:
                data[at:at] = choose.randbytes(choose.randint(1, 8))
            else:
                start = choose.randrange(len(data))
                data[at : at + 9] = data[start : start + 9]
            if not data:
                data += b"\x0f"
        return bytes(data) + choose.choice((b"\x0e\x00", b"\x0b\x00", b"\x09\x00")) + bytes(8)

    def _any(self) -> bytes:
        choose = self.random
        maker = choose.choice(
            (self._num, self._id, self._key, self._glob, self._blob, self._word, self._name)
        )
        return maker()

    def _word(self) -> bytes:
        return self.random.choice(WORDS)

    def _name(self) -> bytes:
        return self.random.choice(self.names)


_OUTRIGHT = {
    *(b"shutdown", b"debug", b"client", b"monitor", b"quit", b"wait", b"waitaof", b"blpop"),
    *(b"subscribe", b"psubscribe", b"ssubscribe", b"unsubscribe", b"punsubscribe"),
    *(b"sunsubscribe", b"sync", b"psync", b"acl", b"config", b"failover", b"bgrewriteaof"),
}


def is_fair(args: Sequence[bytes]) -> bool:
    """Whether a request, as it came out of chance, stays within what this module promises."""
    words = [arg.lower() for arg in args]
    if words[0] == b"client":
        return words[1:2] != [b"reply"] and words[1:2] not in ([b"kill"], [b"pause"])
    if words[0] == b"acl":
        return words[1:2] != [b"setuser"] or words[2:3] != [b"default"]
    if words[0] in (b"post", b"host:"):
        return False
    return b"block" not in words
