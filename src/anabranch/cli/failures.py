"""Failures of a command as one line that says what to do."""

from __future__ import annotations

import re
import sys
from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from anabranch.cli.address import Address


class Failed(click.ClickException):
    """The command cannot continue: exit code 1, and the text on one line."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the text on standard error."""
        print(f"anabranch: {self.message}", file=file or sys.stderr)


_CONNECTING: Final = re.compile(r"^Error -?\d+ connecting to \S+ ")
"""The text that redis-py puts before the reason of the system; the address is named anyway."""

_CURES: Final = {
    "new to its cluster": "its log says more",  # before what another region is quoted with
    "Authentication required": "give -a PASSWORD, and --user NAME, or set REDISCLI_AUTH",
    "invalid username-password pair": "check -a, --user and REDISCLI_AUTH",
    "has no permissions": "ACL SETUSER on the server allows more, --user names another user",
    "Connection refused": "no server listens there, -h and -p name another one",
    "Name or service not known": "-h names another host",
    "No such file or directory": "no server has this socket, -s names another one",
    "timed out": "the server does not answer, --timeout waits longer",
    "DB index is out of range": "the setting 'databases' of the server is their number",
    "unknown command 'AB.": "this is another server, and the command needs Anabranch",
}

_CURES_OF_OTHER: Final = _CURES | {
    "Authentication required": "put user:password@ into its URL, or set ANABRANCH_OTHER_AUTH",
    "invalid username-password pair": "check its URL and ANABRANCH_OTHER_AUTH",
    "has no permissions": "ACL SETUSER on the server allows more, its URL names the user",
    "Connection refused": "no server listens where the URL says",
    "Name or service not known": "check the host of the URL",
    "No such file or directory": "no server has the socket of the URL",
}
"""For the side of a transfer that a URL names."""


def message(problem: Exception, address: Address | None = None) -> str:
    """The error and, if there is one, its remedy, on one line."""
    cures = _CURES_OF_OTHER if address is not None and address.is_other else _CURES
    reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
    text = " ".join(reason.split()) or type(problem).__name__
    text = _CONNECTING.sub("cannot connect: ", text)
    cure = next((cure for sign, cure in cures.items() if sign in text), None)
    return text if cure is None else f"{text.rstrip('.')}: {cure}"
