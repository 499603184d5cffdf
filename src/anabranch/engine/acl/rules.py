"""All users of a server: who may come in, and whether a request is allowed.

Sessions hold :class:`~anabranch.engine.acl.users.User` objects themselves, so a change of a user
reaches its connections at once. Whoever changes or removes users through the registry tells the
sessions (``acl.py`` does). Nothing here reads time or files: denials are noted with what the
context says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from anabranch.config.settings import Settings
from anabranch.engine import texts
from anabranch.engine.acl.log import AclLog, LoggedDenial
from anabranch.engine.acl.selectors import UNKNOWN_COMMAND, Denial, RuleError, has_blanks, index_of
from anabranch.engine.acl.users import UnmatchedParenthesis, User, denial_text
from anabranch.engine.client_list import describe_briefly
from anabranch.engine.session import Session
from anabranch.engine.spec import Command
from anabranch.errors import CommandError, ConfigError
from anabranch.metrics.stats import Stats

DEFAULT_USER = b"default"

_EVERYTHING = (b"on", b"nopass", b"allkeys", b"allchannels", b"allcommands")
_BAD_NAME = "Usernames can't contain spaces or null characters"
_NO_NAME = "Usernames can't be empty"
UNCHANGED = (
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
)
"""The end of an error of ACL LOAD."""

_CHANGED_SINCE = (
    b"NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC "
    b"call. This command is no longer allowed for the following reason: "
)
_CHANGES = {
    "command": b"no permission to execute the command or subcommand",
    "key": b"no permission to touch the specified keys",
    "channel": b"no permission to access one of the channels used as arguments to the command",
}


class Asked(Protocol):
    """The properties of a request in addition to its words."""

    session: Session
    settings: Settings
    stats: Stats
    now_ms: int
    in_exec: bool
    """Whether EXEC or a script runs it."""
    in_script: bool
    """Whether a script calls it."""


class AclRegistry:
    """Users by name, and the log of denials.

    ``commands`` is the table that rules are about; None is the server's own.
    ``all_channels`` is the setting ``acl-pubsub-default``: whether a new user hears everything.
    """

    def __init__(self, requirepass: str, commands: Iterable[Command]) -> None:
        self.index = index_of(tuple(commands))
        self.users: dict[bytes, User] = {}
        self.used_bytes = 0
        """What the users take."""
        self.log = AclLog()
        self.all_channels = False
        self.configured: dict[bytes, bytes] = {}
        """Users that a line of the configuration made, as they were then, in the form of lines."""
        self.certain: frozenset[bytes] | None = None
        """While users of the log are being loaded, those that it cannot change; None: all."""
        self.before_keeping: Callable[[], object] = int
        """Call this before a user is kept in the log."""
        self.setuser(DEFAULT_USER, _EVERYTHING)
        self.set_default_password(requirepass)

    # -- coming in ----------------------------------------------------------------------------

    def initial_user(self) -> User | None:
        """The user of a new connection: the default user, None if that needs a password."""
        if self.certain is not None and DEFAULT_USER not in self.certain:
            return None
        user = self.users[DEFAULT_USER]
        return user if user.enabled and user.nopass else None

    def expect(self, name: bytes = DEFAULT_USER) -> None:
        """Raise LOADING if what is known of a user may change when the log is loaded."""
        if self.certain is not None and name not in self.certain:
            raise CommandError(texts.LOADING)

    def authenticate(self, name: bytes, password: bytes) -> User | None:
        """The user of this name and password; None for any mistake, or if it is disabled."""
        self.expect(name)
        user = self.users.get(name)
        if user is not None and user.enabled and (user.nopass or user.matches(password)):
            return user
        return None

    def log_failed_login(self, asked: Asked, name: bytes, args: list[bytes]) -> None:
        """Log and count an AUTH or HELLO with a wrong name or password."""
        asked.stats.acl_denied_auth += 1
        self._log(asked, "auth", args[0], name, args[0].lower().decode("latin-1"))

    def set_default_password(self, password: str) -> None:
        """Apply ``requirepass``; with an empty password the default user needs none."""
        secret = password.encode("utf-8", "surrogateescape")
        self.setuser(DEFAULT_USER, (b"resetpass", b">" + secret) if secret else (b"nopass",))

    # -- asking -------------------------------------------------------------------------------

    def check(self, asked: Asked, command: Command, args: list[bytes]) -> None:
        """Raise NOPERM unless the user may run this request; log it if not.

        The dispatcher asks before a request runs or is queued, EXEC asks again for each queued
        request (``asked.in_exec``): rules may have changed in between.
        """
        user = asked.session.user
        assert user is not None, "only who is authenticated gets here"
        denial = user.judge(command, args)
        if denial is None:
            return
        _count(asked.stats, denial)
        self._log(asked, denial.reason, denial.name, user.name, command.full_name)
        if asked.in_script:
            reason = denial_text(denial, user, naming=False)
            raise CommandError(b"ERR ACL failure in script: " + reason)
        if asked.in_exec:
            raise CommandError(_CHANGED_SINCE + _CHANGES[denial.reason])
        raise CommandError(b"NOPERM " + denial_text(denial, user, naming=False))

    def _log(self, asked: Asked, reason: str, name: bytes, user: bytes, running: str) -> None:
        queueing = asked.session.transaction is not None
        place = "multi" if asked.in_exec or queueing else "toplevel"
        self.log.record(
            LoggedDenial(reason, "lua" if asked.in_script else place, name, user),
            describe_briefly(asked.session, running, asked.now_ms),
            asked.now_ms,
            asked.settings.acllog_max_len,
        )

    # -- changing -----------------------------------------------------------------------------

    def setuser(self, name: bytes, rules: Iterable[bytes]) -> User:
        """Create or change a user by all rules, or by none if one is invalid; returns the user."""
        if has_blanks(name):
            raise CommandError("ERR " + _BAD_NAME)
        if not name:
            raise CommandError("ERR " + _NO_NAME)
        user = self.users.get(name)
        base = user or self._new(name)
        try:
            changed = base.changed(rules, all_channels=self.all_channels)
        except UnmatchedParenthesis as problem:
            raise CommandError(
                b"ERR Unmatched parenthesis in acl selector starting at '%b'." % problem.rule
            ) from None
        except RuleError as problem:
            raise CommandError(
                b"ERR Error in ACL SETUSER modifier '%b': %b"
                % (problem.rule, str(problem).encode())
            ) from None
        return self._keep(changed)

    def deluser(self, name: bytes) -> User | None:
        """Remove a user; returns it, because its connections must be closed, or None."""
        assert name != DEFAULT_USER
        user = self.users.pop(name, None)
        self.used_bytes -= 0 if user is None else user.used_bytes
        return user

    def _keep(self, changed: User) -> User:
        """Make a user what ``changed`` is; it keeps its object if it is known."""
        user = self.users.get(changed.name)
        self.used_bytes += changed.used_bytes
        if user is None:
            self.users[changed.name] = changed
            return changed
        self.used_bytes -= user.used_bytes
        user.adopt(changed)
        return user

    # -- files --------------------------------------------------------------------------------

    def lines(self) -> list[bytes]:
        """Every user as a line of configuration, by name."""
        return [user.text() for _, user in sorted(self.users.items())]

    def load_user(self, words: list[str]) -> None:
        """A ``user`` line of the configuration: the name and its rules."""
        name, *rules = [word.encode("utf-8", "surrogateescape") for word in words]
        if has_blanks(name) or not name:
            raise ConfigError(_BAD_NAME if name else _NO_NAME)
        if name in self.configured:
            raise ConfigError(
                "Duplicate user found. A user can only be defined once in config files"
            )
        try:
            loaded = self._new(name).changed(rules, all_channels=self.all_channels)
        except RuleError as problem:
            raise ConfigError(_reason(problem)) from None
        self.configured[name] = loaded.text()
        self._keep(loaded)

    def await_kept(self, settings: Settings) -> None:
        """There are users in the log, which are not loaded yet: :meth:`load_kept` follows."""
        self.certain = _configured(settings)

    def load_kept(self, lines: Iterable[bytes], settings: Settings) -> None:
        """Users that commands had set before the restart, unless the configuration has them."""
        configured = _configured(settings)
        kept = [line for line in lines if line.split()[1] not in configured]
        loaded, problems = self._read(kept, "log")
        if problems:
            raise ConfigError(" ".join(problems))
        for user in loaded.values():
            self._keep(user)
        self.certain = None

    def load(self, text: str, path: str = "aclfile") -> list[User]:
        """Replace all users by those of an ACL file, or none if a line is wrong.

        Users keep their object if they keep their name. Returns those that are gone.
        """
        loaded, problems = self._read(text.encode("utf-8", "surrogateescape").split(b"\n"), path)
        if problems:
            raise CommandError(f"ERR {' '.join(problems)} {UNCHANGED}")
        if DEFAULT_USER not in loaded:
            loaded[DEFAULT_USER] = self._new(DEFAULT_USER).changed(
                _EVERYTHING, all_channels=self.all_channels
            )
        gone = [user for name, user in self.users.items() if name not in loaded]
        for user in loaded.values():
            self._keep(user)
        for user in gone:
            self.deluser(user.name)
        return gone

    def _read(self, lines: Iterable[bytes], path: str) -> tuple[dict[bytes, User], list[str]]:
        loaded: dict[bytes, User] = {}
        problems = []
        for number, line in enumerate(lines, 1):
            # Other blanks than spaces stay in words, and no name or rule may have them.
            words = [word for word in line.strip(b" \t\r\n").split(b" ") if word]
            if not words:
                continue
            if words[0] != b"user" or len(words) < 2:
                problems.append(
                    f"{path}:{number} should start with user keyword followed by the username."
                )
                continue
            name = words[1]
            if has_blanks(name):
                problems.append(f"{path}:{number}: {_BAD_NAME}.")
                continue
            if name in loaded:
                problems.append(f"WARNING: Duplicate user '{_shown(name)}' found on line {number}.")
                continue
            known = self.users.get(name)
            if known is not None and known.text() == line:  # two of each would take twice as much
                loaded[name] = known
                continue
            loaded[name] = self._new(name)
            try:
                loaded[name] = loaded[name].changed(words[2:], all_channels=self.all_channels)
            except RuleError as problem:
                problems.append(f"{path}:{number}: {_reason(problem)}.")
        return loaded, problems

    def _new(self, name: bytes) -> User:
        return User.new(name, self.index, all_channels=self.all_channels)


def _configured(settings: Settings) -> frozenset[bytes]:
    """The users that the configuration decides, whatever the log has."""
    names = {words[0].encode("utf-8", "surrogateescape") for words in settings.user}
    return frozenset(names | {DEFAULT_USER} if settings.requirepass else names)


def _reason(problem: RuleError) -> str:
    """The error in a line, without text that may be a password."""
    reason = str(problem)
    if reason == UNKNOWN_COMMAND:
        return f"Error in applying operation '{_shown(problem.rule)}': {reason}"
    return reason


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _count(stats: Stats, denial: Denial) -> None:
    if denial.reason == "command":
        stats.acl_denied_cmd += 1
    elif denial.reason == "key":
        stats.acl_denied_key += 1
    else:
        stats.acl_denied_channel += 1
