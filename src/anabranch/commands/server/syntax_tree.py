"""A command's syntax text as the tree of arguments that COMMAND DOCS answers.

The rows describe their arguments in the notation of the manual pages::

    key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id>
    field value [field value ...]

Brackets are optional, angle brackets group, bars separate alternatives; a bracket that ends in
``...`` repeats what stands before it. Words in capitals are tokens, and so are signs like ``*``;
a token takes the names behind it, up to the next token or bracket, or the ``<...>`` right behind
it. redis-cli makes its hints from the tree.
"""

from __future__ import annotations

import re

from msgspec import Struct, field
from msgspec.structs import replace

_LEXEME = re.compile(r"\.\.\.|[\[\]<>|]|[^\s\[\]<>|]+")
_TOKEN = re.compile(r"[A-Z][A-Z0-9_-]*|[^A-Za-z]+")
_SIGNS = {"*": "auto-id", "=": "equal", "~": "approximately", "$": "last-id"}
# fmt: off
_INTEGERS = frozenset({
    "bits", "client-id", "count", "cursor", "db", "destination-db", "entries", "entries-added",
    "entries-read", "frequency", "index", "index1", "index2", "maxcount", "maxsize",
    "milliseconds", "min-idle-time", "ms", "numids", "numkeys", "numlocal", "numreplicas",
    "protover", "seconds", "start-index", "stop", "timeout", "ttl", "version",
})
# fmt: on
_TIMES = frozenset({"unix-time-seconds", "unix-time-milliseconds"})
_KEYS = frozenset({"key", "newkey", "source", "destination"})


class Argument(Struct, frozen=True):
    """One argument, or a group of them, in the words of COMMAND DOCS."""

    name: str
    kind: str  # "key", "string", "integer", "pure-token", "oneof", "block" ...
    token: str = ""
    optional: bool = False
    multiple: bool = False
    multiple_token: bool = False  # the token is repeated too
    parts: tuple[Argument, ...] = field(default=())


def parse_syntax(text: str) -> list[Argument]:
    """The arguments of a syntax text, in order; empty for no text."""
    if not text:
        return []
    options, repeats = _SyntaxReader(_LEXEME.findall(text)).alternatives("")
    assert not repeats, f"what repeats stands in brackets: {text}"
    return options[0] if len(options) == 1 else [_grouped(options)]


class _SyntaxReader:
    def __init__(self, lexemes: list[str]) -> None:
        self._lexemes = lexemes
        self._at = 0

    def _peek(self) -> str:
        return self._lexemes[self._at] if self._at < len(self._lexemes) else ""

    def _skip(self, lexeme: str) -> bool:
        if self._peek() == lexeme:
            self._at += 1
            return True
        return False

    def _sequence(self) -> list[Argument]:
        """Arguments up to a closing bracket, a bar, ``...`` or the end."""
        found: list[Argument] = []
        while self._peek() not in ("", "]", ">", "|", "..."):
            lexeme = self._lexemes[self._at]
            if lexeme == "[":
                self._bracket(found)
            elif lexeme == "<":
                found.append(self._choice())
            else:
                self._at += 1
                if _TOKEN.fullmatch(lexeme):
                    found.append(self._token(lexeme))
                else:
                    found.append(_plain(lexeme))
        return found

    def _choice(self) -> Argument:
        """Read what stands between ``<`` and ``>``."""
        self._at += 1
        return _grouped(self.alternatives(">")[0])

    def alternatives(self, closing: str) -> tuple[list[list[Argument]], bool]:
        """What stands up to the closing bracket or the end, and whether ``...`` ends it."""
        options = [self._sequence()]
        repeats = self._skip("...")
        while self._skip("|"):
            options.append(self._sequence())
            repeats = self._skip("...") or repeats
        closed = self._skip(closing) or not (closing or self._peek())
        assert closed, f"unbalanced syntax: {' '.join(self._lexemes)}"
        return options, repeats

    def _bracket(self, found: list[Argument]) -> None:
        """``[...]``: optional arguments, or the repetition of the last ones found."""
        self._at += 1
        options, repeats = self.alternatives("]")
        again = options[0]
        if repeats and again and found[-len(again) :] == again:
            del found[-len(again) :]
            argument = _block(again)
            found.append(replace(argument, multiple=True, multiple_token=argument.token != ""))
        else:
            argument = _grouped(options)
            found.append(replace(argument, optional=True, multiple=argument.multiple or repeats))

    def _token(self, token: str) -> Argument:
        """A token with the names it takes."""
        if self._peek() == "<":
            return replace(self._choice(), token=token)
        taken: list[Argument] = []
        while True:
            lexeme = self._peek()
            if lexeme == "[" and taken and self._repeats(taken):
                self._bracket(taken)
            elif lexeme in ("", "[", "]", "<", ">", "|", "...") or _TOKEN.fullmatch(lexeme):
                break
            else:
                self._at += 1
                taken.append(_plain(lexeme))
        if not taken:
            return Argument(_SIGNS.get(token, token.lower()), "pure-token", token)
        if len(taken) == 1:
            return replace(taken[0], token=token)
        return Argument(token.lower(), "block", token, parts=tuple(taken))

    def _repeats(self, taken: list[Argument]) -> bool:
        """Whether the bracket that comes repeats the last argument taken."""
        following = self._lexemes[self._at + 1 : self._at + 4]
        return following == [taken[-1].name, "...", "]"]


def _plain(name: str) -> Argument:
    if name in _KEYS:
        kind = "key"
    elif name in _TIMES:
        kind = "unix-time"
    elif name in _INTEGERS:
        kind = "integer"
    elif name == "pattern":
        kind = "pattern"
    else:
        kind = "string"
    return Argument(name, kind)


def _block(arguments: list[Argument]) -> Argument:
    """Arguments that belong together as one."""
    if len(arguments) == 1:
        return arguments[0]
    names = [each.name for each in arguments]
    name = "-".join(names) if len(names) == 2 else f"{names[0]}-options"
    return Argument(name, "block", parts=tuple(arguments))


def _grouped(options: list[list[Argument]]) -> Argument:
    """Alternatives as one argument."""
    choices = [_block(option) for option in options]
    if len(choices) == 1:
        return choices[0]
    name = "-or-".join([each.name for each in choices[:2]])
    return Argument(name, "oneof", parts=tuple(choices))
