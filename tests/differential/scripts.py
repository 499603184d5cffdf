"""Random scripts of a small grammar, run here and by redis-server: equal replies, equal data.

    python -m tests.differential.scripts --seed 1 --scripts 100000

A script of the grammar ends, and needs nothing that the versions do by different rules.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

import redis

from tests.support.servers import KitServer, RedisServer
from tests.support.wire import RespClient

KEYS = ("a", "b", "l", "s", "x")
CALLS = (
    "'SET', {k}, {v}", "'GET', {k}", "'INCRBY', {k}, {n}", "'APPEND', {k}, {v}", "'DEL', {k}",
    "'RPUSH', {k}, {v}, {v}", "'LRANGE', {k}, 0, -1", "'LPOP', {k}", "'LLEN', {k}",
    "'SADD', {k}, {v}", "'SCARD', {k}", "'SISMEMBER', {k}, {v}", "'TYPE', {k}", "'EXISTS', {k}",
    "'XADD', {k}, '{n}-1', 'f', {v}", "'XLEN', {k}", "'XRANGE', {k}, '-', '+'", "'NOSUCH', {k}",
    "'SET', {k}", "'STRLEN', {k}", "'GETRANGE', {k}, 0, 2", "'MULTI'",
)  # fmt: skip


TEXTS = (
    "''", "'a'", "'10'", "'0x1F'", "' 7 '", "'1e2'", "'a,b;c'", "'\\1\\255'",
    "'A\\r\\nB'", "'(%a+)'", "'\\195\\164'", "ARGV[1]", "KEYS[1]", "string.rep('ab', 20)",
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "7", "2.5", "-2.5", "0.1", "1e15", "1e16", "2^31", "-2^31", "2^53", "-2^53",
    "2^63", "1e100", "-1e100", "1/3", "100000000000000", "3.0", "255",
)  # fmt: skip
TABLES = (
    "{}", "{1, 2, nil, 4}", "{{}, {{}}}", "{ok='O'}", "{ok=1}", "{err='E'}", "{err='-E x'}",
    "{err=''}", "{err=5}", "{double=3.25}", "{double=1e20}", "{map={k='v'}}", "{map={}}",
    "{set={x=true}}", "{big_number='12345678901234567890'}",
    "{verbatim_string={format='txt', string='v'}}", "{x=1}", "{[1]='one', [2]='two', n=3}",
    "{true, false, true}", "{1.9, -1.9}", "redis.error_reply('My Err')",
    "redis.error_reply('-X y')", "redis.error_reply('single')", "redis.error_reply('-')",
    "redis.error_reply('')", "redis.status_reply('')",
    "redis.error_reply({})", "redis.status_reply(1)", "redis.status_reply()",
)  # fmt: skip
OF_TEXTS = (
    "#{t}", "{t}:upper()", "string.reverse({t})", "{t} .. {t}", "{t} .. {n}", "{t} == {t}",
    "{t} < {t}", "string.byte({t}, 1)", "string.sub({t}, {i}, {i})", "string.find({t}, '%d')",
    "string.find({t}, {t}, 1, true)", "string.match({t}, '(.)(.*)')",
    "string.gsub({t}, '[a-z]', '<%0>')", "string.format('%s|%q', {t}, {t})",
    "string.format('%d|%5.2f|%g|%x', {i}, {n}, {n}, 255)", "string.format('%d', {t})",
    "tonumber({t})", "tonumber({t}, 16)", "tonumber('zz', 36)", "{t} + 1",
    "string.char(72, 105, {i})", "string.len({t})", "({t}):rep({i})", "-{t}", "{t}.x", "({t})()",
    "select(2, string.gsub({t}, '.', {}))", "string.format('%s', nil)", "type({t})",
    "redis.sha1hex({t})", "redis.sha1hex()", "loadstring('return ' .. {i})()", "loadstring({t})",
)  # fmt: skip
OF_NUMBERS = (
    "{n}", "-{n}", "{n} + {n}", "{n} * {n}", "{n} / {n}", "{n} % 7", "{n} ^ 2", "tostring({n})",
    "'' .. {n}", "{n} == {n}", "{n} < {n}", "{n} < 'a'", "math.floor({n})", "math.ceil({n})",
    "math.max({n}, {n})", "math.abs({n})", "math.fmod({n}, 3) + 0", "math.sqrt(16)", "math.huge",
    "0/0", "-math.huge", "{{n}, {n}}", "{n}.x", "#{n}", "math.random(9, {i} - 5)",
    "string.format('%.3f', {n})", "string.format('%.14g', {n})",
)  # fmt: skip
OF_TABLES = (
    "#{T}", "{T}", "next({T})", "unpack({T})", "table.concat({1, 'b', 2.5}, {t})",
    "table.concat({T})", "(function() local t = {3, 1, 2} table.sort(t) return t end)()",
    "select('#', unpack({1, nil, 3}))", "select(-1, 1, 2, 3)", "select(0)", "rawget({T}, 1)",
    "rawequal({t}, {t})", "type({T})", "{T} == {T}", "{T} .. 'x'", "{T} + 1", "{T}.a.b",
    "(function(...) return select('#', ...) end)(1, nil, nil)",
    "(function() local t = {1, 2} table.insert(t, 1, 'x') table.remove(t) return t end)()",
    "(function() local t = {} for k, v in pairs({1, 2, 3}) do t[k] = v * 2 end return t end)()",
    "(function() return setmetatable({}, {__index = function(_, k) return k end}).x end)()",
    "(function() local n = 0 for w in ('a b c'):gmatch('%a') do n = n + 1 end return n end)()",
    "table.getn({1, 2})", "table.maxn({1, 2, [9] = 1})", "ipairs(nil)", "setmetatable(1, {})",
)  # fmt: skip
OF_LIBRARIES = (
    "cjson.encode({T})", "cjson.encode({n})", "cjson.encode({t})",
    "cjson.encode({{t}, {n}, {T}})", "cjson.encode({[1] = 1, [3] = 3})",
    "cjson.encode({[1] = 1, [30] = 3})", "cjson.decode({t})",
    "cjson.decode(cjson.encode({{t}, {n}}))",
    "cjson.decode('{\"a\":[1,2,{\"b\":null}]}').a[3].b == cjson.null",
    "cjson.decode('[1.5e3, true, \"\\\\u00e4\"]')", "cjson.decode('[1,')",
    "cjson.decode('{a:1}')", "cjson.decode('[NaN]')", "cjson.encode(0/0)",
    "cjson.encode(cjson.null)", "cjson.decode('')", "{cmsgpack.unpack(cmsgpack.pack({n}, {t}))}",
    "cmsgpack.pack({n})", "cmsgpack.pack({T})", "cmsgpack.pack({t}, {i}, true, nil)",
    "cmsgpack.unpack({t})", "cmsgpack.unpack('\\193')",
    "struct.pack('<i4>I2bB', {i}, 300, -1, 200)",
    "{struct.unpack('<i4>I2', struct.pack('<i4>I2', -{i}, 7))}", "struct.pack('s', {t})",
    "struct.pack('c0', {t})", "struct.size('<i4i8')", "struct.pack('>d', {n})",
    "struct.unpack('<i4', {t})", "struct.pack('z', 1)", "bit.band({i}, 6)", "bit.bnot({i})",
    "bit.tohex({n})", "bit.lshift(1, {i})", "bit.rshift(-1, {i})", "bit.arshift(-256, {i})",
    "bit.rol(255, {i})", "bit.bswap({i})", "bit.tobit({n})", "bit.bor({i}, 8, 16)",
    "bit.band('x', 1)", "bit.band()",
)  # fmt: skip
OF_ERRORS = (
    "{pcall(error, {T})}", "{pcall(error, {t})}", "{pcall(error)}", "error({err={t}})",
    "error({t})", "error({t}, 0)", "error({t}, 2)", "error()", "{pcall(redis.call, {t})}",
    "{pcall(redis.call, 'SET', {T}, 1)}", "redis.call('GET', nil)", "redis.call('GET', true)",
    "redis.call('GET', {})", "redis.call()", "redis.pcall()", "redis.pcall('GET', {})",
    "redis.pcall({t}).err", "redis.pcall('GET').err", "redis.call('SET', 'x', {n})",
    "redis.call('SET', 'x', {t})", "redis.pcall('INCRBY', 'x', {n})",
    "{xpcall(function() return redis.call('LPUSH', 'a') end, function(e) return type(e) end)}",
    "{pcall(function() local r = redis.pcall('NOSUCH') error(r) end)}", "assert(false, {t})",
    "assert(nil)", "assert({n})", "{pcall(assert, false, {T})}", "(nil)()", "nosuch", "KEYS[9]",
    "ARGV.x.y", "redis.nosuch", "redis.log(redis.LOG_DEBUG, {t})", "redis.log({t})",
    "redis.setresp(4)", "redis.setresp()", "(coroutine.wrap(function() error({t}) end)())",
    "{coroutine.resume(coroutine.create(function() coroutine.yield({n}) end))}",
    "{coroutine.resume(coroutine.create(function() error({T}) end))}",
    "tostring(redis.call):sub(1, 9)", "getmetatable('').__index == string", "_G.x",
    "type(_G.redis)", "{pcall(rawset, _G, 'x', 1)}", "redis.acl_check_cmd('GET', 'a')",
    "redis.acl_check_cmd('NOSUCH')", "redis.REDIS_VERSION == nil", "redis.replicate_commands()",
    "redis.set_repl(redis.REPL_ALL)",
)  # fmt: skip
OF_RESP3 = (
    "redis.call('GET', 'nosuch')", "redis.call('SISMEMBER', 's', 'v')",
    "redis.call('SMEMBERS', 'one')", "redis.call('XREAD', 'STREAMS', 'x', '0')",
    "redis.call('XINFO', 'STREAM', 'one')", "redis.call('LPOP', 'nosuch')", "{double=1.5}",
    "{map={a=true}}", "{set={b=false}}", "true", "false", "nil",
    "type(redis.call('GET', 'nosuch'))", "{true, false, nil, 1}", "redis.call('EXISTS', 'a')",
)  # fmt: skip
FAMILIES = (OF_TEXTS, OF_NUMBERS, OF_TABLES, OF_LIBRARIES, OF_ERRORS)


class Grammar:
    """Scripts by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def _value(self) -> str:
        choice = self._chance
        return choice.choice(
            ["'v'", "'10'", "ARGV[1]", "7", "-3", "2.5", "KEYS[1]", "'x' .. 1", "#ARGV", "1e15"]
        )

    def _call(self) -> str:
        choice = self._chance
        text = choice.choice(CALLS)
        while "{" in text:
            text = text.replace("{k}", f"'{choice.choice(KEYS)}'", 1)
            text = text.replace("{v}", self._value(), 1)
            text = text.replace("{n}", str(choice.randint(1, 9)), 1)
        return f"redis.{'call' if choice.random() < 0.5 else 'pcall'}({text})"

    def _filled(self, text: str) -> str:
        """One of the expressions above, with constants in its places."""
        choice = self._chance
        for mark, choices in (("{t}", TEXTS), ("{n}", NUMBERS), ("{T}", TABLES)):
            while mark in text:
                text = text.replace(mark, f"({choice.choice(choices)})", 1)
        while "{i}" in text:
            text = text.replace("{i}", str(choice.randint(0, 9)), 1)
        return text

    def small(self) -> str:
        """A script of one expression, in one of several frames."""
        choice = self._chance
        if choice.random() < 0.1:
            lines = (
                f"redis.call('SADD', 'one', 'v') redis.setresp(3) return {choice.choice(OF_RESP3)}"
            )
            return lines if choice.random() < 0.7 else lines.replace("resp(3)", "resp(2)")
        family = choice.choice(FAMILIES)
        text = self._filled(choice.choice(family))
        if family is OF_LIBRARIES:  # here a tail call of Lua code hides the line
            text = f"({text})"
        frames = (
            ["return {e}", "return {{e}}", "return {pcall(function() return {e} end)}",
             "return type({e})", "local a, b = {e}\nreturn {a, b}",
             "local f = function() return {e} end\nlocal ok, e = pcall(f)\nreturn {ok, e}",
             "redis.call('SET', 'a', 'v')\nlocal v = {e}\nreturn redis.call('GET', 'a')",
             "if {e} then return 1 else return 2 end", "return (cjson.encode({{e}}))"]
        )  # fmt: skip
        if family is OF_TEXTS:
            frames.append("return redis.call('APPEND', 'b', {e})")
        return choice.choice(frames).replace("{e}", text)

    def expression(self, depth: int = 0) -> str:
        """A value: a constant, a table, the outcome of a call or of a library."""
        choice = self._chance
        kind = choice.randint(0, 11)
        if depth > 2 or kind < 3:
            return choice.choice(
                ["1", "-1.9", "'text'", "true", "false", "nil", "3.5", "2^40", "{ok='fine'}",
                 "{err='ERR bad'}", "redis.error_reply('E x')", "redis.status_reply('y')"]
            )  # fmt: skip
        if kind < 6:
            return self._call()
        inner = [self.expression(depth + 1) for _ in range(choice.randint(1, 3))]
        if kind < 9:
            return "{" + ", ".join(inner) + "}"
        return choice.choice(
            [f"type({inner[0]})", f"redis.sha1hex(tostring({self._value()}))",
             f"cjson.encode({{1, {self._value()}, {{true, 'a/b'}}}})",
             "cjson.decode('[1,\"a\",null,{\"k\":[2]}]')[4].k[1]",
             f"cmsgpack.unpack(cmsgpack.pack({self._value()}))",
             f"select('#', {', '.join(inner)})", f"tostring({self._value()})",
             f"struct.unpack('>I2', struct.pack('>I2', {choice.randint(0, 999)}))",
             f"bit.bxor({choice.randint(0, 999)}, {choice.randint(0, 999)})",
             f"string.rep({self._value()}, 3)", f"math.floor(2.5 * {choice.randint(1, 9)})"]
        )  # fmt: skip

    def script(self) -> str:
        """A few statements and a return."""
        choice = self._chance
        if choice.random() < 0.5:
            return self.small()
        lines = []
        for index in range(choice.randint(0, 4)):
            kind = choice.randint(0, 5)
            if kind < 2:
                lines.append(self._call())
            elif kind == 2:
                lines.append(f"local v{index} = {self.expression()}")
            elif kind == 3:
                lines.append(f"for i = 1, {choice.randint(1, 4)} do {self._call()} end")
            elif kind == 4:
                lines.append(f"if {self.expression()} then {self._call()} end")
            else:
                lines.append(f"local ok{index}, e{index} = pcall(redis.call, 'GET', 'l')")
        if choice.random() < 0.05:
            lines.append(choice.choice(["x = 1", "return y", "error('no')", "local t = nil + 1"]))
        else:
            lines.append(f"return {self.expression()}")
        return "\n".join(lines)


def reply_of(client: RespClient, script: str) -> Any:
    """A reply, or an error with its whole text."""
    return client.call("EVAL", script, "1", "a", "arg")


def contents_of(client: redis.Redis) -> dict[str, Any]:
    """All data of the grammar's keys."""
    found: dict[str, Any] = {}
    for key in KEYS:
        kind = client.type(key)
        if kind == b"string":
            found[key] = client.get(key)
        elif kind == b"list":
            found[key] = client.lrange(key, 0, -1)
        elif kind == b"set":
            found[key] = sorted(client.smembers(key))
        elif kind == b"stream":
            found[key] = client.xrange(key)
    return found


def compare(here: KitServer, redis_server: RedisServer, seed: int, count: int) -> list[str]:
    """What differs, each with its script."""
    ours, theirs = redis.Redis(port=here.port), redis.Redis(port=redis_server.port)
    grammar = Grammar(random.Random(seed))
    differences = []
    with here.client(timeout=60) as one, redis_server.client(timeout=60) as other:
        for number in range(count):
            if number % 20 == 0:
                ours.flushall()
                theirs.flushall()
            script = grammar.script()
            replies = reply_of(one, script), reply_of(other, script)
            if repr(replies[0]) != repr(replies[1]):
                differences.append(f"{script}\n  here:  {replies[0]!r}\n  Redis: {replies[1]!r}")
            elif number % 20 == 19 and contents_of(ours) != contents_of(theirs):
                differences.append(f"data differs before script {number + 1}")
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scripts", type=int, default=300)
    options = parser.parse_args()
    with KitServer() as server, RedisServer() as reference:
        found = compare(server, reference, options.seed, options.scripts)
    sys.stdout.write("\n".join(found[:20]) + f"\n{len(found)} of {options.scripts} differ\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
