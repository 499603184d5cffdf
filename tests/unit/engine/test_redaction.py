"""Secrets do not leave through MONITOR or the slow log."""

from __future__ import annotations

import pytest

from anabranch.engine.redaction import hidden, redacted
from anabranch.engine.spec import Command


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ("AUTH secret", "AUTH (redacted)"),
        ("auth me secret", "auth (redacted) (redacted)"),
        ("HELLO 3 SETNAME x AUTH me secret", "HELLO 3 SETNAME x AUTH (redacted) (redacted)"),
        ("HELLO 3 AUTH me secret SETNAME x", "HELLO 3 AUTH (redacted) (redacted) SETNAME x"),
        ("HELLO 3 SETNAME AUTH", "HELLO 3 SETNAME AUTH"),
        ("HELLO 3 AUTH secret", "HELLO 3 AUTH (redacted)"),
        ("ACL SETUSER me >secret on", "ACL SETUSER (redacted) (redacted) (redacted)"),
        ("ACL LIST", "ACL LIST"),
        ("CONFIG SET requirepass x port 1", "CONFIG SET requirepass (redacted) port 1"),
        ("CONFIG SET port requirepass", "CONFIG SET port requirepass"),
        ("CONFIG GET requirepass", "CONFIG GET requirepass"),
        ("XADD s 1-0 auth secret", "XADD s 1-0 auth secret"),
    ],
)
def test_passwords_are_hidden(request_, shown):
    assert redacted(request_.encode().split()) == shown.encode().split()


def test_user_data_is_hidden_behind_the_names():
    add = Command("xadd", None, arity=-5)
    assert hidden(add, [b"XADD", b"s", b"*"]) == [b"XADD", b"(redacted)", b"(redacted)"]
    create = Command("create", None, arity=-5)
    Command("xgroup", None, arity=-2, subcommands={b"create": create})
    assert hidden(create, [b"XGROUP", b"CREATE", b"s"]) == [b"XGROUP", b"CREATE", b"(redacted)"]
