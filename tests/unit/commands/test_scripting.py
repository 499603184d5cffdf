"""EVAL and SCRIPT: replies, errors, what scripts may call; texts are those of redis-server."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.engine.script_machine import EVALUATED_MAX, sha1_of
from tests.support.region_harness import Harness


@pytest.fixture(scope="module")
def server() -> Harness:
    return Harness()


def ev(server: Harness, script: str, *args: object, **more: Any) -> Any:
    return server.do("EVAL", script, *(args or (0,)), **more)


def failure(server: Harness, script: str, *args: object, **more: Any) -> str:
    """The error of a script without its hash and place."""
    return server.error("EVAL", script, *(args or (0,)), **more).rpartition(" script: ")[0]


def test_values_become_replies(server: Harness) -> None:
    script = "return {KEYS[1], ARGV[1], 3.99, -3.99, true, false, 'x', nil, 9}"
    assert ev(server, script, 1, "k", "a") == [
        b"k", b"a", 3, -3, 1, None, b"x",
    ]  # fmt: skip
    assert server.raw("EVAL", "return {ok='fine'}", 0) == b"+fine\r\n"
    assert server.raw("EVAL", "return {err='MY problem\\n'}", 0) == b"-MY problem \r\n"
    assert server.raw("EVAL", "return redis.error_reply('-MY problem')", 0) == b"-MY problem\r\n"
    assert server.raw("EVAL", "return redis.status_reply('fine')", 0) == b"+fine\r\n"
    assert ev(server, "return 2^70") == ev(server, "return 0/0") == -(1 << 63)
    assert ev(server, "return {double=3.5}") == b"3.5"
    assert ev(server, "return {map={a=1}}") == [b"a", 1]


def test_values_become_replies_in_resp3(server: Harness) -> None:
    third = server.connect(resp3=True)
    script = (
        "return {{double=3.5},{map={a=1}},{set={a=true}},{big_number='123'},"
        "{verbatim_string={string='abc',format='txt'}},true,false}"
    )
    wire = b"*7\r\n,3.5\r\n%1\r\n$1\r\na\r\n:1\r\n~1\r\n$1\r\na\r\n(123\r\n=7\r\ntxt:abc\r\n"
    assert server.raw("EVAL", script, 0, session=third) == wire + b":1\r\n_\r\n"
    script = "redis.setresp(3) " + script
    assert server.raw("EVAL", script, 0, session=third) == wire + b"#t\r\n#f\r\n"


def test_replies_become_values(server: Harness) -> None:
    ev(server, "redis.call('DEL', 'l', 's') redis.call('RPUSH', 'l', 'a', 'b')")
    assert ev(server, "return redis.call('SET', 'n', 1).ok") == b"OK"
    assert ev(server, "return type(redis.call('GET', 'nosuch'))") == b"boolean"
    assert ev(server, "return redis.call('LRANGE', 'l', 0, -1)[2]") == b"b"
    assert ev(server, "return redis.call('INCRBY', 'n', 2) + 1") == 4
    assert ev(server, "return redis.pcall('GET', 'l').err").startswith(b"WRONGTYPE")
    ev(server, "redis.call('SADD', 's', 'm')")
    assert ev(server, "redis.setresp(3) return redis.call('SMEMBERS', 's').set.m") == 1
    assert ev(server, "redis.setresp(3) return redis.call('GET', 'nosuch') == nil") == 1
    assert ev(server, "return redis.call('XADD', 'x', '1-1', 'f', 'v')") == b"1-1"
    assert ev(server, "return redis.call('XRANGE', 'x', '-', '+')") == [[b"1-1", [b"f", b"v"]]]


def test_numbers_become_arguments(server: Harness) -> None:
    for number, text in (
        ("3", b"3"), ("1.5", b"1.5"), ("1e20", b"1e+20"), ("2^53", b"9007199254740992"),
        ("0.1", b"0.10000000000000001"), ("-0.0", b"0"), ("1/0", b"inf"),
    ):  # fmt: skip
        assert ev(server, f"redis.call('SET', 'n', {number}) return redis.call('GET', 'n')") == text
    assert failure(server, "redis.call('SET', 'n', {})") == (
        "ERR Lua redis lib command arguments must be strings or integers"
    )


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("return x", "user_script:1: Script attempted to access nonexistent global variable 'x'"),
        ("x = 1", "user_script:1: Attempt to modify a readonly table"),
        ("redis.foo = 1", "user_script:1: Attempt to modify a readonly table"),
        ("redis.call = nil", "user_script:1: Attempt to modify a readonly table"),
        ("rawset(_G, 'a', 1)", "Attempt to modify a readonly table"),
        ("getmetatable('').x = 1", "user_script:1: Attempt to modify a readonly table"),
        ("error('boom')", "user_script:1: boom"),
        ("error(5)", "user_script:1: 5"),
        ("return redis.call('nosuch')", "Unknown Redis command called from script"),
        ("redis.call('set', 'a')", "Wrong number of args calling Redis command from script"),
        ("return redis.call('eval', '', 0)", "This Redis command is not allowed from script"),
        ("return redis.call('multi')", "This Redis command is not allowed from script"),
        (
            "\nreturn redis.call('zAdd', 'a', 1, 'b')",
            "Unknown Redis command called from script: 'zAdd' (Anabranch is a stream server and "
            "has no sorted sets; docs/commands.md lists its commands)",
        ),
        ("return redis.call()", "Please specify at least one argument for this redis lib call"),
        ("return redis.setresp(4)", "RESP version must be 2 or 3."),
        ("redis.log(3)", "redis.log() requires two arguments or more."),
        ("local function f() return f() + 1 end return f()", "user_script:1: stack overflow"),
    ],
)  # fmt: skip
def test_errors_and_where_they_happen(server: Harness, script: str, text: str) -> None:
    sha1 = sha1_of(script.encode()).decode()
    line = 1 + script.startswith("\n")
    assert server.error("EVAL", script, 0) == f"ERR {text} script: {sha1}, on @user_script:{line}."


def test_an_unknown_command_is_named_to_pcall_too(server: Harness) -> None:
    said = ev(server, "return redis.pcall('HSET', 'k', 'f', 'v').err")
    assert said == (
        b"ERR Unknown Redis command called from script: 'HSET' (Anabranch is a stream server and "
        b"has no hashes; docs/commands.md lists its commands)"
    )


def test_blocking_commands_do_not_wait(server: Harness) -> None:
    """As in Redis: lists since 7.2, streams since 7.4."""
    assert ev(server, "return redis.call('BLPOP', 'nosuch', 0)") is None
    server.do("XGROUP", "CREATE", "w", "g", "0", "MKSTREAM")
    read = "return redis.call('XREAD', 'COUNT', 1, 'BLOCK', 0, 'STREAMS', 'w', '$')"
    group = "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'BLOCK', 9999, 'STREAMS', 'w', '>')"
    assert ev(server, read) is None
    assert ev(server, group) is None
    assert server.do("XINFO", "CONSUMERS", "w", "g")[0][:2] == [b"name", b"c"]
    server.do("XADD", "w", "1-1", "f", "v")
    entries = [[b"w", [[b"1-1", [b"f", b"v"]]]]]
    assert ev(server, read.replace("$", "0")) == entries
    assert ev(server, group) == entries
    assert ev(server, group) is None
    assert "timeout is negative" in failure(server, read.replace("'BLOCK', 0", "'BLOCK', -1"))
    code = f"#!lua name=l\nredis.register_function('read', function() {read} end)"
    server.do("FUNCTION", "LOAD", code)
    assert server.do("FCALL", "read", 0) is None
    assert not server.region.dispatcher.postponed


def test_errors_of_scripts_that_do_not_run(server: Harness) -> None:
    assert server.error("EVAL", "return (", 0) == (
        "ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'"
    )
    assert server.error("EVAL", "return 1", "x").startswith("ERR value is not an integer")
    assert server.error("EVAL", "return 1", 1).startswith("ERR Number of keys can't be greater")
    for source, text in (
        ("#!lua flags=foo\nreturn 1", "Unexpected flag in script shebang: foo"),
        ("#!lua name=foo\nreturn 1", "Unknown lua shebang option: name=foo"),
        ("#!lua", "Invalid script shebang"),
    ):
        assert server.error("EVAL", source, 0) == f"ERR {text}"


def test_pcall_gives_the_text_of_an_error_and_later_commands_run(server: Harness) -> None:
    script = "local _, text = pcall(redis.call, 'nosuch') redis.call('SET', 'a', 1) return text"
    assert ev(server, script) == b"ERR Unknown Redis command called from script"
    assert server.do("GET", "a") == b"1"
    script = "local _, kind = xpcall(function() redis.call('nosuch') end, type) return kind"
    assert ev(server, script) == b"table"


def test_a_failed_script_keeps_what_it_did(server: Harness) -> None:
    failure(server, "redis.call('SET', 'kept', 1) error('boom')")
    assert server.do("GET", "kept") == b"1"


def test_select_in_a_script_is_for_the_script(server: Harness) -> None:
    ev(server, "redis.call('SELECT', 3) redis.call('SET', 'there', 1)")
    assert server.do("EXISTS", "there") == 0
    assert server.session.db == 0


def test_a_script_logs_text(server: Harness) -> None:
    ev(server, "redis.log(redis.LOG_WARNING, 'h\\195\\164', true, 2, '\\255')")
    level, event, fields = server.host.logs[-1]
    assert (level, event, fields["text"]) == ("warning", "script.log", "h\u00e4 2 \\xff")
    for number, name in enumerate(
        ("debug", "verbose", "info", "warning")
    ):  # as the server has them
        for level in (f"{number}", f"'{number}'", f"{number}.7"):
            ev(server, f"redis.log({level}, 'x')")
            assert server.host.logs.pop()[0] == name


def test_scripts_without_writes(server: Harness) -> None:
    text = "ERR Write commands are not allowed from read-only scripts."
    assert failure(server, "#!lua flags=no-writes\nreturn redis.call('SET', 'a', 1)") == text
    assert server.error("EVAL_RO", "return redis.call('SET', 'a', 1)", 0).startswith(text)
    for word in ("PUBLISH", "SPUBLISH"):
        script = f"return redis.call('{word}', 'c', 'm')"
        assert server.error("EVAL_RO", script, 0).startswith(text)
    assert server.error("EVAL_RO", "#!lua\nreturn 1", 0) == (
        "ERR Can not execute a script with write flag using *_ro command."
    )
    assert server.do("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "nosuch") is None


def test_memory_limit() -> None:
    server = Harness()
    server.do("SET", "a", "x" * 1000)
    server.do("CONFIG", "SET", "maxmemory", "100")
    text = "OOM command not allowed when used memory > 'maxmemory'."
    write = "return redis.call('SET', 'b', 1).ok"
    assert failure(server, write) == text
    assert server.error("EVAL", "#!lua\n" + write, 0) == text
    assert ev(server, "#!lua flags=allow-oom\n" + write) == b"OK"
    assert ev(server, "#!lua flags=no-writes\nreturn 1") == 1
    assert ev(server, "redis.call('DEL', 'nosuch') " + write) == b"OK"


def test_acl_is_asked_for_each_command() -> None:
    server = Harness()
    server.do("ACL", "SETUSER", "joe", "on", ">x", "~a*", "+@all", "-publish", "resetchannels")
    joe = server.connect()
    server.do("AUTH", "joe", "x", session=joe)
    assert failure(server, "return redis.call('PUBLISH', 'a', 'b')", session=joe) == (
        "ERR ACL failure in script: User joe has no permissions to run the 'publish' command"
    )
    assert failure(server, "return redis.call('GET', 'b')", session=joe) == (
        "ERR ACL failure in script: No permissions to access a key"
    )
    assert ev(server, "return redis.acl_check_cmd('GET', 'b')", session=joe) is None
    assert ev(server, "return redis.acl_check_cmd('GET', 'a')", session=joe) == 1
    assert ev(server, "return redis.acl_check_cmd('SET')", session=joe) == 1
    entry = server.do("ACL", "LOG", "1")[0]
    assert entry[entry.index(b"context") + 1] == b"lua"


def test_a_script_inside_a_transaction(server: Harness) -> None:
    server.do("MULTI")
    server.do("EVAL", "return redis.call('INCR', 'count')", 0)
    server.do("INCR", "count")
    assert server.do("EXEC") == [1, 2]


def test_known_scripts() -> None:
    server = Harness()
    sha1 = server.do("SCRIPT", "LOAD", "return 7")
    assert server.do("EVALSHA", sha1.upper(), 0) == 7
    ev(server, "return 8")
    other = sha1_of(b"return 8")
    assert server.do("SCRIPT", "EXISTS", sha1, other, "0" * 40) == [1, 1, 0]
    assert server.do("INFO", "memory").count(b"number_of_cached_scripts:2") == 1
    for number in range(EVALUATED_MAX):
        ev(server, f"return 1{number}")
    assert server.do("SCRIPT", "EXISTS", sha1, other) == [1, 0]
    server.do("SCRIPT", "FLUSH")
    assert server.error("EVALSHA", sha1, 0) == "NOSCRIPT No matching script. Please use EVAL."
    assert server.error("EVALSHA", "x", "y") == "NOSCRIPT No matching script. Please use EVAL."
    assert server.error("SCRIPT", "KILL") == "NOTBUSY No scripts in execution right now."


def test_libraries(server: Harness) -> None:
    encoded = ev(server, "return cjson.encode({1, 'a\"\\n', {x=cjson.null}, 1.5, true, {}})")
    assert encoded == b'[1,"a\\"\\n",{"x":null},1.5,true,{}]'
    script = (
        "local v = cjson.decode(ARGV[1]) return {v[1], v[2].a, v[3], v[4] == cjson.null, #v[5]}"
    )
    document = '[1, {"a": "\\u00e9\\ud83d\\ude00"}, -1.5e2, null, []]'
    assert ev(server, script, 0, document) == [1, "é😀".encode(), -150, 1, 0]
    assert failure(server, "local v = cjson.decode('[1,2') return v") == (
        "ERR user_script:1: Expected comma or array end but found T_END at character 5"
    )
    assert failure(server, "local v = cjson.encode({[1]=1, [300]=3}) return v") == (
        "ERR user_script:1: Cannot serialise table: excessively sparse array"
    )
    packed = "cmsgpack.pack({1, -1, 70000, -70000, 1.5, 2^40, 'x', {a=true}, false})"
    script = f"local v = cmsgpack.unpack({packed}) return {{v[3], v[4], v[5] * 2, v[7], v[8].a}}"
    assert ev(server, script) == [70000, -70000, 3, b"x", 1]
    assert ev(server, "return cmsgpack.pack({1, 'a', {b=2}})") == b"\x93\x01\xa1a\x81\xa1b\x02"
    assert ev(server, "return {struct.unpack('>I2c3', struct.pack('>I2c3', 258, 'abc'))}") == [
        258, b"abc", 6,
    ]  # fmt: skip
    script = "return {bit.band(7, 3), bit.tohex(255), bit.bnot(0), bit.lshift(1, 31)}"
    assert ev(server, script) == [
        3, b"000000ff", -1, -(1 << 31),
    ]  # fmt: skip
    assert ev(server, "return redis.sha1hex('')") == b"da39a3ee5e6b4b0d3255bfef95601890afd80709"
