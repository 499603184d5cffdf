"""The error for a command that does not exist, with a word about those that Redis has."""

from __future__ import annotations

from anabranch.engine import texts
from anabranch.engine.absent import ABSENT
from anabranch.errors import CommandError

_SHOWN_BYTES = 128

_PAGE = "docs/commands.md lists its commands"


def unknown_command(args: list[bytes]) -> CommandError:
    """The error for a request whose first word is no command.

    The words are Redis's: the name and the first arguments, cut at about 128 bytes. If the name is
    a command of Redis, one sentence follows, so that users do not look for a mistake of theirs.
    """
    shown = b""
    for arg in args[1:]:
        if len(shown) >= _SHOWN_BYTES:
            break
        shown += b"'%b' " % texts.shown(arg)[: _SHOWN_BYTES - len(shown)]
    text = b"ERR unknown command '%b'" % texts.shown(args[0])[:_SHOWN_BYTES]
    if len(args) > 1:
        text += b", with args beginning with: " + shown
    sentence = hint(args[0])
    if sentence:
        text = text.rstrip(b" ") + b" " + sentence
    return CommandError(text)


def hint(name: bytes) -> bytes:
    """The sentence for a command that Redis has and this server has not; empty for all others."""
    family = ABSENT.get(name.lower().decode("latin-1"))
    if family is None:
        return b""
    what = f"has no {family}" if family else "does not have every command of Redis"
    return f"(Anabranch is a stream server and {what}; {_PAGE})".encode()
