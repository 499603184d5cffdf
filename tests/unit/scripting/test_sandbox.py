"""Scripts cannot leave their world, change what others see in it, or end the process."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness

FULL = (
    "local t = {} for size = 20, 1, -1 do "
    "while pcall(function() t[#t + 1] = string.rep('x', 2 ^ size) .. #t end) do end end "
)
"""Takes all memory that a script may have."""


@pytest.fixture(scope="module")
def server() -> Harness:
    server = Harness()
    server.do("SET", "a", "b")
    return server


@pytest.mark.parametrize(
    "name",
    "debug dofile getfenv io loadfile module newproxy package print python require server setfenv"
    "".split(),
)
def test_what_reaches_outside_is_not_there(server: Harness, name: str) -> None:
    text = server.error("EVAL", f"return {name}", 0)
    assert f"Script attempted to access nonexistent global variable '{name}'" in text
    assert server.do("EVAL", f"return rawget(_G, '{name}') == nil", 0) == 1


@pytest.mark.parametrize(
    "script",
    [
        "return string.dump == nil",
        "return select(1, loadstring(string.char(27) .. 'Lua')) == nil",
        "local n = 0 local function once() n = n + 1 return n == 1 and string.char(27) or nil end "
        "return load(once) == nil",
        "return not pcall(setmetatable, _G, {})",
        "return not pcall(setmetatable, redis, {})",
        "return not pcall(rawset, string, 'rep', 1)",
        "return not pcall(function() getmetatable('').__index = {} end)",
        "return not pcall(function() string.rep = nil end)",
        "return not pcall(function() loadstring('leak = 1')() end)",
        "return type(redis.call) == 'function' and type(bit.band) == 'function'",
        "local _, e = pcall(redis.call, 'nosuch') return type(e) == 'string'",
        "local _, e = pcall(bit.band, {}) return type(e) == 'string'",
        "local _, e = xpcall(function() redis.call({}) end, function(e) return e end) "
        "return type(e) == 'table' and type(e.err) == 'string'",
        "local co = coroutine.create(function() redis.call({}) end) "
        "local _, e = coroutine.resume(co) return type(e) == 'table'",
        "table.insert(redis, 1) return true",
    ],
)
def test_ways_out_that_are_closed(server: Harness, script: str) -> None:
    assert server.do("EVAL", script, 0) == 1


def test_of_os_there_is_the_clock(server: Harness) -> None:
    script = "local began = os.clock() for _ = 1, 1e5 do end return (os.clock() - began) * 1e9"
    assert 0 < server.do("EVAL", script, 0) < 10e9
    for name in "date difftime execute exit getenv remove rename setlocale time tmpname".split():
        assert server.do("EVAL", f"return os.{name} == nil", 0) == 1
    assert "readonly table" in server.error("EVAL", "os.clock = nil", 0)


def test_nothing_is_left_for_the_next_script(server: Harness) -> None:
    server.do("EVAL", "table.insert(redis, 'kept') KEYS[9] = 'kept'", 0)
    assert server.do("EVAL", "return {redis[1] == nil, KEYS[9] == nil}", 0) == [1, 1]


@pytest.mark.parametrize(
    "script",
    [
        FULL + "return redis.call('GET', 'a')",
        FULL + "while true do pcall(redis.call, {}, {}, {}) end",
        FULL + "return {pcall(bit.band, 1, 2)}",
        FULL + "return {pcall(struct.pack, 'z')}",
        FULL + "return math.random()",
        FULL + "return redis.sha1hex('x')",
        "return string.rep('x', 2 ^ 29)",
        "local s = 'x' while true do s = s .. s end",
        "return ('a'):find(('a?'):rep(1000000))",
        "local function f() return f() + 1 end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local t = {} t[1] = t return t",
        "local t = {} for i = 1, 10000 do t = {t} end return cjson.encode(t)",
        "return cjson.decode(('['):rep(100000))",
        "local c = cjson.new() c.decode_max_depth(2 ^ 31 - 1) return c.decode(('['):rep(1000000))",
        "local c = cjson.new() c.encode_max_depth(2 ^ 31 - 1) local t = {} "
        "for i = 1, 100000 do t = {t} end return c.encode(t)",
        "local c = cjson.new() c.encode_sparse_array(nil, 0) return c.encode({[2 ^ 31 - 1] = 1})",
        "return loadstring(('('):rep(100000))()",
        "table.insert({}, -2 ^ 31, 1)",
        "table.insert({}, 2 ^ 31, 1)",
        "table.insert({}, 2 ^ 32 - 1, 1)",
        "table.insert({}, 0 / 0, 1)",
    ],
)
def test_scripts_that_want_too_much_fail_and_the_next_one_runs(
    server: Harness, script: str
) -> None:
    assert not server.error("EVAL", script, 0).startswith("ERR ERR")
    assert server.do("EVAL", "return redis.call('GET', 'a')", 0) == b"b"


def test_arguments_and_sources_that_are_too_large(server: Harness) -> None:
    assert "not enough memory" in server.error("EVAL", "return 1", 0, b"x" * (80 << 20))
    assert "script too large" in server.error("EVAL", b"return 1 --" + b"x" * (8 << 20), 0)
    assert server.do("EVAL", "return #string.rep('', 2 ^ 31)", 0) == 0
