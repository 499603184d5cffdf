"""The libraries of scripts with random arguments: values and errors are those of redis-server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.support.servers import KitServer, RedisServer, redis_server_path
from tests.support.wire import RespClient

CASES = 1500

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
Both = tuple[RespClient, RespClient]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with (
        KitServer() as ours,
        RedisServer() as theirs,
        ours.client() as one,
        theirs.client() as other,
    ):
        yield one, other


SHOW = """
local function show(value, level)
  if type(value) ~= 'table' or level > 4 then
    return type(value) == 'userdata' and 'null' or tostring(value)
  end
  local parts = {}
  for key, inner in pairs(value) do
    parts[#parts + 1] = tostring(key) .. '=' .. show(inner, level + 1)
  end
  table.sort(parts)
  return '{' .. table.concat(parts, ',') .. '}'
end
local function outcome(count, ...)
  local shown = {}
  for index = 1, count do
    shown[index] = show((select(index, ...)), 1)
  end
  return shown
end
local function counted(...)
  return outcome(select('#', ...), ...)
end
return counted(pcall(function() local a, b, c, d = %s return a, b, c, d end))
"""


def check(both: Both, make: Callable[[random.Random], str], seed: int) -> None:
    """Evaluate random expressions in both; some must work and some must fail."""
    rng = random.Random(seed)
    worked = 0
    for number in range(CASES):
        if number % 40 == 0:  # settings of cjson hold until then
            for client in both:
                client.call("SCRIPT", "FLUSH")
        expression = make(rng)
        ours, theirs = (client.call("EVAL", SHOW % expression, "0") for client in both)
        assert ours == theirs, expression
        worked += ours[1][0] == ("$", b"true")
    assert CASES / 10 < worked < CASES * 0.9


TEXT = [
    *("[", "]", "{", "}", ",", ":", '"a"', '"', "1", "-1", "0", "01", "-0", "1.5", "1e3", "1e"),
    *("1.", "-", "+1", ".5", "0x1F", "-0x1", "0x", "0x1p4", "inf", "-inf", "Infinity", "nan"),
    *("-NaN", "NaN", "true", "false", "null", "truex", "trux", "nul", " ", "\\n", "\\t", "\\0"),
    *("\\1", '"\\\\n"', '"\\\\q"', '"\\\\u00e4"', '"\\\\uD83D\\\\uDE00"', '"\\\\uD83D"'),
    *('"\\\\uDC00"', '"\\\\u12"', '"x\\1y"', '"\\0"', "\\195\\164", '"k":', "[1,2]", '{"a":1}'),
    *("[]", "{}", "x", "/", "1e400", "123456789012345678901", "[[1]]", "[[[]]]"),
]
VALUES = [
    *("0/0", "1/0", "-1/0", "{[1]=1,[20]=2}", "{[11]=1}", "{[5]=1}", "{1,2,nil,4}", "{{{}}}"),
    *("{{{1}}}", "{[1.5]=2}", "{a=0.1+0.2}", "1/3", "1e15", "123456789.123", "{x={y={z=1}}}"),
    *("'a/b\\1\\127'", "{[0]=1}", "{[-1]=1}", "true", "{f=print}", "cjson.null", "nil", "2^53"),
    *("{[true]=1}", "-0", "{1,{2,{3,{4}}}}", "{[{}]=1}", "function() end", "{[1e10]=1}"),
    "{[1700000000000]='ms'}",
]
NUMBERS = ["", "1", "2", "3", "14", "15", "1000", "0", "-1", "1.9", "'5'", "'x'", "true", "{}"]
NUMBERS += ["2^31", "1,2", "nil"]
SWITCHES = ["", "true", "false", "'on'", "'off'", "'null'", "'NULL'", "1", "{}", "nil", "true,1"]
SPARSE = ["true", "false", "nil,0", "true,1,5", "false,-1", "nil,nil,3", "false,2,10,4", "true,'2'"]
SETTINGS = [
    *[
        f"cjson.{name}({argument})"
        for name in ("encode_max_depth", "decode_max_depth", "encode_number_precision")
        for argument in NUMBERS
    ],
    *[
        f"cjson.{name}({argument})"
        for name in ("encode_keep_buffer", "encode_invalid_numbers", "decode_invalid_numbers")
        for argument in SWITCHES
    ],
    *[f"cjson.encode_sparse_array({argument})" for argument in [*SPARSE, *SWITCHES]],
]


def of_cjson(rng: random.Random) -> str:
    kind = rng.randrange(5)
    if kind == 0:
        expression = rng.choice(SETTINGS)
    elif kind == 1:
        expression = f"cjson.encode({rng.choice(VALUES)})"
    else:
        text = "".join(rng.choices(TEXT, k=rng.randrange(1, 6)))
        expression = f"cjson.decode('{text}')"
        if kind == 2:
            expression = f"cjson.encode({expression})"
    if rng.random() < 0.2:  # an instance has settings of its own
        first = rng.choice(SETTINGS)
        expression = f"(function(cjson) {first} return {expression} end)(cjson.new())"
    return expression


OPTIONS = [
    *"bBhHlLTfdsxciIn<>! =q9_",
    *("c0", "c3", "c12", "i1", "i2", "i8", "I4", "i32", "i33", "i16", "I16", "!4", "!3", "!0"),
    *("!16", "c2147483647", "c2147483648", "I99999999999", "i0", "c001", "n4", "i02147483648"),
]
PACKED = ["1", "-1", "0", "'abc'", "300", "2^40", "-2^31", "1.5", "'xyzzyxyzzy'", "nil", "'7'"]
DATA = ["'\\1\\2\\3\\4\\5\\6\\7\\8abc\\0def'", "''", "'\\255\\254\\1'", "'\\3abc'"]
DATA.append("string.rep('x', 40)")


def of_struct(rng: random.Random) -> str:
    form = "".join(rng.choices(OPTIONS, k=rng.randrange(1, 5)))
    kind = rng.randrange(4)
    if kind == 0:
        return f"struct.size('{form}')"
    if kind == 1:
        values = "".join("," + value for value in rng.choices(PACKED, k=rng.randrange(4)))
        return f"struct.pack('{form}'{values})"
    position = rng.choice(["", ",1", ",2", ",0", ",-1", ",5", ",100"])
    return f"struct.unpack('{form}', {rng.choice(DATA)}{position})"


PLAIN = [
    *("0", "1", "-1", "127", "128", "255", "256", "-32", "-33", "-128", "-129", "65535", "65536"),
    *("2^31", "2^32", "2^53", "2^63", "-2^63", "1.5", "1e100", "0/0", "1/0", "'a'", "true", "nil"),
    *("string.rep('x', 31)", "string.rep('x', 32)", "string.rep('x', 70000)", "{}", "{1,2}"),
    *("{a=1}", "{1,nil,3}", "{[1]=1,[2]=2,[4]=4}", "{{{}}}", "{[1.5]=1}", "print"),
]
BYTES = [*[f"\\{code}" for code in (0, 1, 127, *range(128, 256, 5), *range(191, 225))], "abc"]
BYTES.append("\\0\\0\\0\\1")
OFFSETS = ["", ",1", ",0", ",2,1", ",-1", "", ",1,3", ",'x'"]


def of_cmsgpack(rng: random.Random) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return f"cmsgpack.pack({', '.join(rng.choices(PLAIN, k=rng.randrange(4)))})"
    if kind == 1:
        return f"cmsgpack.unpack(cmsgpack.pack({rng.choice(PLAIN)}))"
    data = "".join(rng.choices(BYTES, k=rng.randrange(1, 7)))
    name = rng.choice(["unpack", "unpack_one", "unpack_limit"])
    return f"cmsgpack.{name}('{data}'{rng.choice(OFFSETS)})"


WHOLE = ["0", "1", "-1", "2^31", "-2^31", "2^32", "2^53", "1.5", "2.5", "-0.5", "'7'", "'0x1f'"]
WHOLE += ["'x'", "nil", "{}", "33", "1e100", "0/0", "255"]
OF_BIT = "tobit tohex bnot band bor bxor lshift rshift arshift rol ror bswap".split()


def of_bit(rng: random.Random) -> str:
    return f"bit.{rng.choice(OF_BIT)}({', '.join(rng.choices(WHOLE, k=rng.randrange(4)))})"


@pytest.mark.parametrize("make", [of_cjson, of_struct, of_cmsgpack, of_bit])
def test_a_library_with_random_arguments(both: Both, make: Callable[[random.Random], str]) -> None:
    check(both, make, 3)


LIBRARIES = "redis cjson cmsgpack struct bit string table math coroutine".split()
NOT_HERE = {"string.dump"}
"""What could load compiled code, which crashes the process."""


def test_every_function_of_redis_is_here(both: Both) -> None:
    found = set()
    for library in LIBRARIES:
        script = (
            f"local all = {{}} for key in pairs({library}) do all[#all + 1] = key end return all"
        )
        for _, name in both[1].call("EVAL", script, "0")[1]:
            path = f"{library}.{name.decode()}"
            ours, theirs = (client.call("EVAL", f"return type({path})", "0") for client in both)
            if ours != theirs:
                found.add(path)
    assert found == NOT_HERE


def test_settings_of_scripts_hold_until_they_are_flushed(both: Both) -> None:
    code = """#!lua name=depths
    redis.register_function('depth', function(_, args)
        if args[1] then cjson.encode_max_depth(tonumber(args[1])) end
        return cjson.encode_max_depth()
    end)"""
    depth = "return cjson.encode_max_depth()"
    for client in both:
        assert client.call("FUNCTION", "LOAD", "REPLACE", code) == ("$", b"depths")
        client.call("SCRIPT", "FLUSH")
        assert client.call("EVAL", "cjson.encode_max_depth(7)", "0") == ("$", None)
        assert client.call("EVAL", depth, "0") == (":", 7)
        assert client.call("FCALL", "depth", "0") == (":", 1000), "functions have their own"
        assert client.call("FCALL", "depth", "0", "9") == (":", 9)
        assert client.call("EVAL", depth, "0") == (":", 7)
        client.call("SCRIPT", "FLUSH")
        assert client.call("EVAL", depth, "0") == (":", 1000)
        assert client.call("FCALL", "depth", "0") == (":", 9)
