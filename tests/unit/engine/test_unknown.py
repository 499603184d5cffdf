"""The error for a command that does not exist: Redis's words, and a hint for Redis's commands."""

from __future__ import annotations

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.engine.absent import ABSENT, ABSENT_CONTAINERS, ABSENT_NAMES
from tests.support.region_harness import Harness

HASHES = b"(Anabranch is a stream server and has no hashes; docs/commands.md lists its commands)"


@pytest.fixture
def server():
    return Harness()


def test_no_command_of_this_server_is_said_to_be_missing():
    assert {command.name for command in COMMANDS} & set(ABSENT) == set()
    ours = {each.full_name.encode() for row in COMMANDS for each in row.subcommands.values()}
    assert ours & ABSENT_NAMES == set()
    assert {name.encode() for name in ABSENT} > ABSENT_CONTAINERS


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_each_command_of_redis_that_is_missing_is_explained(server, name):
    reply = server.raw(name.upper(), "key")
    assert reply.startswith(b"-ERR unknown command '%b', with args" % name.upper().encode())
    assert b"a stream server" in reply
    assert b"docs/commands.md" in reply


def test_the_sentence_follows_the_words_of_redis(server):
    with_args = b"-ERR unknown command 'hSet', with args beginning with: 'k' 'f' 'v' "
    assert server.raw("hSet", "k", "f", "v") == with_args + HASHES + b"\r\n"
    assert server.raw("HSET") == b"-ERR unknown command 'HSET' " + HASHES + b"\r\n"


@pytest.mark.parametrize("name", ["HSETS", "", "JSON.", "HSET\0", " HSET", "H\xdfET", "*1"])
def test_other_names_get_the_words_of_redis_alone(server, name):
    assert b"Anabranch" not in server.raw(name, "x")


def test_arguments_are_cut_as_redis_cuts_them(server):
    reply = server.raw("HSET", "k" * 100, "f" * 1_000_000, "v")
    assert reply == (
        b"-ERR unknown command 'HSET', with args beginning with: "
        b"'%b' '%b' %b\r\n" % (b"k" * 100, b"f" * 25, HASHES)
    )


def test_a_transaction_is_discarded_as_for_any_unknown_command(server):
    server.do("MULTI")
    assert HASHES in server.raw("HSET", "k", "f", "v")
    assert server.raw("EXEC").startswith(b"-EXECABORT Transaction discarded because of previous")
    assert server.do("INFO", "errorstats").count(b"errorstat_ERR:count=1") == 1


@pytest.mark.parametrize("name", sorted(ABSENT_NAMES))
def test_rules_may_name_each_of_them(server, name):
    server.do("ACL", "SETUSER", "u", "reset", b"+" + name, b"-" + name, "+@all", b"-" + name)
    assert server.do("ACL", "LIST")[1].endswith(b" resetchannels +@all -" + name)


def test_commands_that_are_missing_are_in_no_list_of_commands(server):
    shown = set(server.do("COMMAND", "LIST"))
    for category in server.do("ACL", "CAT"):
        shown |= set(server.do("ACL", "CAT", category))
    assert shown & ABSENT_NAMES == set()
    assert server.do("COMMAND", "INFO", "hset", "module|load") == [None, None]
    assert server.do("COMMAND", "DOCS", "hset") == []
    server.do("ACL", "SETUSER", "u", "+@all", "+hset")
    assert server.error("ACL", "DRYRUN", "u", "HSET", "k", "f", "v") == (
        "ERR Command 'HSET' not found"
    )
