"""A selector: a set of commands, key patterns and channel patterns that go together in ACL rules.

Every user has a root selector, made from the rules outside parentheses, and one for each
parenthesised group of rules. A request is allowed when one selector allows all of it. Texts of
rules are kept in the order in which they still matter, as ACL LIST shows them, also those about
commands that only Redis has: they have no effect.

Rules change a :class:`Draft`, in tables. What users keep is a :class:`Selector`, which never
changes and is small: commands are bits of an integer, patterns a tuple, the rules one text.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from sys import getsizeof
from typing import Any, Final, NamedTuple

from anabranch.engine.absent import ABSENT_CONTAINERS, ABSENT_NAMES
from anabranch.engine.spec import Command
from anabranch.errors import AnabranchError
from anabranch.metrics.holdings import NAME_BYTES, OBJECT_BYTES
from anabranch.pattern import PATTERN_BYTES_MAX, Matcher, compile_glob, covers, matcher_bytes

# fmt: off
CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "array", "bitmap",
    "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous",
    "connection", "transaction", "scripting",
    # of the modules that Redis 8 comes with
    "json", "search", "tdigest", "cms", "bloom", "cuckoo", "topk", "timeseries",
)
# fmt: on
"""Every category a rule may name, also those that no command of this server belongs to."""

READ, WRITE = 1, 2
_KEY_USES = {"access": READ, "insert": WRITE, "update": WRITE, "delete": WRITE}
_EVERY_KEY = b"%RW~*"  # as a pattern, which "~*" is not: it does not match the empty key
_PREFIXES = {READ: b"%R~", WRITE: b"%W~", READ | WRITE: b"~"}

# Which arguments are channels: from the first to this one (None: to the last), and whether they
# are patterns. Leaving a channel is always allowed.
_CHANNELS: dict[str, tuple[int | None, bool]] = {
    "publish": (2, False),
    "spublish": (2, False),
    "subscribe": (None, False),
    "ssubscribe": (None, False),
    "psubscribe": (None, True),
}

SYNTAX = "Syntax error"
UNKNOWN_COMMAND = "Unknown command or category name in ACL"
_ALL_KEYS_ALREADY = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have "
    "any effect. Try 'resetkeys' to start with an empty list of patterns"
)
_ALL_CHANNELS_ALREADY = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not "
    "have any effect. Try 'resetchannels' to start with an empty list of channels"
)
_PATTERN_TOO_LONG = f"The pattern is too long: {PATTERN_BYTES_MAX} bytes are allowed"
_FIRST_ARG_OF_SUBCOMMAND = "Allowing first-arg of a subcommand is not supported"


class RuleError(AnabranchError):
    """An invalid ACL rule; the message is the reason in Redis's words."""

    rule = b""  # the whole rule as the client wrote it


class Denial(NamedTuple):
    """Why a request is not allowed. Of several selectors the greatest denial is reported."""

    rank: int  # 1 command, 2 key, 4 channel: how far the request got
    position: int  # index of the argument
    reason: str  # "command", "key" or "channel"
    name: bytes  # the command, key or channel


class CommandIndex:
    """Commands by name and by category, for rules."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.by_name: dict[bytes, Command] = {}
        for command in commands:
            for each in (command, *command.subcommands.values()):
                self.by_name[each.full_name.encode()] = each
        self.names = frozenset(each.full_name for each in self.by_name.values())
        self.bits = {name: 1 << number for number, name in enumerate(sorted(self.names))}
        """A set of commands is the sum of their bits."""

    def knows(self, name: bytes) -> bool:
        """Whether this server or Redis has the command, or the sub-command ``command|word``."""
        return name in self.by_name or name in ABSENT_NAMES

    def is_container(self, name: bytes) -> bool:
        """Whether a command that is known has sub-commands."""
        command = self.by_name.get(name)
        return name in ABSENT_CONTAINERS if command is None else bool(command.subcommands)

    def in_category(self, category: str) -> list[Command]:
        """Commands and sub-commands of a category, in the order of the table."""
        return [each for each in self.by_name.values() if category in each.categories]


@lru_cache(maxsize=8)
def index_of(commands: tuple[Command, ...]) -> CommandIndex:
    """The index of these commands; it is shared, because it never changes."""
    return CommandIndex(commands)


def _key_rule(pattern: bytes, uses: int) -> bytes:
    if pattern == b"*" and uses == READ | WRITE:
        return _EVERY_KEY
    return _PREFIXES[uses] + pattern


def has_blanks(text: bytes) -> bool:
    """Whether a name or pattern has blanks or NUL bytes, which rules cannot carry."""
    return any(byte in b" \t\n\v\f\r\0" for byte in text)


class Draft:
    """A selector while rules change it."""

    def __init__(self, index: CommandIndex, *, all_channels: bool = False) -> None:
        self.index = index
        self.all_keys = False
        self.keys: dict[bytes, int] = {}  # pattern -> READ | WRITE
        self.all_channels = all_channels
        self.channels: dict[bytes, None] = {}
        self.matchers: dict[bytes, Matcher] = {}  # of the patterns of keys and channels
        self.all_commands = False
        self.future_commands = False  # +@all came last: commands are allowed unless excluded
        self.allowed: set[str] = set()
        self.first_args: dict[str, list[bytes]] = {}  # command -> its allowed first arguments
        self.command_rules: list[bytes] = []

    @classmethod
    def of(cls, selector: Selector) -> Draft:
        """A draft with the rules of a selector."""
        draft = cls(selector.index, all_channels=selector.all_channels)
        draft.all_keys = selector.all_keys
        for pattern, uses, matcher in selector.key_patterns:
            draft.keys[pattern] = uses
            draft.matchers[pattern] = matcher
        for pattern, matcher in selector.channel_patterns:
            draft.channels[pattern] = None
            draft.matchers[pattern] = matcher
        draft.all_commands = selector.all_commands
        draft.future_commands = selector.future_commands
        draft.allowed = selector.allowed
        draft.first_args = {name: list(words) for name, words in selector.first_args.items()}
        draft.command_rules = selector.command_rules.split()
        return draft

    def done(self) -> Selector:
        """The selector that the rules have made."""
        return Selector(self)

    # -- rules --------------------------------------------------------------------------------

    def apply(self, rule: bytes) -> None:
        """Apply one rule; :class:`RuleError` if it is invalid."""
        if has_blanks(rule):
            raise RuleError(SYNTAX)  # in a file it would be several rules
        word = rule.lower()
        sign = rule[:1]
        if word in (b"allkeys", b"~*"):
            self.all_keys = True
            self._forget(self.keys)
        elif word == b"resetkeys":
            self.all_keys = False
            self._forget(self.keys)
        elif word in (b"allchannels", b"&*"):
            self.all_channels = True
            self._forget(self.channels)
        elif word == b"resetchannels":
            self.all_channels = False
            self._forget(self.channels)
        elif word in (b"allcommands", b"+@all"):
            self._all_commands(allow=True)
        elif word in (b"nocommands", b"-@all"):
            self._all_commands(allow=False)
        elif sign in (b"~", b"%"):
            self._add_keys(rule)
        elif sign == b"&":
            self._add_channels(rule[1:])
        elif sign in (b"+", b"-"):
            if word[1:2] == b"@":
                self._category(word[2:], allow=sign == b"+")
            elif sign == b"+" and b"|" in word:
                self._allow_part(rule, word[1:])
            else:
                self._command(word[1:], allow=sign == b"+")
        else:
            raise RuleError(SYNTAX)

    def _all_commands(self, *, allow: bool) -> None:
        self.all_commands = self.future_commands = allow
        self.allowed = set(self.index.names) if allow else set()
        self.first_args.clear()
        self.command_rules.clear()

    def _add_keys(self, rule: bytes) -> None:
        if self.all_keys:
            raise RuleError(_ALL_KEYS_ALREADY)
        uses = READ | WRITE
        pattern = rule[1:]
        if rule[:1] == b"%":
            letters, tilde, pattern = rule[1:].partition(b"~")
            letters = letters.upper()
            if not tilde or letters not in (b"R", b"W", b"RW", b"WR"):
                raise RuleError(SYNTAX)
            uses = (READ if b"R" in letters else 0) | (WRITE if b"W" in letters else 0)
        self._learn(pattern)
        self.keys[pattern] = self.keys.get(pattern, 0) | uses

    def _add_channels(self, pattern: bytes) -> None:
        if self.all_channels:
            raise RuleError(_ALL_CHANNELS_ALREADY)
        self._learn(pattern)
        self.channels[pattern] = None

    def _forget(self, patterns: dict[bytes, Any]) -> None:
        patterns.clear()
        self.matchers = {
            pattern: matcher
            for pattern, matcher in self.matchers.items()
            if pattern in self.keys or pattern in self.channels
        }

    def _learn(self, pattern: bytes) -> None:
        if len(pattern) > PATTERN_BYTES_MAX:
            raise RuleError(_PATTERN_TOO_LONG)
        self.matchers[pattern] = compile_glob(pattern)

    def _category(self, category: bytes, *, allow: bool) -> None:
        name = category.decode("latin-1")
        if name not in CATEGORIES:
            raise RuleError(UNKNOWN_COMMAND)
        self._remember(b"@" + category, allow=allow)
        for command in self.index.in_category(name):
            self._set(command, allow=allow)

    def _command(self, name: bytes, *, allow: bool) -> None:
        if not self.index.knows(name):
            raise RuleError(UNKNOWN_COMMAND)
        command = self.index.by_name.get(name)
        if command is not None:
            self._set(command, allow=allow)
        self._remember(name, allow=allow)

    def _allow_part(self, rule: bytes, name: bytes) -> None:
        """``+command|word``: a sub-command, or a command with this first argument only."""
        owner, _, word = name.rpartition(b"|")
        if not self.index.knows(owner):
            raise RuleError(UNKNOWN_COMMAND)
        if b"|" in owner:
            raise RuleError(_FIRST_ARG_OF_SUBCOMMAND)
        if not word:
            raise RuleError(SYNTAX)
        if self.index.is_container(owner):
            self._command(name, allow=True)
            return
        command = self.index.by_name.get(owner)
        if command is not None:
            words = self.first_args.setdefault(command.full_name, [])
            if word not in words:
                words.append(word)
        self._remember(name, allow=True)

    def _set(self, command: Command, *, allow: bool) -> None:
        names = [command.full_name, *[sub.full_name for sub in command.subcommands.values()]]
        self.first_args.pop(command.full_name, None)
        if allow:
            self.allowed.update(names)
        else:
            self.allowed.difference_update(names)
            self.all_commands = False

    def _remember(self, name: bytes, *, allow: bool) -> None:
        """Keep the text of a rule, and drop the earlier ones that it overrules."""
        self.command_rules = [
            rule
            for rule in self.command_rules
            if rule[1:] != name and not rule[1:].startswith(name + b"|")
        ]
        self.command_rules.append((b"+" if allow else b"-") + name)


_NO_FIRST_ARGS: Final[dict[str, tuple[bytes, ...]]] = {}


@lru_cache(maxsize=64)
def _needed(flags: str) -> int:
    """The uses of a key that the flags of its specification name, as bits."""
    needed = 0
    for flag in flags.split():
        needed |= _KEY_USES.get(flag, 0)
    return needed


class Selector:
    """The permissions of one group of rules."""

    __slots__ = (
        "all_channels",
        "all_commands",
        "all_keys",
        "channel_patterns",
        "command_bits",
        "command_rules",
        "first_args",
        "future_commands",
        "index",
        "key_patterns",
    )

    def __init__(self, draft: Draft) -> None:
        self.index = draft.index
        self.all_keys = draft.all_keys
        self.key_patterns = tuple(
            [(pattern, uses, draft.matchers[pattern]) for pattern, uses in draft.keys.items()]
        )
        self.all_channels = draft.all_channels
        self.channel_patterns = tuple(
            [(pattern, draft.matchers[pattern]) for pattern in draft.channels]
        )
        self.all_commands = draft.all_commands
        self.future_commands = draft.future_commands
        bits = self.index.bits
        self.command_bits = sum([bits[name] for name in draft.allowed])
        words = {name: tuple(words) for name, words in draft.first_args.items()}
        self.first_args = words or _NO_FIRST_ARGS
        self.command_rules = b" ".join(draft.command_rules)

    @property
    def allowed(self) -> set[str]:
        """The names of the commands that are allowed with any arguments."""
        return {name for name, bit in self.index.bits.items() if self.command_bits & bit}

    @property
    def is_unrestricted(self) -> bool:
        """Whether everything is allowed."""
        return self.all_commands and self.all_keys and self.all_channels

    @property
    def used_bytes(self) -> int:
        """The memory that the selector takes with its rules, in bytes."""
        size = getsizeof(self) + getsizeof(self.command_bits) + getsizeof(self.command_rules)
        size += getsizeof(self.key_patterns) + getsizeof(self.channel_patterns)
        for key_row in self.key_patterns:
            size += getsizeof(key_row) + NAME_BYTES + len(key_row[0]) + matcher_bytes(key_row[2])
        for row in self.channel_patterns:
            size += getsizeof(row) + NAME_BYTES + len(row[0]) + matcher_bytes(row[1])
        if self.first_args:
            size += getsizeof(self.first_args)
        for words in self.first_args.values():
            size += getsizeof(words) + sum(map(getsizeof, words))
        return size + OBJECT_BYTES

    # -- judging ------------------------------------------------------------------------------

    def judge(
        self, command: Command, args: list[bytes], places: list[tuple[int, str]]
    ) -> Denial | None:
        """Why this selector does not allow a request, None if it does.

        ``places`` are the request's keys, as ``key_extraction.key_places`` finds them.
        """
        if not self._allows_command(command, args):
            return Denial(1, 0, "command", command.full_name.encode())
        if not self.all_keys:
            for position, flags in places:
                if not self.allows_key(args[position], flags):
                    return Denial(2, position, "key", args[position])
        if not self.all_channels and command.name in _CHANNELS:
            stop, are_patterns = _CHANNELS[command.name]
            for position, channel in enumerate(args[1:stop], 1):
                if not self.allows_channel(channel, is_pattern=are_patterns):
                    return Denial(4, position, "channel", channel)
        return None

    def _allows_command(self, command: Command, args: list[bytes]) -> bool:
        bit = self.index.bits.get(command.full_name, 0)
        if self.all_commands or command.is_noauth or self.command_bits & bit:
            return True
        words = self.first_args.get(command.full_name)
        return words is not None and len(args) > 1 and args[1].lower() in words

    def allows_key(self, key: bytes, flags: str) -> bool:
        """Whether a key may be used as the flags of its specification say.

        With the flag ``pattern`` it stands for all keys that it matches: a rule must cover it.
        """
        needed = _needed(flags)
        is_pattern = "pattern" in flags
        for pattern, uses, matches in self.key_patterns:
            if uses & needed == needed and (covers(pattern, key) if is_pattern else matches(key)):
                return True
        return False

    def allows_channel(self, channel: bytes, *, is_pattern: bool) -> bool:
        """Whether a channel may be used; a pattern must be in the rules literally."""
        if self.all_channels:
            return True
        if is_pattern:
            return any(channel == pattern for pattern, _ in self.channel_patterns)
        return any(matches(channel) for _, matches in self.channel_patterns)

    # -- in words -----------------------------------------------------------------------------

    def commands_text(self) -> bytes:
        """The command rules, ``-@all +@stream -xdel``."""
        base = b"+@all" if self.future_commands else b"-@all"
        return base + b" " + self.command_rules if self.command_rules else base

    def keys_text(self) -> bytes:
        """The key patterns, ``%R~r* ~s*``; empty when there are none."""
        if self.all_keys:
            return b"~*"
        return b" ".join([_key_rule(pattern, uses) for pattern, uses, _ in self.key_patterns])

    def channels_text(self) -> bytes:
        """The channel patterns, ``&c*``; empty when there are none."""
        if self.all_channels:
            return b"&*"
        return b" ".join([b"&" + pattern for pattern, _ in self.channel_patterns])

    def text(self) -> bytes:
        """The selector as rules that make the same selector again."""
        channels = [self.channels_text()]
        if not self.all_channels:
            channels.insert(0, b"resetchannels")
        return b" ".join(
            [part for part in (self.keys_text(), *channels, self.commands_text()) if part]
        )
