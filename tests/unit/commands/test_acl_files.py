"""Users from configuration lines and from the ACL file."""

from __future__ import annotations

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.engine.acl.rules import AclRegistry
from anabranch.errors import CommandError, ConfigError
from tests.support.region_harness import Harness

DEFAULT = b"user default on nopass sanitize-payload ~* &* +@all"
NO_FILE = (
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users "
    "via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis "
    "configuration file set) in order to store users in the Redis configuration."
)


@pytest.fixture
def harness() -> Harness:
    one = Harness()
    one.settings.aclfile = "users.acl"
    return one


def test_without_a_file() -> None:
    harness = Harness()
    assert harness.error("ACL", "LOAD") == harness.error("ACL", "SAVE") == NO_FILE


def test_save_and_load_again(harness: Harness) -> None:
    harness.do("ACL", "SETUSER", "alice", "on", ">pw", "~a*", "+@stream", "(+get ~b*)")
    before = harness.do("ACL", "LIST")
    assert harness.do("ACL", "SAVE") == b"OK"
    assert harness.host.acl_text.encode() == b"\n".join([*before, b""])
    harness.do("ACL", "SETUSER", "alice", "reset")
    harness.do("ACL", "SETUSER", "bob")
    assert harness.do("ACL", "LOAD") == b"OK"
    assert harness.do("ACL", "LIST") == before


def test_a_file_of_redis_with_rules_for_other_types(harness: Harness) -> None:
    rules = "on nopass sanitize-payload ~* &* +@all -migrate +hset -module|load -@timeseries"
    harness.host.acl_text = f"user default {rules}\nuser exporter off -@all +pfcount +zcard +hlen\n"
    assert harness.do("ACL", "LOAD") == b"OK"
    assert harness.do("ACL", "SAVE") == b"OK"
    assert harness.host.acl_text.splitlines() == [
        f"user default {rules}",
        "user exporter off sanitize-payload resetchannels -@all +pfcount +zcard +hlen",
    ]
    registry = AclRegistry("", COMMANDS)
    registry.load_user(["default", *rules.split()])
    assert registry.lines() == [f"user default {rules}".encode()]


def test_load_reaches_live_connections(harness: Harness) -> None:
    for name in ("alice", "bob"):
        harness.do("ACL", "SETUSER", name, "on", "nopass", "allkeys", "allchannels", "+@all")
    alice, bob = harness.connect(), harness.connect()
    harness.do("AUTH", "alice", "x", session=alice)
    harness.do("AUTH", "bob", "x", session=bob)
    harness.host.acl_text = "\n  user alice on nopass +ping  \r\n\n"
    assert harness.do("ACL", "LOAD") == b"OK"
    assert harness.error("XLEN", "s", session=alice).startswith("NOPERM")
    assert harness.do("PING", session=alice) == b"PONG"
    assert harness.host.closed == [bob]
    assert harness.do("ACL", "LIST")[1] == DEFAULT, "without a line it is as in a new server"


def test_a_wrong_file_changes_nothing(harness: Harness) -> None:
    harness.host.acl_text = "\n".join(
        [
            "user bob on nopass ~* +@all",
            "usr x",
            "user a b(",
            "user a on",
            "user zed +foo",
            "user yan (+get ~a",
            "# no comments",
        ]
    )
    assert harness.error("ACL", "LOAD") == (
        "ERR users.acl:2 should start with user keyword followed by the username. "
        "users.acl:3: Syntax error. "
        "WARNING: Duplicate user 'a' found on line 4. "
        "users.acl:5: Error in applying operation '+foo': Unknown command or category name in ACL. "
        "users.acl:6: Unmatched parenthesis in selector definition. "
        "users.acl:7 should start with user keyword followed by the username. "
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    )
    assert harness.do("ACL", "LIST") == [DEFAULT]


def test_secrets_of_a_wrong_line_are_not_shown() -> None:
    with pytest.raises(CommandError) as refusal:
        AclRegistry("", COMMANDS).load("user alice #secret")
    assert b"secret" not in refusal.value.text


def test_lines_of_the_configuration() -> None:
    registry = AclRegistry("secret", COMMANDS)
    registry.load_user(["alice", "on", "nopass", "(+get", "~a)"])
    registry.load_user(["default", "on", "nopass", "+ping"])
    assert registry.lines() == [
        b"user alice on nopass sanitize-payload resetchannels -@all (~a resetchannels -@all +get)",
        b"user default on nopass sanitize-payload resetchannels -@all +ping",
    ]
    assert registry.initial_user() is registry.users[b"default"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["bob", "+nosuch"],
            "Error in applying operation '+nosuch': Unknown command or category name in ACL",
        ),
        (["bob", "(+get"], "Unmatched parenthesis in selector definition"),
        (["b\0b"], "Usernames can't contain spaces or null characters"),
        (["alice"], "Duplicate user found. A user can only be defined once in config files"),
    ],
)
def test_a_wrong_line_of_the_configuration(words: list[str], problem: str) -> None:
    registry = AclRegistry("", COMMANDS)
    registry.load_user(["alice", "on"])
    with pytest.raises(ConfigError) as refusal:
        registry.load_user(words)
    assert str(refusal.value) == problem
