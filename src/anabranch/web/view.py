"""What a user may see: the rules are those of the commands that show the same."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from anabranch.engine.acl.users import User
from anabranch.region.region import Region
from anabranch.web.answers import Problem


def may_see(region: Region, user: User) -> Callable[[bytes], bool]:
    """Whether a user may see a stream's figures: whether ``XINFO STREAM key`` is allowed."""
    if user.is_unrestricted:
        return lambda _key: True
    command = region.dispatcher.entries[b"xinfo"].subcommands[b"stream"].command
    return lambda key: user.judge(command, [b"XINFO", b"STREAM", key]) is None


def may_run(region: Region, user: User, *words: bytes) -> bool:
    """Whether the rules of a user allow a command."""
    entry = region.dispatcher.find(list(words))
    return entry is not None and user.judge(entry.command, list(words)) is None


def require(region: Region, user: User, *words: bytes) -> None:
    """Raise 403 unless the rules of a user allow a command."""
    if not may_run(region, user, *words):
        text = b" ".join(words).decode("utf-8", "replace")
        raise Problem(HTTPStatus.FORBIDDEN, "no_permission", f"the user may not run {text}")
