"""A user of the server: passwords, flags and selectors, and the rules that make them.

Passwords are kept as SHA-256 only. A user object lives as long as the user: sessions hold it, and
a change replaces its contents (:meth:`User.adopt`) after all rules of the change were found good.
There may be many thousands of users, so each is small: one and a half kilobytes with usual rules.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from anabranch.engine.acl.selectors import CommandIndex, Denial, Draft, RuleError
from anabranch.engine.key_extraction import key_places
from anabranch.engine.spec import Command
from anabranch.metrics.holdings import DICT_SLOT_BYTES, NAME_BYTES

_HASH_SIZE = 64
_BAD_HASH = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
    "characters"
)
_NO_SUCH_PASSWORD = "The password you are trying to remove from the user does not exist"  # noqa: S105


_KEPT_BYTES: Final = 2 * (DICT_SLOT_BYTES + NAME_BYTES)
"""A user's places in two tables, and the heads of two texts: the name, and the line that is kept
for snapshots."""

_PARENTHESIS = "A rule inside a selector must not end with a parenthesis"


class UnmatchedParenthesis(RuleError):
    """A selector is opened and never closed; ``rule`` is where it starts."""

    def __init__(self, start: bytes) -> None:
        super().__init__("Unmatched parenthesis in selector definition")
        self.rule = start


def merged_rules(words: Iterable[bytes]) -> list[bytes]:
    """Rules from words: a selector may have been split at its blanks."""
    rules: list[bytes] = []
    parts: list[bytes] = []
    for word in words:
        if parts or (word[:1] == b"(" and word[-1:] != b")"):
            parts.append(word)
            if word[-1:] != b")":
                continue
            word = b" ".join(parts)
            parts.clear()
        rules.append(word)
    if parts:
        raise UnmatchedParenthesis(parts[0])
    return rules


class _UserDraft:
    """The contents of a user while rules change them."""

    def __init__(self, index: CommandIndex, *, all_channels: bool = False) -> None:
        self.index = index
        self.enabled = False
        self.nopass = False
        self.sanitize_payload = True
        self.passwords: dict[bytes, None] = {}
        self.selectors = [Draft(index, all_channels=all_channels)]

    @classmethod
    def of(cls, user: User) -> _UserDraft:
        """A draft with the contents of a user."""
        draft = cls(user.index)
        draft.enabled = user.enabled
        draft.nopass = user.nopass
        draft.sanitize_payload = user.sanitize_payload
        draft.passwords = dict.fromkeys(user.passwords)
        draft.selectors = [Draft.of(selector) for selector in user.selectors]
        return draft

    def apply(self, rule: bytes, *, all_channels: bool) -> None:
        """Apply one rule; :class:`RuleError` if it is invalid."""
        word = rule.lower()
        sign = rule[:1]
        if word in (b"on", b"off"):
            self.enabled = word == b"on"
        elif word in (b"nopass", b"resetpass"):
            self.nopass = word == b"nopass"
            self.passwords.clear()
        elif word in (b"sanitize-payload", b"skip-sanitize-payload"):
            self.sanitize_payload = word == b"sanitize-payload"
        elif sign in (b">", b"#"):
            self.passwords[_hashed(rule)] = None
            self.nopass = False
        elif sign in (b"<", b"!"):
            password = _hashed(rule)
            if password not in self.passwords:
                raise RuleError(_NO_SUCH_PASSWORD)
            del self.passwords[password]
        elif sign == b"(" and rule[-1:] == b")":
            selector = Draft(self.index)
            for part in rule[1:-1].split():
                selector.apply(part)
                if part.endswith(b")"):  # in a file, the selector would end here
                    raise RuleError(_PARENTHESIS)
            self.selectors.append(selector)
        elif word == b"clearselectors":
            del self.selectors[1:]
        elif word == b"reset":
            vars(self).update(vars(_UserDraft(self.index, all_channels=all_channels)))
        elif word:
            self.selectors[0].apply(rule)


class User:
    """A user and its permissions. ``selectors[0]`` is the root selector."""

    __slots__ = (
        "enabled",
        "index",
        "is_unrestricted",
        "name",
        "nopass",
        "passwords",
        "sanitize_payload",
        "selectors",
        "used_bytes",
    )

    def __init__(self, name: bytes, draft: _UserDraft) -> None:
        self.name = name
        self.index = draft.index
        self.enabled = draft.enabled
        self.nopass = draft.nopass
        self.sanitize_payload = draft.sanitize_payload
        self.passwords = tuple(draft.passwords)  # SHA-256 in hexadecimal
        self.selectors = tuple([selector.done() for selector in draft.selectors])
        # every command, key and channel: nothing to check
        self.is_unrestricted = any(selector.is_unrestricted for selector in self.selectors)
        self.used_bytes = self._used_bytes()
        """The memory that it takes, with the line that is kept for snapshots."""

    @classmethod
    def new(cls, name: bytes, index: CommandIndex, *, all_channels: bool) -> User:
        """A user that may do nothing, but hear all channels if that is the default."""
        return cls(name, _UserDraft(index, all_channels=all_channels))

    def changed(self, rules: Iterable[bytes], *, all_channels: bool) -> User:
        """A copy with further rules applied; :class:`RuleError` names the first bad one.

        ``all_channels`` is what ``reset`` gives.
        """
        draft = _UserDraft.of(self)
        for rule in merged_rules(rules):
            try:
                draft.apply(rule, all_channels=all_channels)
            except RuleError as problem:
                problem.rule = rule
                raise
        return User(self.name, draft)

    def adopt(self, other: User) -> None:
        """Take over the contents of another user, but not the name."""
        for name in User.__slots__:
            if name != "name":
                setattr(self, name, getattr(other, name))

    def _used_bytes(self) -> int:
        size = getsizeof(self) + _KEPT_BYTES + len(self.name) + len(self.text())
        size += getsizeof(self.passwords) + sum(map(getsizeof, self.passwords))
        return size + getsizeof(self.selectors) + sum([each.used_bytes for each in self.selectors])

    def matches(self, password: bytes) -> bool:
        """Whether the password is right; the flags are not checked."""
        given = hashlib.sha256(password).hexdigest().encode()
        # Every stored hash is compared, each in constant time.
        return sum([hmac.compare_digest(given, stored) for stored in self.passwords]) > 0

    def judge(self, command: Command, args: list[bytes]) -> Denial | None:
        """Why the user may not run a request, None if a selector allows all of it."""
        if self.is_unrestricted:
            return None
        places = key_places(command, args)
        worst: Denial | None = None
        for selector in self.selectors:
            denial = selector.judge(command, args, places)
            if denial is None:
                return None
            if worst is None or denial[:2] > worst[:2]:
                worst = denial
        return worst

    def may_hear(self, channels: Iterable[bytes], patterns: Iterable[bytes]) -> bool:
        """Whether subscriptions to these are still allowed, each by any selector."""
        return all(
            any(selector.allows_channel(name, is_pattern=is_pattern) for selector in self.selectors)
            for names, is_pattern in ((channels, False), (patterns, True))
            for name in names
        )

    def flag_words(self) -> list[bytes]:
        """The flags as ACL GETUSER lists them."""
        words = [b"on" if self.enabled else b"off"]
        if self.nopass:
            words.append(b"nopass")
        words.append(b"sanitize-payload" if self.sanitize_payload else b"skip-sanitize-payload")
        return words

    def text(self) -> bytes:
        """The user as a line of configuration, ``user alice on ~s* +@stream``."""
        root, *others = self.selectors
        return b" ".join(
            [
                b"user",
                self.name,
                *self.flag_words(),
                *[b"#" + password for password in self.passwords],
                root.text(),
                *[b"(%b)" % selector.text() for selector in others],
            ]
        )


def _hashed(rule: bytes) -> bytes:
    """The password hash of ``>word``, ``<word``, ``#hash`` or ``!hash``."""
    sign, word = rule[:1], rule[1:]
    if sign in (b">", b"<"):
        return hashlib.sha256(word).hexdigest().encode()
    if len(word) != _HASH_SIZE or not all(byte in b"0123456789abcdef" for byte in word):
        raise RuleError(_BAD_HASH)
    return word


def denial_text(denial: Denial, user: User, *, naming: bool) -> bytes:
    """A denial as text; ``naming`` adds the key or channel (ACL DRYRUN)."""
    if denial.reason == "command":
        return b"User %b has no permissions to run the '%b' command" % (user.name, denial.name)
    kind = denial.reason.encode()
    if naming:
        return b"User %b has no permissions to access the '%b' %b" % (
            user.name,
            denial.name,
            kind,
        )
    return b"No permissions to access a " + kind
