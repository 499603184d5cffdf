"""The types a setting can have: text to value, value to text, and what is allowed.

``parse`` takes the words after a directive (one for most) and raises :class:`ValueError` with the
sentence that CONFIG SET shows; ``format`` gives the text of CONFIG GET; ``allowed`` describes the
allowed values in words.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

LONG_MAX = (1 << 63) - 1
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_MEMORY = re.compile(r"([0-9]+)(b|k|kb|m|mb|g|gb)?", re.IGNORECASE | re.ASCII)
_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1 << 10,
    "m": 1000**2,
    "mb": 1 << 20,
    "g": 1000**3,
    "gb": 1 << 30,
}


class Kind(ABC):
    """The type of a setting: which values it can have."""

    many_words = False
    """Whether a line may contain more than one word."""

    repeats = False
    """Whether the values of several lines of one name are added."""

    alone: str | None = None
    """The value of the setting if the command line names it without a value."""

    @abstractmethod
    def parse(self, words: Sequence[str]) -> Any:
        """The value, or ValueError with Redis's sentence."""

    def format(self, value: Any) -> str:
        """The text of CONFIG GET."""
        return str(value)

    def lines(self, value: Any) -> list[list[str]]:
        """The words of each line that a configuration file needs for this value."""
        return [[self.format(value)]]

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What values are allowed, in words, for error texts and docs; often a plain attribute."""


def _one(words: Sequence[str]) -> str:
    if len(words) != 1:
        raise ValueError("wrong number of arguments")
    return words[0]


class Integer(Kind):
    """A whole number with bounds."""

    def __init__(self, low: int = 0, high: int = LONG_MAX) -> None:
        self.low = low
        self.high = high

    def parse(self, words: Sequence[str]) -> int:
        """Canonical decimals only, as in Redis."""
        text = _one(words)
        value = int(text) if _INTEGER.fullmatch(text) and text != "-0" else LONG_MAX + 1
        if not -LONG_MAX - 1 <= value <= LONG_MAX:
            raise ValueError("argument couldn't be parsed into an integer")
        return _bounded(value, self.low, self.high)

    @property
    def allowed(self) -> str:
        """The bounds, as error texts and docs name them."""
        if self.high == LONG_MAX:
            return f"a whole number from {self.low}"
        return f"a whole number from {self.low} to {self.high}"


def _bounded(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError(f"argument must be between {low} and {high} inclusive")
    return value


class Memory(Kind):
    """Bytes, with units: 1k is 1000, 1kb is 1024."""

    def __init__(self, low: int = 0, *, percent: bool = False) -> None:
        self.low = low
        self.percent = percent

    def parse(self, words: Sequence[str]) -> int:
        """Bytes; a percentage, where allowed, is a negative number."""
        text = _one(words)
        if self.percent and re.fullmatch("[0-9]{1,3}%", text):
            return -int(text[:-1])
        match = _MEMORY.fullmatch(text)
        if match is None:
            what = "memory or percent value" if self.percent else "memory value"
            raise ValueError(f"argument must be a {what}")
        return _bounded(int(match[1]) * _UNITS[(match[2] or "").lower()], self.low, LONG_MAX)

    def format(self, value: Any) -> str:
        """The value in plain bytes, without a unit."""
        return f"{-value}%" if value < 0 else str(value)

    @property
    def allowed(self) -> str:
        """The units that a size may have."""
        form = "bytes, or a number with k, kb, m, mb, g or gb"
        if self.percent:
            form += ", or a percentage"
        return f"{form}, at least {self.low}" if self.low else form


class Octal(Kind):
    """The permissions of a file, in octal digits."""

    allowed = "octal permissions such as 700"

    def parse(self, words: Sequence[str]) -> int:
        """0 leaves the permissions to the umask."""
        text = _one(words)
        if not re.fullmatch("[0-7]{1,4}", text):
            raise ValueError("argument couldn't be parsed as an octal number")
        return _bounded(int(text, 8), 0, 0o777)

    def format(self, value: Any) -> str:
        """The permissions in octal digits."""
        return f"{value:o}"


class YesNo(Kind):
    """A switch, ``yes`` or ``no``."""

    allowed = "yes or no"
    alone = "yes"

    def parse(self, words: Sequence[str]) -> bool:
        """Only these two words, in any case."""
        text = _one(words).lower()
        if text not in {"yes", "no"}:
            raise ValueError("argument must be 'yes' or 'no'")
        return text == "yes"

    def format(self, value: Any) -> str:
        """``yes`` or ``no``."""
        return "yes" if value else "no"


class Choice(Kind):
    """One of a few words, or several of them if ``several`` is true."""

    def __init__(self, *words: str, several: bool = False) -> None:
        self.words = words
        self.several = several
        self.many_words = several

    def parse(self, words: Sequence[str]) -> str:
        """In any case; the value has the spelling of the table."""
        text = " ".join(words) if self.several else _one(words)
        chosen = split_blanks(text.lower()) if self.several else [text.lower()]
        if not chosen or any(word not in self.words for word in chosen):
            raise ValueError(f"argument(s) must be one of the following: {', '.join(self.words)}")
        return " ".join(chosen)

    @property
    def allowed(self) -> str:
        """The words of which one is chosen."""
        return "one of " + ", ".join(self.words)


class Text(Kind):
    """A text that may be anything, also empty."""

    allowed = "text"

    def parse(self, words: Sequence[str]) -> str:
        """The text as it was given; raises ValueError for several words."""
        return _one(words)


class Name(Text):
    """A text that people can read."""

    allowed = "a name that can be read"

    def parse(self, words: Sequence[str]) -> str:
        """The name as it was given; raises ValueError if it cannot be printed."""
        value = super().parse(words)
        if value and (not value.isprintable() or value.isspace()):
            raise ValueError("argument must be a name that can be read, or empty")
        return value


class FolderName(Text):
    """The name of a directory within another one."""

    allowed = "a name that is no path"

    def parse(self, words: Sequence[str]) -> str:
        """The name as it was given; raises ValueError for a path."""
        value = super().parse(words)
        if not value:
            raise ValueError("appenddirname can't be empty")
        if value in (".", "..") or "/" in value or "\\" in value:
            raise ValueError("appenddirname can't be a path, just a dirname")
        return value


class Secret(Kind):
    """A text that must not be guessed: empty, or not short."""

    def __init__(self, least: int) -> None:
        self.least = least

    def parse(self, words: Sequence[str]) -> str:
        """The secret as it was given; raises ValueError if it is too short."""
        value = _one(words)
        if 0 < len(value) < self.least:
            raise ValueError(
                f"argument must be empty or have at least {self.least} characters; "
                "'openssl rand -hex 32' makes a good one"
            )
        return value

    @property
    def allowed(self) -> str:
        """How long a secret has to be."""
        return f"text of {self.least} characters or more, or none"


class WordList(Kind):
    """A list of words, with blanks between them."""

    many_words = True

    def __init__(self, at_most: int = 16) -> None:
        self.at_most = at_most

    def parse(self, words: Sequence[str]) -> str:
        """With one blank between two words."""
        flat = split_blanks(" ".join(words))
        if len(flat) > self.at_most:
            raise ValueError("wrong number of arguments")
        return " ".join(flat)

    def lines(self, value: Any) -> list[list[str]]:
        """One line of the file with all words."""
        return [split_blanks(value) or [""]]

    @property
    def allowed(self) -> str:
        """How many words are allowed."""
        return f"up to {self.at_most} words"


class Addresses(WordList):
    """Several addresses, each a host and a port."""

    def parse(self, words: Sequence[str]) -> str:
        """The addresses; raises ValueError if one has no port."""
        text = super().parse(words)
        for word in split_blanks(text):
            found = re.fullmatch(r".+:([0-9]{1,5})", word)
            if found is None or not 0 < int(found[1]) <= 65535:
                raise ValueError("an address is host:port")
        return text

    @property
    def allowed(self) -> str:
        """The form of an address."""
        return f"up to {self.at_most} times host:port"


class SavePoints(WordList):
    """Pairs of seconds and changes; an empty text means none."""

    allowed = 'pairs of seconds and changes, or ""'
    repeats = True

    def __init__(self) -> None:
        super().__init__(at_most=1 << 10)

    def parse(self, words: Sequence[str]) -> str:
        """Both numbers of a pair are positive."""
        flat = split_blanks(" ".join(words))
        if len(flat) % 2 or any(not re.fullmatch("[0-9]{1,18}", word) for word in flat):
            raise ValueError("Invalid save parameters")
        if any(int(seconds) < 1 for seconds in flat[::2]):
            raise ValueError("Invalid save parameters")
        return " ".join(str(int(word)) for word in flat)

    def lines(self, value: Any) -> list[list[str]]:
        """A line of the file for each pair of seconds and changes."""
        flat = split_blanks(value)
        return [flat[at : at + 2] for at in range(0, len(flat), 2)] or [[""]]


class Lines(Kind):
    """Lines as lists of their words, one for each line of the file (``user``)."""

    allowed = "a user's name followed by its ACL rules"
    many_words = True
    repeats = True

    def parse(self, words: Sequence[str]) -> list[list[str]]:
        """The words of one line of the file."""
        return [list(words)] if words else []

    def format(self, value: Any) -> str:
        """All lines, joined as CONFIG GET shows them."""
        return "\n".join(" ".join(words) for words in value)

    def lines(self, value: Any) -> list[list[str]]:
        """The lines of the file, as they were read."""
        return list(value)


Limits = dict[str, tuple[int, int, int]]


class OutputLimits(Kind):
    """``client-output-buffer-limit``: hard limit, soft limit and seconds for a class of clients."""

    allowed = "normal, replica or pubsub, then hard limit, soft limit and seconds"
    many_words = True
    repeats = True
    _classes: Final = ("normal", "slave", "pubsub")
    _aliases: Final = {"replica": "slave"}

    def parse(self, words: Sequence[str]) -> Limits:
        """The named classes only; the caller keeps the others."""
        flat = split_blanks(" ".join(words))
        if not flat or len(flat) % 4:
            raise ValueError("Wrong number of arguments in buffer limit configuration.")
        memory = Memory()
        limits: Limits = {}
        for at in range(0, len(flat), 4):
            name = flat[at].lower()
            name = self._aliases.get(name, name)
            if name not in self._classes:
                raise ValueError("Invalid client class specified in buffer limit configuration.")
            try:
                hard, soft = memory.parse([flat[at + 1]]), memory.parse([flat[at + 2]])
                seconds = Integer().parse([flat[at + 3]])
            except ValueError:
                raise ValueError(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                ) from None
            limits[name] = (hard, soft, seconds)
        return limits

    def format(self, value: Any) -> str:
        """All three classes on one line."""
        return " ".join(" ".join(line) for line in self.lines(value))

    def lines(self, value: Any) -> list[list[str]]:
        """A line of the file for each class of clients."""
        return [[name, *map(str, value[name])] for name in self._classes]


class EventClasses(Kind):
    """``notify-keyspace-events``: letters that choose which events are published."""

    allowed = "letters out of Ag$lshzxeKEtmdnocaSTIV"
    _all = "g$lshzxetd"
    _shown = "g$lshzxetdnoc"  # the order in which Redis shows classes
    _behind = "KEmSTIV"
    _known = frozenset("A" + _shown + "a" + _behind)

    def parse(self, words: Sequence[str]) -> str:
        """The letters as they were written."""
        text = _one(words)
        if not self._known.issuperset(text):
            raise ValueError("Invalid event class character. Use 'Ag$lshzxeKEtmdnocaSTIV'.")
        return text

    def format(self, value: Any) -> str:
        """In Redis's order; with ``A`` it does not show n, o and c although they are in force."""
        shown = "A" if "A" in value else "".join(c for c in self._shown + "a" if c in value)
        if set(self._all + "a").issubset(value):
            shown = "A"
        return shown + "".join(letter for letter in self._behind if letter in value)

    def lines(self, value: Any) -> list[list[str]]:
        """All letters that were set."""
        return [[value]]


# -- separators of configuration text: those that Redis has, and no others --------------------
#
# ``str.split`` and ``str.splitlines`` know many more (U+001F, U+0085, U+2003, U+2028 ...). Where
# one of these stands inside an ACL rule, splitting there would make several rules out of one.


BLANKS: Final = " \t\n\v\f\r"

_BLANKS: Final = re.compile(f"[{BLANKS}]+")


def split_blanks(text: str) -> list[str]:
    """The words of a text, without quotes and escapes."""
    return [word for word in _BLANKS.split(text) if word]


def split_lines(text: str) -> list[str]:
    """The lines of a file; a carriage return before the end of a line stays in it."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


# -- the description of one directive: a row of the settings table ----------------------------


@dataclass(eq=False, slots=True)
class Directive:
    """One directive.

    ``effect`` is False for what is accepted so that files and tools of Redis keep working, but
    changes nothing here. ``refused`` maps values (as text, ``*`` for any) to the sentence that
    says what to use instead; the server does not start with them.
    """

    kind: Kind
    default_text: str
    sentence: str
    _: KW_ONLY
    group: str = ""
    immutable: bool = False  # before the start only
    protected: bool = False  # at run time only with enable-protected-configs
    hidden: bool = False  # not part of CONFIG GET and SET
    secret: bool = False  # never printed
    volatile: bool = False  # set to the same value it is applied again: it names a file
    effect: bool = True
    aliases: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    check: Callable[[Any], str | None] | None = None
    name: str = field(default="", init=False)  # set by the table
    default: Any = field(init=False)

    def __post_init__(self) -> None:
        """Read the default."""
        text = self.default_text
        self.default = self.kind.parse([text] if text or not self.kind.repeats else [])

    @property
    def attribute(self) -> str:
        """The name as an attribute of Settings."""
        return self.name.replace("-", "_")

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        text = self.kind.allowed
        return f"{text} ({self.unit})" if self.unit and isinstance(self.kind, Integer) else text

    def parse(self, words: list[str]) -> Any:
        """The value of the words of a line; ValueError with the reason if there is none."""
        value = self.kind.parse(words)
        if self.refused:
            refusal = self.refused.get("*") or self.refused.get(self.kind.format(value))
            if refusal is not None:
                raise ValueError(refusal)
        if self.check is not None and (objection := self.check(value)):
            raise ValueError(objection)
        return value

    def copy_default(self) -> Any:
        """The default; no two settings objects share it."""
        value = self.default
        return value.copy() if isinstance(value, list | dict) else value


def row(kind: Kind, default: str, group: str, sentence: str, **details: Any) -> Any:
    """A row standing where the attribute of the same name is declared (see ``settings``)."""
    return Directive(kind, default, sentence, group=group, **details)
