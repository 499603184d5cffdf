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

from anabranch.testing import Server
from tests.support.servers import RedisServer

KEYS = ("a", "b", "l", "s", "x")
CALLS = (
    "'SET', {k}, {v}", "'GET', {k}", "'INCRBY', {k}, {n}", "'APPEND', {k}, {v}", "'DEL', {k}",
    "'RPUSH', {k}, {v}, {v}", "'LRANGE', {k}, 0, -1", "'LPOP', {k}", "'LLEN', {k}",
    "'SADD', {k}, {v}", "'SCARD', {k}", "'SISMEMBER', {k}, {v}", "'TYPE', {k}", "'EXISTS', {k}",
    "'XADD', {k}, '{n}-1', 'f', {v}", "'XLEN', {k}", "'XRANGE', {k}, '-', '+'", "'NOSUCH', {k}",
    "'SET', {k}", "'STRLEN', {k}", "'GETRANGE', {k}, 0, 2", "'MULTI'",
)  # fmt: skip


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


def reply_of(client: redis.Redis, script: str) -> Any:
    """A reply or the text of an error; the newer texts of Redis 8 as the older ones."""
    try:
        return client.eval(script, 1, "a", "arg")
    except redis.ResponseError as problem:
        return str(problem)


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


def compare(ours: redis.Redis, theirs: redis.Redis, seed: int, count: int) -> list[str]:
    """What differs, each with its script."""
    grammar = Grammar(random.Random(seed))
    differences = []
    for number in range(count):
        if number % 20 == 0:
            ours.flushall()
            theirs.flushall()
        script = grammar.script()
        replies = reply_of(ours, script), reply_of(theirs, script)
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
    with Server() as server, RedisServer() as reference:
        ours, theirs = redis.Redis(port=server.port), redis.Redis(port=reference.port)
        found = compare(ours, theirs, options.seed, options.scripts)
    sys.stdout.write("\n".join(found[:20]) + f"\n{len(found)} of {options.scripts} differ\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
