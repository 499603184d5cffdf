"""The libraries of scripts: values and errors are those of redis-server.

Where it is 7.0.15 that decides, tests/differential/test_script_libraries.py compares with it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.region_harness import Harness


@pytest.fixture(scope="module")
def server() -> Harness:
    return Harness()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("bit.band('10', '0x3')", 2),
        ("bit.tohex(1e16)", b"37e08000"),
        ("bit.bor(-1.5)", -2),
        ("bit.bswap(1)", 1 << 24),
        ("bit.ror(1, 1)", -(1 << 31)),
        ("cjson.decode('[infinity, 0x10]')[2]", 16),
        ("cjson.decode('007')", 7),
        ("cmsgpack.pack(1e100)", bytes.fromhex("cb54b249ad2594c37d")),
        ("cmsgpack.pack(2^63)", b"\xca\x5f\0\0\0"),
        ("cmsgpack.pack({{}, {{}}})", b"\x92\x90\x91\x90"),
        ("struct.unpack('f', struct.pack('f', 1e100)) == math.huge", 1),
        ("select('#', redis.set_repl(redis.REPL_ALL))", 0),
        ("redis.error_reply('single').err", b"ERR single"),
        ("redis.error_reply('-two words').err", b"two words"),
        ("redis.pcall('GET', {}).ignore_error_stats_update == nil", 1),
        ("{pcall(error, {err=5})}", [None, 5]),
        ("{xpcall(error, function() error('y') end)}", [None, b"error in error handling"]),
        ("{xpcall(error, function() return 1, 2 end)}", [None, 1]),
        ("redis.sha1hex(true) == redis.sha1hex('')", 1),
        ("redis.acl_check_cmd('set', 'a')", 1),
        ("redis.acl_check_cmd('xgroup')", 1),
        ("select('#', redis.setresp('3'))", 0),
        ("select('#', redis.set_repl('x'))", 0),
        ("math.randomseed(0/0) == math.randomseed('7')", 1),
        ("{struct.unpack('dc0', struct.pack('d', 1/0) .. 'abc')}", [b"", 9]),
        ("{struct.unpack('dc0', struct.pack('d', 2.5) .. 'abc')}", [b"ab", 11]),
        ("struct.pack('>i8', -2^64)", b"\x80" + bytes(7)),
        ("{bit.tobit('0x1F'), bit.tobit(' 0x1p3 '), bit.tobit('1e1')}", [31, 8, 10]),
        ("struct.pack('>i8', 2^64)", bytes(8)),
        ("struct.pack('>i16', -1)", bytes(8) + b"\xff" * 8),
        ("cjson.encode(nil)", b"null"),
        ("{cmsgpack.unpack_limit('\\1\\2\\3', 0)}", [1, 2, 3]),
        ("{cmsgpack.unpack_limit('\\1\\2\\3', 0, 1)}", [1]),
        ("{cmsgpack.unpack_limit('\\1\\2\\3', '2', 1)}", [-1, 2, 3]),
        ("{cmsgpack.unpack_one('\\1\\2\\3', 3)}", [-1]),
        ("{cmsgpack.unpack(12)}", [49, 50]),
    ],
)
def test_values(server: Harness, expression: str, value: Any) -> None:
    assert server.do("EVAL", f"return {expression}", 0) == value


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("bit.band()", "bad argument #1 to 'band' (number expected, got no value)"),
        ("bit.band(1, nil)", "bad argument #2 to 'band' (number expected, got nil)"),
        ("bit.tobit('1_0')", "bad argument #1 to 'tobit' (number expected, got string)"),
        ("bit.tobit('0x1_0')", "bad argument #1 to 'tobit' (number expected, got string)"),
        ("bit.tohex(1, 'x')", "bad argument #2 to 'tohex' (number expected, got string)"),
        ("cjson.decode('[-]')[1]", "Expected value but found invalid number at character 2"),
        ("math.random(0)", "bad argument #1 to 'random' (interval is empty)"),
        ("math.randomseed()", "bad argument #1 to 'randomseed' (number expected, got no value)"),
        ("math.randomseed('x')", "bad argument #1 to 'randomseed' (number expected, got string)"),
        ("cjson.encode() .. ''", "bad argument #1 to 'encode' (expected 1 argument)"),
        ("cjson.encode(1, 2) .. ''", "bad argument #1 to 'encode' (expected 1 argument)"),
        ("cjson.decode() .. ''", "bad argument #1 to 'decode' (expected 1 argument)"),
        (
            "cmsgpack.unpack_limit('123', -1) .. ''",
            "Invalid request to unpack with offset of 0 and limit of 3.",
        ),
        ("cmsgpack.unpack_one('123', 10) .. ''", "Start offset 10 greater than input length 3."),
        (
            "cmsgpack.unpack_limit('123') .. ''",
            "bad argument #2 to 'unpack_limit' (number expected, got no value)",
        ),
        ("xpcall(error) == 1", "bad argument #2 to 'xpcall' (value expected)"),
        ("math.random(1, 2, 3)", "wrong number of arguments"),
        ("struct.pack()", "bad argument #1 to 'pack' (string expected, got no value)"),
        ("struct.pack('z', 1)", "bad argument #1 to 'pack' (invalid format option 'z')"),
        ("struct.pack('i4')", "bad argument #2 to 'pack' (number expected, got nil)"),
        ("struct.pack('c5', 'abc')", "bad argument #3 to 'pack' (string too short)"),
        ("struct.pack('!3i4', 1)", "alignment 3 is not a power of 2"),
        ("struct.size('c0')", "bad argument #1 to 'size' (option 'c0' has no fixed size)"),
        ("struct.unpack('i4', 'abcd', 0)", "bad argument #3 to 'unpack' (offset must be 1 or gr"),
        ("struct.unpack('i4', 'abc')", "bad argument #2 to 'unpack' (data string too short)"),
        ("coroutine.wrap(function() error('no') end)() .. ''", "user_script:1: no"),
    ],
)
def test_errors(server: Harness, expression: str, text: str) -> None:
    assert server.error("EVAL", f"return {expression}", 0).startswith(f"ERR user_script:1: {text}")


MARKED = "cjson.decode_array_with_array_mt(true) "


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("return cjson.encode(cjson.decode('[]'))", b"{}"),
        (MARKED + "return cjson.encode(cjson.decode('[]'))", b"[]"),
        (
            MARKED + "return cjson.encode(cjson.decode('[[],{},[{}],[1]]'))",
            b"[[],{},[{}],[1]]",
        ),
        (MARKED + "local t = cjson.decode('[1]') t.x = 2 return cjson.encode(t)", b"[1]"),
        (MARKED + "local t = cjson.decode('[]') t[1] = 'a' return cjson.encode(t)", b'["a"]'),
        (MARKED + "return getmetatable(cjson.decode('[]')).__is_cjson_array", 1),
        (MARKED + "return getmetatable(cjson.decode('{}')) == nil", 1),
        (MARKED + "return setmetatable(cjson.decode('[7]'), {})", [7]),
        ("return cjson.encode(setmetatable({}, {__is_cjson_array = true}))", b"[]"),
        ("return cjson.encode(setmetatable({}, {__is_cjson_array = false}))", b"{}"),
        ("return cjson.encode(setmetatable({}, {__index = {1, 2}}))", b"{}"),
        (
            "local was = cjson.decode_array_with_array_mt() "
            "local is = cjson.decode_array_with_array_mt('on') "
            "return {tostring(was), tostring(is), tostring(cjson.decode_array_with_array_mt())}",
            [b"false", b"true", b"true"],
        ),
        (
            "local mine = cjson.new() mine.decode_array_with_array_mt(true) "
            "return {mine.encode(mine.decode('[]')), cjson.encode(cjson.decode('[]'))}",
            [b"[]", b"{}"],
        ),
    ],
)
def test_arrays_that_stay_arrays(script: str, value: Any) -> None:
    """The public description is that of Redis 8.4."""
    assert Harness().do("EVAL", script, 0) == value


def test_the_mark_of_arrays_is_not_to_be_changed() -> None:
    server = Harness()
    for change in ("mark.__is_cjson_array = nil", "rawset(mark, 'x', 1)"):
        script = f"{MARKED}local mark = getmetatable(cjson.decode('[]')) {change}"
        assert "Attempt to modify a readonly table" in server.error("EVAL", script, 0)
    assert server.error("EVAL", "cjson.decode_array_with_array_mt('x') return 1", 0).startswith(
        "ERR user_script:1: bad argument #1 to 'decode_array_with_array_mt' (invalid option 'x')"
    )


def test_replication_is_all_or_a_part(server: Harness) -> None:
    text = "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
    assert server.error("EVAL", "redis.set_repl(99)", 0).startswith(text)
