"""FUNCTION and FCALL: replies and errors are those of redis-server."""

from __future__ import annotations

import random

import pytest

from anabranch.rdb.lengths import string_bytes
from anabranch.rdb.payload import RDB_VERSION, frame
from tests.support.region_harness import Harness, ReplyError

CODE = b"""#!lua name=mylib
redis.register_function("f1", function(keys, args) return {keys, args} end)
redis.register_function{function_name="f2", flags={"no-writes"}, description="reads",
  callback=function(keys, args) return redis.call("GET", keys[1]) end}
redis.register_function("f3", function() return redis.call("SET", "a", "1") end)
redis.register_function("f4", function() error("oops") end)"""


@pytest.fixture
def server() -> Harness:
    server = Harness(enable_debug_command="yes")
    assert server.do("FUNCTION", "LOAD", CODE) == b"mylib"
    return server


def test_functions_run(server: Harness) -> None:
    assert server.do("FCALL", "f1", 1, "k", "a", "b") == [[b"k"], [b"a", b"b"]]
    assert server.do("FCALL", "f3", 0) == b"OK"
    assert server.do("FCALL_RO", "f2", 1, "a") == b"1"
    assert server.error("FCALL_RO", "f1", 0) == (
        "ERR Can not execute a script with write flag using *_ro command."
    )
    assert server.error("FCALL", "f4", 0) == (
        "ERR user_function:6: oops script: f4, on @user_function:6."
    )
    assert server.error("FCALL", "nosuch", 0) == "ERR Function not found"
    assert server.error("FCALL", "f1", "x") == "ERR Bad number of keys provided"


def test_names_of_functions_have_no_case(server: Harness) -> None:
    code = "#!lua name=%s\nredis.register_function('%s', function() error('no') end)"
    server.do("FUNCTION", "LOAD", code % ("a", "Foo"))
    assert "script: Foo, on @user_function:2." in server.error("FCALL", "fOO", 0)
    assert server.error("FUNCTION", "LOAD", code % ("b", "foo")) == (
        "ERR Function foo already exists"
    )
    assert server.do("FUNCTION", "LOAD", code % ("A", "g")) == b"A"


def test_libraries_are_listed(server: Harness) -> None:
    (library,) = server.do("FUNCTION", "LIST", "LIBRARYNAME", "my*", "WITHCODE")
    assert library[:4] == [b"library_name", b"mylib", b"engine", b"LUA"]
    assert library[5][1] == [
        b"name", b"f2", b"description", b"reads", b"flags", [b"no-writes"],
    ]  # fmt: skip
    assert library[7] == CODE
    assert server.do("FUNCTION", "LIST", "LIBRARYNAME", "x*") == []
    stats = server.do("FUNCTION", "STATS")
    assert stats[3] == [b"LUA", [b"libraries_count", 1, b"functions_count", 4]]


def test_libraries_are_replaced_and_deleted(server: Harness) -> None:
    for body in (CODE, b"#!lua name=mylib\nnonsense", b"#!lua name=mylib\nerror('ran')"):
        assert server.error("FUNCTION", "LOAD", body) == "ERR Library 'mylib' already exists"
    other = b"#!lua name=mylib\nredis.register_function('g', function() return 7 end)"
    assert server.do("FUNCTION", "LOAD", "REPLACE", other) == b"mylib"
    assert server.do("FCALL", "g", 0) == 7
    assert server.error("FCALL", "f1", 0) == "ERR Function not found"
    assert server.do("FUNCTION", "DELETE", "mylib") == b"OK"
    assert server.error("FUNCTION", "DELETE", "mylib") == "ERR Library not found"


def test_a_library_that_is_loaded_again_begins_anew(server: Harness) -> None:
    code = (
        b"#!lua name=count\nlocal n = 0\n"
        b"redis.register_function('next', function() n = n + 1 return n end)"
    )
    for words in (("LOAD", code), ("LOAD", "REPLACE", code)):
        server.do("FUNCTION", *words)
        assert [server.do("FCALL", "next", 0) for _ in range(2)] == [1, 2]
    assert server.error("FUNCTION", "LOAD", code) == "ERR Library 'count' already exists"
    assert server.do("FCALL", "next", 0) == 3
    dump = server.do("FUNCTION", "DUMP")
    server.do("FUNCTION", "RESTORE", dump, "REPLACE")
    assert server.do("FCALL", "next", 0) == 1
    for words in (("DELETE", "count"), ("FLUSH",)):
        server.do("FUNCTION", *words)
        server.do("FUNCTION", "LOAD", code)
        assert server.do("FCALL", "next", 0) == 1
    assert len(server.host.script_machine().loaded) == 1


def test_libraries_survive_a_dump_and_a_snapshot(server: Harness) -> None:
    dump = server.do("FUNCTION", "DUMP")
    assert server.error("FUNCTION", "RESTORE", dump) == "ERR Library mylib already exists"
    assert server.do("FUNCTION", "RESTORE", dump, "REPLACE") == b"OK"
    server.do("FUNCTION", "FLUSH")
    assert server.do("FUNCTION", "LIST") == []
    assert server.do("FUNCTION", "RESTORE", dump) == b"OK"
    server.do("DEBUG", "RELOAD")
    assert server.do("FCALL", "f1", 0) == [[], []]
    assert server.error("FUNCTION", "RESTORE", "xxx") == (
        "ERR DUMP payload version or checksum are wrong"
    )


def test_a_dump_of_redis_server_is_restored() -> None:
    server = Harness()
    code = b"#!lua name=x\nredis.register_function('g', function() return 8 end)"
    # What redis-server 7.0.15 dumps of this library.
    dump = bytes([0xF5, 0x40, len(code)]) + code + b"\x0a\x00" + bytes(8)
    assert server.do("FUNCTION", "RESTORE", dump) == b"OK"
    assert server.do("FCALL", "g", 0) == 8


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("return 1", "Missing library metadata"),
        ("#!lua\nreturn 1", "Library name was not given"),
        (
            "#!lua name=a-b\nreturn 1",
            "Library names can only contain letters, numbers, or underscores(_) and must be at "
            "least one character long",
        ),
        ("#!lua name=x\nreturn 1", "No functions registered"),
        (
            "#!lua name=x\nx = 1",
            "Error registering functions: ERR user_function:2: Attempt to modify a readonly table",
        ),
        (
            "#!lua name=x\nlocal a = (",
            "Error compiling function: user_function:2: unexpected symbol near '<eof>'",
        ),
        ("#!py name=x\nreturn 1", "Engine 'py' not found"),
        (
            "#!lua name=x\nredis.register_function('f1', function() end)",
            "Function f1 already exists",
        ),
        (
            "#!lua name=x\nredis.register_function('g', 1)",
            "Error registering functions: ERR second argument to redis.register_function must be "
            "a function",
        ),
        (
            "#!lua name=x\nredis.register_function{function_name='g', callback=function() end, "
            "flags={'foo'}}",
            "Error registering functions: ERR unknown flag given",
        ),
        (
            "#!lua name=x\nwhile true do end",
            "Error registering functions: ERR FUNCTION LOAD timeout",
        ),
    ],
)  # fmt: skip
def test_libraries_that_cannot_be_loaded(server: Harness, code: str, text: str) -> None:
    assert server.error("FUNCTION", "LOAD", code) == f"ERR {text}"


def test_functions_are_registered_while_a_library_is_loaded_only(server: Harness) -> None:
    text = server.error("EVAL", "return redis.register_function('a', function() end)", 0)
    assert "attempt to call field 'register_function' (a nil value)" in text


def library_dump(*codes: bytes) -> bytes:
    body = b"".join(b"\xf5" + string_bytes(code) for code in codes)
    return frame(body, RDB_VERSION)


GOOD = b"#!lua name=good\nredis.register_function('good', function() return 1 end)"


@pytest.mark.parametrize(
    "dump",
    [
        b"",
        frame(b"", 0xFFFF),
        frame(b"\x00" + string_bytes(GOOD), RDB_VERSION),  # a value, not a library
        frame(b"\xf5\x81" + b"\xff" * 8, RDB_VERSION),  # 16 EiB long
        frame(b"\xf5\xc3\x05\x81" + b"\x7f" * 8 + b"\xff" * 5, RDB_VERSION),  # so when unpacked
        frame(b"\xf5\xc3\x04\x90\xff\xff\xff\xff\x01a\xe0\xff", RDB_VERSION),
        library_dump(GOOD, b"#!lua name=bad\nwhile true do end"),
        library_dump(GOOD, b"#!lua name=bad\nlocal t = {} while true do t[#t + 1] = {} end"),
        library_dump(GOOD, b"#!lua name=bad\nreturn ('x'):rep(2 ^ 30)"),
        library_dump(GOOD, b"#!lua name=bad\nlocal function f() return f() + 1 end f()"),
        library_dump(GOOD, b"#!lua name=bad\nredis.call('FLUSHALL')"),
        library_dump(GOOD, b"#!lua name=bad\n\x1bLua bytecode"),
        library_dump(GOOD, b"#!lua name=bad\n" + b"(" * 100_000),
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["FLUSH", "REPLACE"])
def test_hostile_dumps_change_nothing(server: Harness, dump: bytes, policy: str) -> None:
    before = server.do("FUNCTION", "DUMP")
    server.error("FUNCTION", "RESTORE", dump, policy)
    assert server.do("FUNCTION", "DUMP") == before
    assert server.do("FCALL", "f1", 0) == [[], []]


def test_damaged_dumps_change_nothing(server: Harness) -> None:
    chance = random.Random(1)
    server.do("FUNCTION", "LOAD", GOOD)
    whole = server.do("FUNCTION", "DUMP")
    for _ in range(300):
        damaged = bytearray(whole[: chance.randint(0, len(whole))])
        for _ in range(chance.randint(0, 3)):
            damaged[chance.randrange(max(len(damaged), 1)) :] = chance.randbytes(9)
        body = bytes(damaged[:-10])
        try:
            server.do("FUNCTION", "RESTORE", frame(body, RDB_VERSION), "FLUSH")
        except ReplyError:
            assert server.do("FUNCTION", "DUMP") == whole
        else:
            server.do("FUNCTION", "RESTORE", whole, "FLUSH")
    assert server.do("FCALL", "good", 0) == 1
