"""Settings before the start: default < file < environment < command line.

Reads ``redis.conf`` syntax (quotes, escapes, comments, ``include``, units), variables called
``ANABRANCH_`` plus the directive with underscores, and ``--directive value ...``. Remembers where
each value came from, for ``anabranch config`` and for messages. A mistake raises
:class:`ConfigError` that names the place, the line, what is allowed and the nearest known name.
"""

from __future__ import annotations

import codecs
import glob
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch.config.kinds import BLANKS, Directive, Lines, split_lines
from anabranch.config.runtime import find, merged, nearest
from anabranch.config.settings import ALIASES, ROWS, Settings
from anabranch.errors import ConfigError
from anabranch.resp.inline import UnbalancedQuotes, split_words

ENVIRONMENT_PREFIX: Final = "ANABRANCH_"

_NOT_DIRECTIVES: Final = frozenset(
    f"ANABRANCH_{each}" for each in ("AUTH", "BUILD_CACHE", "COMPILE", "OTHER_AUTH", "URL")
)
"""Variables of the client side of the command line, and of the build."""

STDIN: Final = "standard input"

_USER_LINE: Final = re.compile(r"^user line (\d+)")
_WORD: Final = re.compile(r"(?<![:\w-])[\w-]+")

_INCLUDE_DEPTH_MAX: Final = 16
"""The depth at which a file that includes itself is refused."""


def read_text(path: Path) -> str:
    """The text of a file with all bytes and line ends."""
    return _decoded(path.read_bytes())


def _decoded(text: bytes) -> str:
    """Without the mark of byte order that some editors put in front."""
    return text.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


class CommandLineError(ConfigError):
    """The mistake is on the command line: wrong usage, and no fault of a file or the machine."""


class Loaded:
    """The settings of a start, and their sources."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.sources: dict[str, str] = {}  # directive -> the place of its value
        self.lines: dict[
            str, list[str]
        ] = {}  # the same for each line of a directive that is repeated
        self.file: Path | None = None  # the configuration file, absolute
        self.notes: list[str] = []  # warnings for the operator

    def source(self, name: str) -> str:
        """The place where the value of a directive was given."""
        return self.sources.get(name, "default")

    def located(self, problem: str) -> str:
        """A problem of the settings, with the places of the directives that its text names."""
        found = _USER_LINE.search(problem)
        if found is not None:
            lines = self.lines.get("user", [])
            number = int(found[1])
            if number <= len(lines):
                return f"{lines[number - 1]}: {problem}"
        words = set(_WORD.findall(problem))
        places = [f"{name}: {self.sources[name]}" for name in sorted(words & self.sources.keys())]
        return f"{problem} ({'; '.join(places)})" if places else problem

    @property
    def included_users(self) -> frozenset[bytes]:
        """Users whose lines are in files that the configuration file includes."""
        own = (f"{self.file}:", "environment ", "command line")
        places = zip(self.settings.user, self.lines.get("user", []), strict=True)
        return frozenset(
            words[0].encode("utf-8", "surrogateescape")
            for words, place in places
            if not place.startswith(own)
        )

    @property
    def without_effect(self) -> list[str]:
        """Directives that were given and have no effect here, in alphabetical order."""
        return sorted(
            name
            for name in self.sources
            if not ROWS[name].effect and self.settings.value(name) != ROWS[name].default
        )


def load(arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Loaded:
    """Load all settings of a start; ``arguments`` as behind ``anabranch serve``."""
    path, given = split_arguments(arguments)
    reader = _Loader()
    if path is not None:
        try:
            reader.read_file(path)
        except _CannotRead as problem:
            raise CommandLineError(str(problem)) from None
    reader.read_environment(environment or {})
    try:
        reader.read_arguments(given)
    except ConfigError as problem:
        raise CommandLineError(str(problem)) from None
    try:
        _check_together(reader.loaded.settings)
    except ConfigError as problem:
        raise ConfigError(reader.loaded.located(str(problem))) from None
    return reader.loaded


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[tuple[str, list[str]]]]:
    """The configuration file, and the directives with their words."""
    rest = list(arguments)
    path: str | None = None
    if rest and (rest[0] == "-" or not rest[0].startswith("-")):
        path = rest.pop(0)
    elif len(rest) > 1 and rest[-1] == "-":
        path = rest.pop()
    given: list[tuple[str, list[str]]] = []
    for word in rest:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            given.append((name, [value] if equals else []))
        elif given:
            given[-1][1].append(word)
        else:
            raise CommandLineError(f"command line: '{word}' stands before any --directive")
    return path, given


class _CannotRead(ConfigError):
    """A file cannot be read; the code that includes it adds the line."""


class _Loader:
    """Applies one source after the other."""

    def __init__(self) -> None:
        self.loaded = Loaded()
        self._source = ""  # the source that is read now: repeated lines add up within a source
        self._seen: set[str] = set()

    def read_file(self, path: str) -> None:
        self._begin("file")
        if path == "-":
            self._read_text(_decoded(sys.stdin.buffer.read()), STDIN, 0)
            return
        self.loaded.file = Path(path).absolute()
        self._read_path(self.loaded.file, 0)

    def read_environment(self, environment: Mapping[str, str]) -> None:
        self._begin("environment")
        for variable, text in sorted(environment.items()):
            if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_DIRECTIVES:
                continue
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            row = find(name.replace("_", "-")) or find(name)
            if row is None:
                # An unknown variable does not prevent a start, but is always reported.
                self.loaded.notes.append(
                    f"environment variable {variable} names no directive{_did_you_mean(name)}"
                )
            elif row.name == "port" and text.startswith("tcp://"):
                # Kubernetes sets ANABRANCH_PORT=tcp://... for a service called "anabranch".
                self.loaded.notes.append(f"environment variable {variable}={text} is ignored")
            else:
                for line in split_lines(text) or [""]:
                    words = _words(line, variable) if row.kind.many_words else [line]
                    self._set(row, words, f"environment {variable}", f"{variable}={line}")

    def read_arguments(self, given: list[tuple[str, list[str]]]) -> None:
        self._begin("command line")
        for name, words in given:
            line = " ".join([f"--{name}", *words])
            row = find(name)
            if row is None:
                raise ConfigError(_unknown("command line", line, name))
            if not words and row.kind.alone is not None:
                words = [row.kind.alone]
            elif not words and not row.kind.many_words:
                raise ConfigError(_bad("command line", line, "a value is missing", row))
            elif len(words) > 1 and not row.kind.many_words:
                objection = f"takes one value, '{words[1]}' is one too many"
                raise ConfigError(_bad("command line", line, objection, row))
            elif len(words) == 1 and isinstance(row.kind, Lines):
                words = _words(words[0], "command line")  # --user "name rules", all in one
            self._set(row, words, "command line", line)

    def _begin(self, source: str) -> None:
        self._source = source
        self._seen.clear()

    def _read_path(self, path: Path, depth: int) -> None:
        try:
            text = read_text(path)
        except OSError as problem:
            raise _CannotRead(
                f"cannot read configuration file {path}: {problem.strerror}"
            ) from None
        self._read_text(text, str(path), depth)

    def _read_text(self, text: str, where: str, depth: int) -> None:
        for number, raw in enumerate(split_lines(text), 1):
            line = raw.strip(BLANKS)
            if not line or line.startswith("#"):
                continue
            place = f"{where}, line {number}"
            if "\0" in line:  # Redis would ignore what is behind it
                raise ConfigError(f'{place}: there is a NUL byte; write "\\x00", in quotes')
            words = _words(line, place)
            name, values = words[0], words[1:]
            if name.lower() == "include":
                self._include(values, place, line, where, depth)
                continue
            row = find(name)
            if row is None:
                raise ConfigError(_unknown(place, line, name))
            if not values:
                raise ConfigError(_bad(place, line, "a value is missing", row))
            self._set(row, values, f"{where}:{number}", line, place)

    def _include(self, values: list[str], place: str, line: str, where: str, depth: int) -> None:
        if len(values) != 1:
            raise ConfigError(f'{place}: "{line}"\n  include takes the path of one file')
        if depth >= _INCLUDE_DEPTH_MAX:
            raise ConfigError(f'{place}: "{line}"\n  files include each other too deeply')
        pattern = str(Path(where).parent / values[0]) if depth or self.loaded.file else values[0]
        found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        for path in found:
            try:
                self._read_path(Path(path), depth + 1)
            except _CannotRead as problem:
                raise ConfigError(f'{place}: "{line}"\n  {problem}') from None

    def _set(
        self, row: Directive, words: list[str], source: str, line: str, place: str | None = None
    ) -> None:
        settings = self.loaded.settings
        shown = f"{row.name} ..." if row.secret else line
        try:
            value = row.parse(words)
        except ValueError as objection:
            raise ConfigError(_bad(place or self._source, shown, str(objection), row)) from None
        value = merged(settings, row, value)
        places = self.loaded.lines
        if isinstance(value, list):
            kept = places.get(row.name, []) if row.name in self._seen else []
            places[row.name] = [*kept, *([source] * len(value))]
        if row.kind.repeats and row.name in self._seen and not isinstance(value, dict):
            value = _added(settings.value(row.name), value)
        self._seen.add(row.name)
        setattr(settings, row.attribute, value)
        self.loaded.sources[row.name] = source


def _added(old: str | list[list[str]], new: str | list[list[str]]) -> str | list[list[str]]:
    """A further line of a directive that may be repeated; an empty one begins again."""
    if isinstance(new, list):
        assert isinstance(old, list)
        return [*old, *new]
    return f"{old} {new}".strip() if new else ""


def _words(line: str, place: str) -> list[str]:
    try:
        words = split_words(line.encode("utf-8", "surrogateescape"))
    except UnbalancedQuotes:
        raise ConfigError(f'{place}: "{line}"\n  a quote is not closed') from None
    return [word.decode("utf-8", "surrogateescape") for word in words]


def _did_you_mean(name: str) -> str:
    near = nearest(name.replace("_", "-"))
    return f"; did you mean '{near}'?" if near else ""


def _unknown(place: str, line: str, name: str) -> str:
    advice = _did_you_mean(name) or "; 'anabranch serve --help-all' lists all of them"
    return f"{place}: \"{line}\"\n  unknown directive '{name}'{advice}"


def _bad(place: str, line: str, objection: str, row: Directive) -> str:
    text = f'{place}: "{line}"\n  {row.name}: {objection}'
    if objection in row.refused.values():
        return text
    return f"{text}\n  allowed: {row.allowed}"


def _check_together(settings: Settings) -> None:
    """Check what depends on several directives."""
    if settings.tls_port and not (settings.tls_cert_file and settings.tls_key_file):
        raise ConfigError("tls-port needs tls-cert-file and tls-key-file")
    if settings.tls_port and settings.tls_port == settings.port:
        raise ConfigError("port and tls-port must differ; port 0 switches plain TCP off")
    if settings.aclfile and settings.user:
        raise ConfigError("use either user lines or aclfile, not both")


assert not ALIASES.keys() & ROWS.keys()
