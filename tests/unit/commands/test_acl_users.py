"""Users and rules: ACL SETUSER, GETUSER, LIST, DELUSER and what rules mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.commands.table import COMMANDS
from anabranch.engine.acl.rules import AclRegistry
from anabranch.engine.acl.selectors import CATEGORIES, RuleError
from tests.support.region_harness import Harness

DEFAULT = "user default on nopass sanitize-payload ~* &* +@all"
ALL_KEYS = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have "
    "any effect. Try 'resetkeys' to start with an empty list of patterns"
)
ALL_CHANNELS = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not "
    "have any effect. Try 'resetchannels' to start with an empty list of channels"
)
SYNTAX = "Syntax error"
UNKNOWN = "Unknown command or category name in ACL"
BAD_HASH = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
    "characters"
)
NO_PASSWORD = "The password you are trying to remove from the user does not exist"
PW_HASH = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4"


@pytest.fixture
def harness() -> Harness:
    return Harness()


def line(harness: Harness, *rules: str) -> str:
    """The line of a new user with these rules, without its name."""
    harness.do("ACL", "SETUSER", "alice", *rules)
    return next(
        each.decode().removeprefix("user alice ")
        for each in harness.do("ACL", "LIST")
        if each.startswith(b"user alice ")
    )


def test_there_is_a_default_user(harness: Harness) -> None:
    assert harness.do("ACL", "WHOAMI") == b"default"
    assert harness.do("ACL", "USERS") == [b"default"]
    assert harness.do("ACL", "LIST") == [DEFAULT.encode()]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", "off sanitize-payload resetchannels -@all"),
        (
            "on >pw ~s* &c* +@stream -xdel",
            f"on sanitize-payload #{PW_HASH} ~s* resetchannels &c* -@all +@stream -xdel",
        ),
        (
            "%R~r* %W~w* %RW~b* +xadd +xgroup|create",
            "off sanitize-payload %R~r* %W~w* ~b* resetchannels -@all +xadd +xgroup|create",
        ),
        ("NOPASS ALLKEYS allchannels +@ALL", "off nopass sanitize-payload ~* &* +@all"),
        (
            "nopass allkeys allchannels allcommands nocommands (+get ~k*)",
            "off nopass sanitize-payload ~* &* -@all (~k* resetchannels -@all +get)",
        ),
        ("on >pw ~a (+get) reset", "off sanitize-payload resetchannels -@all"),
        ("(+get) clearselectors", "off sanitize-payload resetchannels -@all"),
        (">pw nopass", "off nopass sanitize-payload resetchannels -@all"),
        ("nopass >pw <pw", "off sanitize-payload resetchannels -@all"),
        (f"#{PW_HASH} !{PW_HASH}", "off sanitize-payload resetchannels -@all"),
        ("nopass resetpass", "off sanitize-payload resetchannels -@all"),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        # a pattern's permissions add up
        ("%W~a %R~a ~b %R~b %r~c", "off sanitize-payload ~a ~b %R~c resetchannels -@all"),
        # a rule takes the place of those it overrules
        ("+@all -xadd -@dangerous", "off sanitize-payload resetchannels +@all -xadd -@dangerous"),
        (
            "+xgroup|create -xgroup|setid +xgroup",
            "off sanitize-payload resetchannels -@all +xgroup",
        ),
        ("+XADD -xadd +Xadd", "off sanitize-payload resetchannels -@all +xadd"),
        ("+select|0 +SELECT|1", "off sanitize-payload resetchannels -@all +select|0 +select|1"),
        ("+select|0 -select", "off sanitize-payload resetchannels -@all -select"),
        ("+@geo", "off sanitize-payload resetchannels -@all +@geo"),
        # commands and categories that only Redis has
        (
            "-@all +xinfo +pfcount +zcard +hlen +info",
            "off sanitize-payload resetchannels -@all +xinfo +pfcount +zcard +hlen +info",
        ),
        (
            "+@all -migrate -module|load -ft.config|set -@json +HSET",
            "off sanitize-payload resetchannels +@all -migrate -module|load -ft.config|set -@json "
            "+hset",
        ),
        (
            "+hset|A +hset|b -zadd +hotkeys|get -hotkeys -hset +cluster|info -cluster|reset",
            "off sanitize-payload resetchannels -@all -zadd -hotkeys -hset +cluster|info "
            "-cluster|reset",
        ),
        (
            "(+json.get ~k)",
            "off sanitize-payload resetchannels -@all (~k resetchannels -@all +json.get)",
        ),
        # several selectors; an empty one is one
        (
            "(+get ~k* %R~z) (allkeys +set &x) ()",
            "off sanitize-payload resetchannels -@all (~k* %R~z resetchannels -@all +get) "
            "(~* resetchannels &x -@all +set) (resetchannels -@all)",
        ),
    ],
)
def test_rules_in_their_canonical_form(harness: Harness, rules: str, expected: str) -> None:
    assert line(harness, *rules.split()) == expected


@pytest.mark.parametrize(
    ("before", "rule", "reason"),
    [
        ("", "BAD", SYNTAX),
        ("", "on)", SYNTAX),
        ("", "(on)", SYNTAX),
        ("", "(+get (x))", SYNTAX),
        ("", "+nosuch", UNKNOWN),
        ("", "+cluster|foo", UNKNOWN),
        ("", "+hotkeys|foo", UNKNOWN),
        ("", "-module|foo", UNKNOWN),
        ("", "-hset|foo", UNKNOWN),
        ("", "+hset|", SYNTAX),
        ("", "+json.nosuch", UNKNOWN),
        ("", "+clusterscan", UNKNOWN),  # of Valkey
        ("", "+", UNKNOWN),
        ("", "-", UNKNOWN),
        ("", "+@", UNKNOWN),
        ("", "+@nosuch", UNKNOWN),
        ("", "(+nosuch)", UNKNOWN),
        ("", "-xgroup|nosuch", UNKNOWN),
        ("", "+xgroup|nosuch", UNKNOWN),
        ("", "-xadd|x", UNKNOWN),
        ("", "+xadd|", SYNTAX),
        ("", "+xgroup|create|x", "Allowing first-arg of a subcommand is not supported"),
        ("", "%k", SYNTAX),
        ("", "%~k", SYNTAX),
        ("", "%RR~k", SYNTAX),
        ("", "%X~k", SYNTAX),
        ("", "~a b", SYNTAX),
        ("", "&a b", SYNTAX),
        ("allkeys", "~", ALL_KEYS),
        ("allkeys", "%X~k", ALL_KEYS),
        ("allchannels", "&x", ALL_CHANNELS),
        ("", "<nopw", NO_PASSWORD),
        ("", f"!{PW_HASH}", NO_PASSWORD),
        ("", "!11", BAD_HASH),
        ("", "#bad", BAD_HASH),
        ("", f"#{PW_HASH.upper()}", BAD_HASH),
    ],
)
def test_a_bad_rule_is_named_and_changes_nothing(
    harness: Harness, before: str, rule: str, reason: str
) -> None:
    untouched = line(harness, "+xlen", *before.split())
    error = harness.error("ACL", "SETUSER", "alice", "on", "+xadd", rule)
    assert error == f"ERR Error in ACL SETUSER modifier '{rule}': {reason}"
    assert line(harness) == untouched


def test_a_bad_rule_makes_no_user(harness: Harness) -> None:
    harness.error("ACL", "SETUSER", "alice", "on", "BAD")
    assert harness.do("ACL", "USERS") == [b"default"]


def test_a_selector_must_be_closed(harness: Harness) -> None:
    for rules in (["("], ["(+get", "~a"]):
        error = harness.error("ACL", "SETUSER", "alice", *rules)
        assert error == f"ERR Unmatched parenthesis in acl selector starting at '{rules[0]}'."


@pytest.mark.parametrize("name", [b"a b", b"a\0b", b"a\tb"])
def test_a_name_has_no_blanks(harness: Harness, name: bytes) -> None:
    error = harness.error("ACL", "SETUSER", name, "on")
    assert error == "ERR Usernames can't contain spaces or null characters"


def test_getuser_in_both_protocols(harness: Harness) -> None:
    harness.do("ACL", "SETUSER", "alice", "on", ">pw", "%R~r*", "~s*", "&c", "&d", "+get", "(~k*)")
    fields: list[Any] = [
        b"flags",
        [b"on", b"sanitize-payload"],
        b"passwords",
        [PW_HASH.encode()],
        b"commands",
        b"-@all +get",
        b"keys",
        b"%R~r* ~s*",
        b"channels",
        b"&c &d",
        b"selectors",
        [[b"commands", b"-@all", b"keys", b"~k*", b"channels", b""]],
    ]
    assert harness.do("ACL", "GETUSER", "alice") == fields
    third = harness.connect(resp3=True)
    raw = harness.raw("ACL", "GETUSER", "alice", session=third)
    assert raw.startswith(b"%6\r\n$5\r\nflags\r\n~2\r\n")
    assert b"selectors\r\n*1\r\n%3\r\n" in raw
    assert harness.do("ACL", "GETUSER", "nobody") is None


def test_deluser_counts_and_protects_the_default_user(harness: Harness) -> None:
    harness.do("ACL", "SETUSER", "alice")
    error = harness.error("ACL", "DELUSER", "alice", "default")
    assert error == "ERR The 'default' user cannot be removed"
    assert harness.do("ACL", "DELUSER", "alice", "nobody", "alice") == 1
    assert harness.do("ACL", "USERS") == [b"default"]


def test_deluser_closes_the_connections(harness: Harness) -> None:
    harness.do("ACL", "SETUSER", "alice", "on", "nopass", "+@all")
    other = harness.connect()
    harness.do("AUTH", "alice", "x", session=other)
    assert harness.do("ACL", "DELUSER", "alice") == 1
    assert harness.host.closed == [other]
    assert other.user is None
    assert not other.plain


def test_new_rules_reach_live_connections(harness: Harness) -> None:
    harness.do("ACL", "SETUSER", "alice", "on", "nopass", "+@all", "~*", "&*")
    other = harness.connect()
    harness.do("AUTH", "alice", "x", session=other)
    assert other.plain
    harness.do("ACL", "SETUSER", "alice", "-xadd", "off")
    assert not other.plain
    assert harness.error("XADD", "s", "*", "f", "v", session=other) == (
        "NOPERM User alice has no permissions to run the 'xadd' command"
    )
    assert harness.do("XLEN", "s", session=other) == 0
    assert harness.error("AUTH", "alice", "x") == (
        "WRONGPASS invalid username-password pair or user is disabled."
    )


@pytest.mark.parametrize(
    ("subscribe", "rules", "closes"),
    [
        (["SUBSCRIBE", "news1"], ["resetchannels", "&news*"], False),
        (["SUBSCRIBE", "news1"], ["resetchannels", "(&news1)"], False),
        (["SUBSCRIBE", "news1"], ["resetchannels", "&other"], True),
        (["PSUBSCRIBE", "news*"], ["resetchannels", "&news*"], False),
        (["PSUBSCRIBE", "news1"], ["resetchannels", "&news*"], True),
        (["PING"], ["resetchannels"], False),
    ],
)
def test_a_subscriber_goes_when_it_may_not_listen_any_more(
    harness: Harness, subscribe: list[str], rules: list[str], closes: bool
) -> None:
    harness.do("ACL", "SETUSER", "alice", "on", "nopass", "+@all", "~*", "&*")
    other = harness.connect()
    harness.do("AUTH", "alice", "x", session=other)
    harness.do(*subscribe, session=other)
    harness.do("ACL", "SETUSER", "alice", *rules)
    assert harness.host.closed == ([other] if closes else [])


def test_acl_pubsub_default(harness: Harness) -> None:
    harness.do("CONFIG", "SET", "acl-pubsub-default", "allchannels")
    assert line(harness) == "off sanitize-payload &* -@all"
    assert line(harness, "resetchannels", "&x", "reset") == "off sanitize-payload &* -@all"


def test_requirepass_closes_the_door(harness: Harness) -> None:
    acl = harness.region.acl
    assert acl.initial_user() is acl.users[b"default"]
    acl.set_default_password("secret")
    assert acl.initial_user() is None
    assert acl.authenticate(b"default", b"wrong") is None
    assert acl.authenticate(b"default", b"secret") is acl.users[b"default"]
    acl.set_default_password("")
    assert acl.initial_user() is acl.users[b"default"]


def test_genpass(harness: Harness) -> None:
    assert len(harness.do("ACL", "GENPASS")) == 64
    assert len(harness.do("ACL", "GENPASS", 5)) == 2
    assert len(harness.do("ACL", "GENPASS", 4096)) == 1024
    assert harness.do("ACL", "GENPASS") != harness.do("ACL", "GENPASS")
    for bits in (0, -1, 4097):
        assert harness.error("ACL", "GENPASS", bits).startswith("ERR ACL GENPASS argument must be")
    assert harness.error("ACL", "GENPASS", "bad") == "ERR value is not an integer or out of range"
    assert harness.error("ACL", "GENPASS", 1, 2) == (
        "ERR unknown subcommand or wrong number of arguments for 'GENPASS'. Try ACL HELP."
    )


def test_what_redis_only_has_takes_no_permission_away(harness: Harness) -> None:
    harness.do("ACL", "SETUSER", "alice", "on", "nopass", "~*", "&*", "+@all", "-hset", "-@json")
    other = harness.connect()
    harness.do("AUTH", "alice", "x", session=other)
    assert other.plain, "nothing is to be checked"
    harness.do("ACL", "SETUSER", "alice", "-@all", "+hset", "+get|x", "+module|load", "+@search")
    assert harness.error("GET", "k", session=other).startswith("NOPERM")
    assert harness.error("HSET", "k", "f", "v", session=other).startswith("ERR unknown command")


def test_cat(harness: Harness) -> None:
    assert sorted(harness.do("ACL", "CAT")) == sorted(each.encode() for each in CATEGORIES)
    stream = harness.do("ACL", "CAT", "STREAM")
    assert {b"xadd", b"xgroup|create", b"xinfo|help"} <= set(stream)
    assert b"xgroup" not in stream
    assert harness.do("ACL", "CAT", "json") == []
    assert harness.error("ACL", "CAT", "nosuch") == "ERR Unknown category 'nosuch'"
    assert harness.error("ACL", "CAT", "stream", "x") == (
        "ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP."
    )


RULES = st.sampled_from(
    "on off nopass resetpass >a >b <a allkeys resetkeys ~a* %R~b %W~b %RW~c allchannels "
    "resetchannels &c* &d +@all -@all +@stream -@stream +@write -@dangerous +xadd -xadd +xgroup "
    "-xgroup +xgroup|create -xgroup|create +select|0 -select (~k+get) (+@read) clearselectors "
    "reset skip-sanitize-payload".split()
)


@given(st.lists(RULES, max_size=12))
def test_a_user_written_down_is_the_same_user_again(rules: list[str]) -> None:
    registry = AclRegistry("", COMMANDS)
    user = registry.setuser(b"alice", [])
    for rule in rules:
        try:
            user.adopt(user.changed([rule.encode()], all_channels=False))
        except RuleError:
            continue
    text = user.text()
    registry = AclRegistry("", COMMANDS)
    registry.load(text.decode())
    again = registry.users[b"alice"]
    assert again.text() == text
    for one, other in zip(user.selectors, again.selectors, strict=True):
        assert one.allowed == other.allowed
        assert one.first_args == other.first_args
        assert one.all_commands == other.all_commands or one.allowed == one.index.names
