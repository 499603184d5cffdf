"""What users may do: NOPERM, ACL DRYRUN, ACL LOG."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.engine.session import Session
from tests.support.region_harness import Harness, decode_all

NO_KEY = "NOPERM No permissions to access a key"
NO_CHANNEL = "NOPERM No permissions to access a channel"


def no_command(name: str) -> str:
    return f"NOPERM User alice has no permissions to run the '{name}' command"


class Case:
    """An administrator, and alice on a connection of her own."""

    def __init__(self, rules: str) -> None:
        self.harness = Harness()
        self.admin("ACL", "SETUSER", "alice", "on", "nopass", *rules.split())
        self.session: Session = self.harness.connect()
        self.alice("AUTH alice x")

    def admin(self, *args: str) -> Any:
        return self.harness.do(*args)

    def alice(self, line: str) -> Any:
        """Alice's reply; an error as its text."""
        (reply,) = decode_all(self.harness.raw(*line.split(), session=self.session))
        return str(reply) if isinstance(reply, Exception) else reply

    def log(self) -> list[dict[bytes, Any]]:
        entries = self.admin("ACL", "LOG")
        return [dict(zip(each[::2], each[1::2], strict=True)) for each in entries]


def test_commands() -> None:
    case = Case("~* &* +@stream -xadd -xgroup|destroy +multi +exec")
    for line, name in (
        ("XADD s 1-0 f v", "xadd"),
        ("XGROUP DESTROY s g", "xgroup|destroy"),
        ("PING", "ping"),
        ("ACL WHOAMI", "acl|whoami"),
        ("CONFIG GET port", "config|get"),
    ):
        assert case.alice(line) == no_command(name)
    assert case.alice("XLEN s") == 0
    assert case.alice("XGROUP CREATE s g $ MKSTREAM") == b"OK"
    # what is no command at all, or no whole one, is told first
    assert case.alice("NOSUCH").startswith("ERR unknown command")
    assert case.alice("XADD s").startswith("ERR wrong number")
    assert case.alice("XGROUP NOSUCH").startswith("ERR unknown subcommand")
    # connections can always introduce themselves and leave
    assert case.alice("AUTH alice x") == b"OK"
    assert case.alice("RESET") == b"RESET"


def test_first_arguments() -> None:
    case = Case("~* +select|0 +xgroup|create")
    assert case.alice("SELECT 0") == b"OK"
    assert case.alice("SELECT 1") == no_command("select")
    assert case.alice("XGROUP SETID s g 0") == no_command("xgroup|setid")


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("XADD s * f v", True),
        ("XADD w * f v", True),
        ("XADD r * f v", False),
        ("XADD t * f v", False),
        ("XRANGE r - +", True),
        ("XRANGE w - +", False),
        ("XLEN w", True),  # tells of the key, but not what it holds
        ("XLEN t", False),
        ("XREAD STREAMS s r 0 0", True),
        ("XREAD STREAMS s t 0 0", False),
        ("XREAD COUNT 1 STREAMS w 0", False),
        ("XREADGROUP GROUP STREAMS c STREAMS t >", False),
        ("XREADGROUP COUNT 1 GROUP g STREAMS STREAMS t >", False),
        ("XREADGROUP COUNT 1 GROUP t STREAMS STREAMS r >", True),
        ("XREADGROUP GROUP t t NOACK STREAMS r >", True),
        ("SET w v", True),
        ("SET w v EX 10 NX", True),
        ("SET w v NX get", False),
        ("SET r v", False),
        ("GETSET w v", False),
        ("EVAL_RO x 2 r s", True),
        ("EVALSHA_RO x 1 r", True),
        ("FCALL_RO x 1 r", True),
        ("EVAL_RO x 1 w", False),
        ("EVAL_RO x 0 w", True),
        ("EVAL x 1 r", False),
        ("EVALSHA x 1 s", True),
        ("FCALL x 1 r", False),
        ("COPY r s", True),
        ("COPY s t", False),
        ("RENAME s t", False),
        ("DEL s t", False),
        ("EXISTS s r w", True),
        ("XGROUP CREATE t g 0", False),
        ("XGROUP HELP", True),
        ("KEYS *", True),
    ],
)
def test_keys(line: str, allowed: bool) -> None:
    case = Case("~s* %R~r* %W~w* +@all")
    reply = case.alice(line)
    assert (reply != NO_KEY) is allowed, reply
    assert (case.admin("ACL", "DRYRUN", "alice", *line.split()) == b"OK") is allowed


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("PUBLISH ok1 x", True),
        ("PUBLISH no ok1", False),
        ("SUBSCRIBE ok1 ok2", True),
        ("SUBSCRIBE ok1 no", False),
        ("PSUBSCRIBE ok*", True),
        ("PSUBSCRIBE ok1", False),
        ("PSUBSCRIBE *", False),
        ("SSUBSCRIBE no", False),
        ("UNSUBSCRIBE no", True),
        ("PUBSUB NUMSUB no", True),
    ],
)
def test_channels(line: str, allowed: bool) -> None:
    case = Case("+@all ~* resetchannels &ok*")
    replies = decode_all(case.harness.raw(*line.split(), session=case.session))
    assert (str(replies[0]) != NO_CHANNEL) is allowed


def test_one_selector_must_allow_all_of_a_request() -> None:
    case = Case("+xlen ~a (+xlen +xadd ~b) (+xrange ~c)")
    assert case.alice("XLEN a") == 0
    assert case.alice("XLEN b") == 0
    assert case.alice("XLEN c") == NO_KEY
    assert case.alice("XADD a * f v") == NO_KEY
    assert case.alice("XDEL a 1") == no_command("xdel")


def test_dryrun() -> None:
    case = Case("~s +xadd +publish &ok")
    run = ("ACL", "DRYRUN", "alice")
    assert case.admin(*run, "XADD", "s", "*", "f", "v") == b"OK"
    assert case.admin(*run, "AUTH", "x") == b"OK"
    assert case.admin(*run, "XADD", "t", "*", "f", "v") == (
        b"User alice has no permissions to access the 't' key"
    )
    assert case.admin(*run, "PUBLISH", "c", "x") == (
        b"User alice has no permissions to access the 'c' channel"
    )
    assert case.admin(*run, "XGROUP", "DESTROY", "s", "g") == (
        b"User alice has no permissions to run the 'xgroup|destroy' command"
    )
    error = case.harness.error
    assert error("ACL", "DRYRUN", "nobody", "PING") == "ERR User 'nobody' not found"
    assert error(*run, "NOSUCH") == "ERR Command 'NOSUCH' not found"
    assert error(*run, "XGROUP", "NOSUCH") == "ERR Command 'XGROUP' not found"
    assert error(*run, "XADD", "s") == "ERR wrong number of arguments for 'xadd' command"
    assert case.log() == [], "a question is no denial"


def test_log_entries() -> None:
    case = Case("+xlen +multi +publish ~s resetchannels")
    case.alice("XADD s * f v")
    case.harness.advance(1500)
    case.alice("XLEN t")
    case.alice("AUTH bob wrong")
    case.alice("PUBLISH c x")
    case.alice("MULTI")
    case.alice("XLEN t")
    entries = case.log()
    told = [
        (each[b"reason"], each[b"context"], each[b"object"], each[b"username"]) for each in entries
    ]
    assert told == [
        (b"key", b"multi", b"t", b"alice"),
        (b"channel", b"toplevel", b"c", b"alice"),
        (b"auth", b"toplevel", b"AUTH", b"bob"),
        (b"key", b"toplevel", b"t", b"alice"),
        (b"command", b"toplevel", b"xadd", b"alice"),
    ]
    first = entries[-1]
    assert first[b"entry-id"] == 0
    assert first[b"count"] == 1
    assert first[b"age-seconds"] == b"1.5"
    assert first[b"timestamp-created"] == first[b"timestamp-last-updated"] == 1_700_000_000_000
    assert f"id={case.session.id} ".encode() in first[b"client-info"]
    assert b" cmd=xadd user=alice " in first[b"client-info"]
    stats = case.harness.region.stats
    assert (stats.acl_denied_cmd, stats.acl_denied_key) == (1, 2)
    assert (stats.acl_denied_auth, stats.acl_denied_channel) == (1, 1)


def test_repeated_denials_are_counted_for_a_minute() -> None:
    case = Case("+@all ~s")
    case.alice("XLEN t")
    case.alice("XLEN u")
    case.harness.advance(60_000)
    case.alice("XLEN t")
    assert [(each[b"object"], each[b"count"]) for each in case.log()] == [(b"t", 2), (b"u", 1)]
    newest = case.log()[0]
    assert newest[b"entry-id"] == 0
    assert newest[b"timestamp-last-updated"] - newest[b"timestamp-created"] == 60_000
    case.harness.advance(60_001)
    case.alice("XLEN t")
    assert [each[b"entry-id"] for each in case.log()] == [2, 0, 1]


def test_log_count_and_reset() -> None:
    case = Case("+@all ~s")
    case.harness.settings.acllog_max_len = 15
    for number in range(20):
        case.alice(f"XLEN t{number}")
    assert len(case.admin("ACL", "LOG")) == 10
    assert len(case.admin("ACL", "LOG", "99")) == 15
    assert case.admin("ACL", "LOG", "0") == case.admin("ACL", "LOG", "-1") == []
    assert case.harness.error("ACL", "LOG", "x") == "ERR value is not an integer or out of range"
    assert case.admin("ACL", "LOG", "reset") == b"OK"
    assert case.log() == []


def test_exec_asks_again() -> None:
    case = Case("+@all ~* &*")
    for line in ("MULTI", "XADD s 1-0 f v", "PUBLISH c x", "XLEN t", "XLEN s"):
        case.alice(line)
    case.admin("ACL", "SETUSER", "alice", "-xadd", "resetkeys", "~s", "resetchannels")
    changed = (
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the "
        "EXEC call. This command is no longer allowed for the following reason: "
    )
    assert [reply if isinstance(reply, int) else str(reply) for reply in case.alice("EXEC")] == [
        changed + "no permission to execute the command or subcommand",
        changed + "no permission to access one of the channels used as arguments to the command",
        changed + "no permission to touch the specified keys",
        0,
    ]
    assert {each[b"context"] for each in case.log()} == {b"multi"}


def test_a_refused_command_spoils_the_transaction() -> None:
    case = Case("+@all -xadd ~*")
    case.alice("MULTI")
    assert case.alice("XLEN s") == b"QUEUED"
    assert case.alice("XADD s * f v") == no_command("xadd")
    assert case.alice("EXEC").startswith("EXECABORT")


def test_the_log_cuts_names() -> None:
    harness = Harness()
    harness.raw("ACL", "SETUSER", "u" * 1000, "on", "nopass", "+@all", "~a", "-acl")
    other = harness.connect()
    harness.raw("CLIENT", "SETNAME", "n" * 100_000, session=other)
    harness.raw("AUTH", "u" * 1000, "x", session=other)
    harness.raw("GET", "k" * 100_000, session=other)
    harness.raw("AUTH", "w" * 100_000, "x", session=other)
    login, denied = harness.do("ACL", "LOG")
    rows = [dict(zip(each[::2], each[1::2], strict=True)) for each in (login, denied)]
    assert rows[0][b"username"] == b"w" * 128 + b"... (99872 more bytes)"
    assert rows[1][b"object"] == b"k" * 128 + b"... (99872 more bytes)"
    assert all(len(row[b"client-info"]) < 1500 for row in rows)
    assert b" name=" + b"n" * 128 + b" age=" in rows[1][b"client-info"]
    assert harness.region.acl.log.used_bytes < 5000


def test_codes_of_errors_are_cut() -> None:
    stats = Harness().region.stats
    stats.count_error(b"E" * 100_000 + b" text")
    assert list(stats.errors) == ["E" * 128]
