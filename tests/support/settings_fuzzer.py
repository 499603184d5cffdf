r"""Random configuration files, directives and ACL rules: what is written down means what it meant.

    python -m tests.support.settings_fuzzer --cases 100000

Every case is made from a seed. A case fails if anything but a clear refusal comes out, if what is
written and read again differs, or if a user who was read again may do more than before.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable

from anabranch.commands.table import COMMANDS
from anabranch.config.load import load
from anabranch.config.runtime import quoted, rewritten
from anabranch.config.settings import ROWS, Settings
from anabranch.engine.acl.rules import AclRegistry
from anabranch.engine.acl.users import User
from anabranch.errors import AnabranchError, CommandError, ConfigError
from anabranch.resp.inline import split_words

__all__ = ["CASES", "Refused", "run"]

SEPARATORS = [
    *(b" ", b"  ", b"\t", b"\n", b"\r", b"\r\n", b"\v", b"\f", b"\0", b"\x1c", b"\x1d", b"\x1e"),
    *(b"\x1f", b"\xc2\x85", b"\xc2\xa0", b"\xe2\x80\x83", b"\xe2\x80\xa8", b"\xe2\x80\xa9"),
    *(b"\xe3\x80\x80", b"\xe1\x9a\x80", b"\xef\xbb\xbf"),
]
SIGNS = [b'"', b"'", b"\\", b"#", b"(", b")", b"~", b"&", b"+", b"-", b"%", b"|", b"*", b"\\x41"]
BYTES = [b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\x7f", b"\x01", b"a", b"B", b"1", b"k"]
RULES = [
    *(b"on", b"off", b"nopass", b"resetpass", b"reset", b"~*", b"allkeys", b"resetkeys", b"&*"),
    *(b"allchannels", b"resetchannels", b"+@all", b"-@all", b"allcommands", b"nocommands"),
    *(b"+@read", b"-@write", b"+@stream", b"+get", b"-get", b"+config|get", b"-config", b"+config"),
    *(b"+select|1", b"+get|x", b"-acl|setuser", b"+acl", b"sanitize-payload", b"clearselectors"),
    *(b"skip-sanitize-payload", b"(+get ~a)", b"(", b")", b"(%R~x", b"+set)", b"%R~*", b"%W~*"),
    *(b"%RW~*", b"%rw~k", b"~a", b"&c", b">pw", b"<pw", b"#" + b"0" * 64, b"~", b"&", b"+", b"%"),
]


class Refused(Exception):
    """The case was refused with a clear error, as it may be."""


def _word(rng: random.Random) -> bytes:
    parts = rng.choices([*SEPARATORS, *SIGNS, *BYTES, *BYTES], k=rng.randrange(6))
    return b"".join(parts)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _load(text: str | bytes) -> Settings:
    with tempfile.NamedTemporaryFile(suffix=".conf") as file:
        file.write(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
        file.flush()
        return load([file.name]).settings


# -- directives -----------------------------------------------------------------------------------

_HINTS: dict[str, list[bytes]] = {
    "save": [b"1", b"10", b"3600"],
    "client-output-buffer-limit": [b"normal", b"pubsub", b"1mb", b"0", b"60"],
    "join": [b"host:1", b"[::1]:2"],
    "notify-keyspace-events": [b"KEA", b"Kg", b"x"],
}


def directive(rng: random.Random) -> None:
    """A directive with arbitrary words, written down and read again."""
    row = rng.choice([row for row in ROWS.values() if row.name not in {"user", "include"}])
    usual = [b"yes", b"no", b"1", b"7000", b"10%", b"1gb", row.default_text.encode(), b""]
    count = rng.choice([1, 1, 1, 2, 4]) if row.kind.many_words else 1
    pool = [*usual, *_HINTS.get(row.name, [])]
    words = [_text(rng.choice(pool) if rng.random() < 0.5 else _word(rng)) for _ in range(count)]
    settings = Settings()
    try:
        value = row.parse(words)
    except ValueError as problem:
        raise Refused from problem
    if isinstance(value, dict):
        value = {**settings.value(row.name), **value}
    setattr(settings, row.attribute, value)
    for before in ("", f"{row.name} {quoted('x')}\n", "# \u2028 comment\r\n\n"):
        text = rewritten(before, settings)
        try:
            again = _load(text)
        except ConfigError as problem:
            # Some go together only (tls-port and a certificate): then the line must be at fault.
            if row.name.startswith(("tls-", "port", "unixsocket")):
                raise Refused from problem
            raise
        assert again.value(row.name) == value, (row.name, value, again.value(row.name), text)
        others = {
            name: (again.value(name), settings.value(name))
            for name in ROWS
            if name != row.name and again.value(name) != settings.value(name)
        }
        assert not others, (row.name, value, others, text)


# -- whole files ----------------------------------------------------------------------------------


def file(rng: random.Random) -> None:
    """Arbitrary lines; what is accepted is rewritten, and means the same."""
    lines = []
    for _ in range(rng.randrange(6)):
        name = rng.choice([*ROWS, "user", "user", "requirepass", "nosuch", "#", "include"])
        words = [name.encode()]
        for _ in range(rng.randrange(5)):
            word = rng.choice(RULES) if rng.random() < 0.5 else _word(rng)
            if rng.random() < 0.3:
                word = quoted(_text(word)).encode("utf-8", "surrogateescape")
            words.append(word)
        lines.append(rng.choice([b" ", b" ", b"\t", *SEPARATORS]).join(words))
    data = rng.choice([b"\n", b"\n", b"\r\n", b"\r"]).join(lines)
    try:
        settings = _load(data)
    except ConfigError as problem:
        str(problem).encode("utf-8", "backslashreplace")
        raise Refused from problem
    registry = _registry(settings)
    text = rewritten(_text(data), settings, _user_lines(registry, settings))
    again = _load(text)
    for name in ROWS:
        if name != "user":
            assert again.value(name) == settings.value(name), (name, data, text)
    same(registry, _registry(again), (data, text))
    assert rewritten(text, again, _user_lines(_registry(again), again)) == text, (data, text)


def _registry(settings: Settings) -> AclRegistry:
    registry = AclRegistry(settings.requirepass, COMMANDS)
    registry.all_channels = settings.acl_pubsub_default == "allchannels"
    try:
        for words in settings.user:
            registry.load_user(words)
    except AnabranchError as problem:
        raise Refused from problem
    return registry


def _user_lines(registry: AclRegistry, settings: Settings) -> list[list[bytes]]:
    implied = AclRegistry(settings.requirepass, ()).lines()
    return [line.split(b" ") for line in registry.lines() if line not in implied]


# -- users ----------------------------------------------------------------------------------------


def rights(user: User) -> list[object]:
    """All that decides what a user may do."""
    selectors: list[object] = []
    for one in user.selectors:
        commands = {
            name
            for name, command in one.index.by_name.items()
            if one._allows_command(command, [b"x"])
        }
        words = {name: sorted(each) for name, each in one.first_args.items() if each}
        keys = "all" if one.all_keys else {each[0]: each[1] for each in one.key_patterns}
        channels = "all" if one.all_channels else {each for each, _ in one.channel_patterns}
        selectors.append((commands, words, keys, channels))
    return [user.name, user.enabled, user.nopass, set(user.passwords), user.sanitize_payload,
            selectors]  # fmt: skip


def same(before: AclRegistry, after: AclRegistry, context: object) -> None:
    """Assert that everybody may do what they might, and nothing else."""
    assert before.users.keys() == after.users.keys(), context
    for name, user in before.users.items():
        assert rights(user) == rights(after.users[name]), (name, user.text(), context)


def _saved(registry: AclRegistry) -> str:
    """The text of an ACL file."""
    return _text(b"".join([line + b"\n" for line in registry.lines()]))


def rules(rng: random.Random) -> None:
    """Rules as ACL SETUSER takes them, then in a file, a configuration line, and the log."""
    registry = AclRegistry("", COMMANDS)
    registry.all_channels = rng.random() < 0.5
    name = rng.choice([b"alice", b"default", _word(rng), b"x" + _word(rng)])
    accepted = 0
    for _ in range(rng.randrange(1, 4)):
        given = []
        for _ in range(rng.randrange(6)):
            word = rng.choice(RULES)
            if rng.random() < 0.4:
                word = rng.choice([b"~", b"&", b"%R~", b"+get|", b"(~", b">", b"+", b""]) + _word(
                    rng
                )
            if rng.random() < 0.1:
                word = b"(" + word + b" " + rng.choice(RULES) + b")"
            given.append(word)
        try:
            registry.setuser(name, given)
        except CommandError as problem:
            problem.text.decode("latin-1")
            continue
        accepted += 1
    if not accepted:
        raise Refused
    by_file = AclRegistry("", COMMANDS)
    by_file.load(
        b"".join([line + b"\n" for line in registry.lines()]).decode("utf-8", "surrogateescape")
    )
    same(registry, by_file, "file")
    by_log = AclRegistry("", COMMANDS)
    by_log.load_kept(registry.lines(), Settings())
    same(registry, by_log, "log")
    text = rewritten("", Settings(), _user_lines(registry, Settings()))
    same(registry, _registry(_load(text)), ("configuration", text))


def acl_file(rng: random.Random) -> None:
    """Arbitrary lines of an ACL file; what is accepted is saved, and means the same."""
    lines = []
    for _ in range(rng.randrange(5)):
        words = [rng.choice([b"user"] * 3 + [b"", b"usr"]), rng.choice([b"a", b"b", _word(rng)])]
        words += [
            rng.choice(RULES) if rng.random() < 0.6 else b"~" + _word(rng)
            for _ in range(rng.randrange(6))
        ]
        lines.append(rng.choice([b" ", b" ", b"  ", *SEPARATORS]).join(words))
    text = _text(rng.choice([b"\n", b"\r\n"]).join(lines))
    registry = AclRegistry("", COMMANDS)
    try:
        registry.load(text)
    except CommandError as problem:
        if len(problem.text) > 10_000:
            raise AssertionError("an error without bounds") from problem
        raise Refused from problem
    again = AclRegistry("", COMMANDS)
    again.load(_saved(registry))
    same(registry, again, text)


def quoting(rng: random.Random) -> None:
    """Any bytes survive quotes."""
    data = rng.randbytes(rng.randrange(20)) + _word(rng)
    assert split_words(quoted(_text(data)).encode()) == [data]


CASES: list[Callable[[random.Random], None]] = [directive, file, rules, acl_file, quoting]


def run(seed: int, count: int) -> dict[str, int]:
    """So many cases; how many of each kind were accepted. AssertionError names the seed."""
    accepted = dict.fromkeys([case.__name__ for case in CASES], 0)
    for number in range(seed, seed + count):
        rng = random.Random(number)
        case = CASES[number % len(CASES)]
        started = time.process_time()
        try:
            case(rng)
        except Refused:
            pass
        except Exception as failure:
            raise AssertionError(f"{case.__name__}, seed {number}: {failure!r}") from failure
        else:
            accepted[case.__name__] += 1
        assert time.process_time() - started < 5, (
            f"{case.__name__}, seed {number}: it takes for ever"
        )
    return accepted


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    accepted = run(options.seed, options.cases)
    seconds = time.monotonic() - began
    print(f"{options.cases} cases in {seconds:.0f} s; accepted: {accepted}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
