"""Each row of the table of docs/scripting.md about versions holds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from anabranch.version import REDIS_VERSION
from tests.support.region_harness import Harness
from tests.support.servers import REPOSITORY

GONE = "ERR Script attempted to access nonexistent global variable"
VERSION_NUM = "{} * 65536 + {} * 256 + {}".format(*REDIS_VERSION.split("."))

# The names in the first cell of a row -> scripts, and what they return; text: how the error begins.
ROWS: dict[str, list[tuple[str, Any]]] = {
    "redis.call redis.pcall redis.error_reply redis.status_reply redis.sha1hex redis.log": [
        ("return redis.call('ECHO', 'x')", b"x"),
        ("return redis.pcall('ECHO').err:sub(1, 3)", b"ERR"),
        ("return redis.error_reply('E x').err", b"E x"),
        ("return redis.status_reply('y').ok", b"y"),
        ("return #redis.sha1hex('')", 40),
        ("return redis.log(redis.LOG_NOTICE, 'x')", None),
    ],
    "cjson cmsgpack struct": [
        ("return cjson.encode({1, {a = 'b'}})", b'[1,{"a":"b"}]'),
        ("return (cmsgpack.unpack(cmsgpack.pack({1, 2})))", [1, 2]),
        ("return (struct.unpack('>I2', struct.pack('>I2', 515)))", 515),
        ("cjson.encode_number_precision(3)", None),
        ("return cjson.encode(0.12345)", b"0.123"),
        ("return cjson.new().encode(0.12345)", b"0.12345"),
        ("return struct.unpack('c2147483647', 'abc')", "ERR user_script:1: bad argument #2 to 'un"),
        ("return struct.unpack('c2147483648', 'abc')", "ERR user_script:1: integral size overflow"),
    ],
    "bit": [("return bit.bxor(5, 3)", 6)],
    "redis.set_repl redis.replicate_commands": [
        ("redis.set_repl(redis.REPL_NONE) redis.call('SET', 'k', 'v')", None),
        ("return redis.replicate_commands()", 1),
    ],
    "redis.breakpoint redis.debug": [
        ("return redis.breakpoint()", None),
        ("return redis.debug('x')", None),
    ],
    "redis.setresp": [("redis.setresp(3) return redis.call('GET', 'nosuch') == nil", 1)],
    "redis.acl_check_cmd": [
        ("return redis.acl_check_cmd('GET', 'k')", 1),
        ("return redis.acl_check_cmd('HSET', 'k', 'f', 'v')", "ERR Invalid command passed to redi"),
    ],
    "redis.register_function": [
        ("return redis.register_function == nil", 1),
        ("#!lua name=l\nredis.register_function('f', function() return 1 end)", b"l"),
    ],
    "redis.REDIS_VERSION redis.REDIS_VERSION_NUM": [
        ("return redis.REDIS_VERSION", REDIS_VERSION.encode()),
        (f"return redis.REDIS_VERSION_NUM == {VERSION_NUM}", 1),
    ],
    "#!lua flags=...": [
        (f"#!lua flags={flag}\nreturn 1", 1)
        for flag in "no-writes allow-oom allow-stale no-cluster allow-cross-slot-keys".split()
    ]
    + [
        ("#!lua flags=no-writes\nredis.call('SET', 'k', 'v')", "ERR Write commands are not allowed")
    ],
    "print": [("print(1)", GONE)],
    "BLPOP WAIT": [
        ("return redis.call('BLPOP', 'nosuch', 0)", None),
        ("return redis.call('WAIT', 1, 0)", 0),
    ],
    "XREAD XREADGROUP BLOCK": [
        ("redis.call('XGROUP', 'CREATE', 's', 'g', '$', 'MKSTREAM')", None),
        ("return redis.call('XREAD', 'BLOCK', 0, 'STREAMS', 's', '$')", None),
        ("return redis.call('XREADGROUP','GROUP','g','c','BLOCK',0,'STREAMS','s','>')", None),
    ],
    "os.clock": [("return os.clock() > 0", 1), ("return os.time == nil", 1)],
    "getfenv setfenv newproxy": [
        (f"return {name}()", GONE) for name in ("getfenv", "setfenv", "newproxy")
    ],
    "cjson.decode_array_with_array_mt": [
        ("cjson.decode_array_with_array_mt(true) return cjson.encode(cjson.decode('[]'))", b"[]"),
    ],
    "string table math coroutine": [
        ("return ('abc'):rep(2) .. table.concat({1, 2}) .. math.floor(2.5)", b"abcabc122"),
        ("return coroutine.wrap(function() coroutine.yield(7) end)()", 7),
        ("return string.dump == nil", 1),
        *[(f"return {name}('x')", GONE) for name in ("dofile", "loadfile", "require", "module")],
    ],
    "server.call server": [("return server.call('PING')", GONE)],
}


def rows_of_the_page() -> list[str]:
    """The first cells of the table: the names in them."""
    text = (REPOSITORY / "docs" / "scripting.md").read_text("utf-8")
    _, _, table = text.partition("| What | Since | Here |\n|---|---|---|\n")
    lines = table.partition("\n\n")[0].splitlines()
    return [" ".join(re.findall(r"`([^`]+)`", line.split("|")[1])) for line in lines]


def test_every_row_is_tried() -> None:
    assert sorted(rows_of_the_page()) == sorted(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_holds(row: str) -> None:
    server = Harness()
    for script, value in ROWS[row]:
        request = ["FUNCTION", "LOAD", script] if " name=" in script else ["EVAL", script, 0]
        if isinstance(value, str):
            said = server.error(*request).replace("ERR user_script:1: Script", "ERR Script")
            assert said.startswith(value), script
        else:
            assert server.do(*request) == value, script
