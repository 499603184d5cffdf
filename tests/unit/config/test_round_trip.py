"""What is written down means what it meant: a share of the fuzzer, and what it once found."""

from __future__ import annotations

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.config.runtime import rewritten
from anabranch.config.settings import Settings
from anabranch.engine.acl.rules import AclRegistry
from anabranch.errors import CommandError
from tests.support.settings_fuzzer import CASES, _load, _registry, _user_lines, rights, run, same


@pytest.mark.parametrize("part", range(4))
def test_random_files_and_rules(part: int) -> None:
    accepted = run(1_000_000 + 1000 * part, 750)
    assert set(accepted) == {case.__name__ for case in CASES}
    assert all(accepted.values()), accepted
    assert accepted["rules"] > 30


@pytest.mark.parametrize("blank", ["\x1c", "\x1f", "\x85", "\u2003", "\u2028", "\u3000", '"', "'"])
def test_a_strange_separator_in_a_pattern_grants_nothing(blank: str) -> None:
    registry = AclRegistry("", COMMANDS)
    rule = f"~secret{blank}~*{blank}+@all".encode()
    registry.setuser(b"alice", [b"on", b">pw", rule, b"+get"])
    text = rewritten("", Settings(), _user_lines(registry, Settings()))
    same(registry, _registry(_load(text)), text)


@pytest.mark.parametrize(
    "rule", [b"+get|x +@all", b"+select|1\n~*", b"(+get ~a) +@all)", b"~a b", b"(~x) +get)"]
)
def test_what_cannot_be_written_is_refused(rule: bytes) -> None:
    registry = AclRegistry("", COMMANDS)
    with pytest.raises(CommandError):
        registry.setuser(b"alice", [rule])
    assert b"alice" not in registry.users


@pytest.mark.parametrize("name", [b"", b" ", b"a b", b"a\0", b"\n"])
def test_a_name_that_cannot_be_written_is_refused(name: bytes) -> None:
    with pytest.raises(CommandError):
        AclRegistry("", COMMANDS).setuser(name, [b"on"])


def test_every_key_by_a_pattern_is_not_all_keys() -> None:
    registry = AclRegistry("", COMMANDS)
    user = registry.setuser(b"a", [b"%R~*", b"%W~*", b"+get"])
    assert b"%RW~*" in user.text()
    again = AclRegistry("", COMMANDS)
    again.load(b"".join([line + b"\n" for line in registry.lines()]).decode())
    assert rights(again.users[b"a"]) == rights(user)
