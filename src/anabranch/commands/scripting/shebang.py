"""The first line of a script or library: ``#!lua flags=no-writes`` or ``#!lua name=library``."""

from __future__ import annotations

from typing import Final, NamedTuple

from anabranch.engine import texts
from anabranch.errors import CommandError

NAME_RULE: Final = (
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least "
    "one character long"
)

FLAGS: Final = frozenset(
    {b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys"}
)


class Shebang(NamedTuple):
    """The shebang line of a script: engine, name and flags."""

    body: bytes
    """The source without that line; the line end stays, so lines keep their numbers."""
    flags: frozenset[bytes] = frozenset()
    is_declared: bool = False
    """Whether there is such a line. Scripts without one get older, looser rules."""
    name: bytes = b""
    """Of a library."""


def parse_script(source: bytes) -> Shebang:
    """Of a script, which may have none."""
    if not source.startswith(b"#!"):
        return Shebang(source)
    line, end, rest = source.partition(b"\n")
    if not end:
        raise CommandError("ERR Invalid script shebang")
    words = line.split()
    if words[0] != b"#!lua":
        raise CommandError(b"ERR Unexpected engine in script shebang: " + texts.shown(words[0][2:]))
    flags: set[bytes] = set()
    for word in words[1:]:
        name, equals, value = word.partition(b"=")
        if name != b"flags" or not equals:
            raise CommandError(b"ERR Unknown lua shebang option: " + texts.shown(word))
        for flag in value.split(b",") if value else ():
            if flag not in FLAGS:
                raise CommandError(b"ERR Unexpected flag in script shebang: " + texts.shown(flag))
            flags.add(flag)
    return Shebang(end + rest, frozenset(flags), is_declared=True)


def parse_library(source: bytes) -> Shebang:
    """Of a library, which needs one with a name."""
    line, end, rest = source.partition(b"\n")
    if not line.startswith(b"#!"):
        raise CommandError("ERR Missing library metadata")
    if not end:
        raise CommandError("ERR Invalid library metadata")
    words = line.split()
    engine = words[0][2:]
    name = b""
    for word in words[1:]:
        if not word.lower().startswith(b"name="):
            raise CommandError(b"ERR Invalid metadata value given: " + texts.shown(word))
        if name:
            raise CommandError("ERR Invalid metadata value, name argument was given multiple times")
        name = word[5:]
    if not name:
        raise CommandError("ERR Library name was not given")
    if not is_name(name):
        raise CommandError(NAME_RULE)
    if engine.lower() != b"lua":
        raise CommandError(b"ERR Engine '%b' not found" % texts.shown(engine))
    return Shebang(end + rest, is_declared=True, name=name)


def is_name(name: bytes) -> bool:
    """Whether a library or function may be called so."""
    return bool(name) and name.replace(b"_", b"a").isalnum()
