"""Plays an episode on two servers at once and compares every reply.

Masked is only what cannot be equal: ages and times of day within a minute, IDs made from the
clock, and radix-tree-nodes. What differs between the versions is translated by
`exceptions.py`. A mismatch is shrunk to the shortest sequence that still shows it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tests.differential.counters import wrong_count, wrong_groups, wrong_lag
from tests.differential.exceptions import (
    ANY_COMMAND,
    BY_COMMAND,
    Situation,
    change_field,
    change_items,
    field_value,
    pairs_of,
    with_pairs,
)
from tests.differential.generator import (
    AFTER_USE,
    FULL_FIRST,
    GROUPS_SECOND,
    PROBE_AFTER,
    PROBE_BEFORE,
    PROBE_READ,
    Command,
    Episode,
    consumers_are_settled,
)
from tests.support.wire import Reply, RespClient, encode_command, exchange, parse_reply

NEAR_MS = 60_000  # longer than an episode takes, shorter than what the generator plays with
REPLY_SECONDS = 60.0
SHRINK_RUNS = 1500

_CLOCK_ID = re.compile(rb"1[0-9]{12}-[0-9]+")
_QUEUED = ("+", b"QUEUED")
_TRACKED = frozenset([b"MULTI", b"EXEC", b"DISCARD"])
_DEADLINES = {b"TTL": 60, b"EXPIRETIME": 60, b"PTTL": NEAR_MS, b"PEXPIRETIME": NEAR_MS}


class Versions(Enum):
    """What the second server is."""

    SAME = "the same Redis: everything must be equal but what is masked"
    NEWER = "a server that behaves like Redis 8.10"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A command that the two servers answered differently."""

    episode: Episode
    at: int  # index into the episode's commands
    command: Command
    old: Reply
    new: Reply
    note: str = ""  # a rule that our reply breaks
    reproduced: bool = True

    @property
    def signature(self) -> str:
        """Equal for mismatches that probably have one cause."""
        words = [self.command.args[0].upper()]
        if words[-1] in (b"XINFO", b"XGROUP", b"OBJECT") and len(self.command.args) > 1:
            words.append(self.command.args[1].upper())
        inside = self.command is not self.episode.commands[self.at]
        head = ("EXEC of " if inside else "") + " ".join(quote(word) for word in words)
        if self.note:
            return f"{head} | {self.note.split(' is ')[0].split(' {')[0][:60]}"
        return f"{head} | {first_difference(self.old, self.new)}"


@dataclass(slots=True)
class Outcome:
    """What came of one episode."""

    compared: int = 0
    skipped: int = 0  # commands behind a difference that leaves the servers unequal
    mismatch: Mismatch | None = None
    differences: Counter[str] = field(default_factory=Counter)


# --- masks ----------------------------------------------------------------------------


def _near(old: Reply, new: Reply, tolerance: int = NEAR_MS) -> Reply:
    """The old number if the new one is a time about equal to it, else the new one."""
    if (
        old[0] == new[0] == ":"
        and old[1] >= 0
        and new[1] >= 0
        and abs(old[1] - new[1]) <= tolerance
    ):
        return old
    return new


def _near_columns(old: Reply, new: Reply, column: int, width: int) -> Reply:
    """An array of arrays; one column holds times."""
    if not isinstance(old[1], list) or not isinstance(new[1], list):
        return new
    rows = list(new[1])
    for at, (a, b) in enumerate(zip(old[1], new[1], strict=False)):
        if a[0] == b[0] == "*" and a[1] and b[1] and len(a[1]) == len(b[1]) == width:
            row = list(b[1])
            row[column] = _near(a[1][column], row[column])
            rows[at] = ("*", row)
    return ("*", rows)


def _near_field(old: Reply, new: Reply, name: bytes) -> Reply:
    """A map of which one field holds a time."""
    known = field_value(old, name)
    if known is None:
        return new
    return change_field(new, name, lambda value: _near(known, value))


def _each(old: Reply, new: Reply, change: Callable[[Reply, Reply], Reply]) -> Reply:
    """Corresponding elements of two arrays, changed."""
    if not isinstance(old[1], list) or not isinstance(new[1], list):
        return new
    common = [change(a, b) for a, b in zip(old[1], new[1], strict=False)]
    return (new[0], common + new[1][len(common) :])


def _near_consumer(old: Reply, new: Reply) -> Reply:
    new = _near_field(old, _near_field(old, new, b"seen-time"), b"active-time")
    pending = field_value(old, b"pending")
    if pending is None:
        return new
    return change_field(new, b"pending", lambda value: _near_columns(pending, value, 1, 3))


def _near_group(old: Reply, new: Reply) -> Reply:
    pending, consumers = field_value(old, b"pending"), field_value(old, b"consumers")
    if pending is None or consumers is None:
        return new
    new = change_field(new, b"pending", lambda value: _near_columns(pending, value, 2, 4))
    return change_field(new, b"consumers", lambda v: _each(consumers, v, _near_consumer))


def _near_info_consumer(old: Reply, new: Reply) -> Reply:
    return _near_field(old, _near_field(old, new, b"idle"), b"inactive")


def _without_nodes(reply: Reply) -> Reply:
    pairs = pairs_of(reply) if reply[0] != "-" else None
    if pairs is None:
        return reply
    kept = [p for p in pairs if p[0][1] != b"radix-tree-nodes" or p[1][0] != ":"]
    return with_pairs(reply, kept)


def mask_times(at: Situation, old: Reply, new: Reply) -> tuple[Reply, Reply]:
    """Both replies without what may differ between any two servers."""
    if at.name == b"XPENDING":
        return old, _near_columns(old, new, 2, 4)
    if at.name in _DEADLINES:
        return old, _near(old, new, _DEADLINES[at.name])
    if at.name == b"SCAN":
        return _sorted_page(old), _sorted_page(new)
    if at.name != b"XINFO" or old[0] == "-":
        return old, new
    if at.subcommand == b"CONSUMERS":
        return old, _each(old, new, _near_info_consumer)
    if at.subcommand == b"STREAM":
        old, new = _without_nodes(old), _without_nodes(new)
        groups = field_value(old, b"groups")
        if groups is not None and groups[0] == "*":
            new = change_field(new, b"groups", lambda v: _each(groups, v, _near_group))
    return old, new


def _sorted_page(reply: Reply) -> Reply:
    if reply[0] != "*" or not reply[1] or len(reply[1]) != 2 or reply[1][1][0] != "*":
        return reply
    cursor, keys = reply[1]
    return ("*", [cursor, ("*", sorted(keys[1], key=repr))])


def mask_clock_ids(reply: Reply) -> Reply:
    """IDs made from today's clock become one mark."""
    kind, value = reply
    if kind == "$" and value is not None and _CLOCK_ID.fullmatch(value):
        return (kind, b"<clock>")
    if kind == "%":
        return (kind, [(mask_clock_ids(k), mask_clock_ids(v)) for k, v in value])
    if isinstance(value, list):
        return change_items(reply, mask_clock_ids)
    return reply


# --- comparing ------------------------------------------------------------------------


class _Diverged(Exception):
    """The servers hold different data now, for a listed reason."""


class Comparison:
    """Compares the replies of one episode, in order."""

    def __init__(self, episode: Episode, versions: Versions, seen: Counter[str]) -> None:
        """`seen` counts the listed differences that were met."""
        self.episode = episode
        self.newer = versions is Versions.NEWER
        self.seen = seen
        self.queue: list[Command] | None = None  # commands since MULTI
        self.after_minid = False
        self.chain: list[tuple[Command, Reply]] = []  # our replies to commands that belong together

    def check(self, at: int, command: Command, raw_old: bytes, raw_new: bytes) -> Mismatch | None:
        """The mismatch, if there is one."""
        name = command.args[0].upper()
        if name in (b"XADD", b"XTRIM") and b"MINID" in map(bytes.upper, command.args):
            self.after_minid = True
        if raw_old == raw_new and not self._look_closer(name, command, raw_old):
            self.chain.clear()
            return None
        old, new = parse_reply(raw_old)[0], parse_reply(raw_new)[0]
        note = self._follow_chain(command, new) if self.newer else ""
        if note:
            return Mismatch(self.episode, at, command, old, new, note)
        queued = self._follow_transaction(name, command, old)
        if queued and len(queued) == _length(old) == _length(new):
            for inner, a, b in zip(queued, old[1], new[1], strict=True):
                found = self._unequal(inner, a, b)
                if found:
                    return Mismatch(self.episode, at, inner, *found)
            return None
        found = self._unequal(command, old, new)
        return Mismatch(self.episode, at, command, *found) if found else None

    def _look_closer(self, name: bytes, command: Command, raw: bytes) -> bool:
        if name in _TRACKED or self.queue is not None:
            return True
        return self.newer and (raw[:1] == b"-" or name == b"XINFO" or command.tag != "")

    def _follow_transaction(
        self, name: bytes, command: Command, old: Reply
    ) -> list[Command] | None:
        """Keep the queue; what EXEC ran, if this is one."""
        if self.queue is None:
            if name == b"MULTI" and old == ("+", b"OK"):
                self.queue = []
            return None
        if old == _QUEUED:
            self.queue.append(command)
        elif name in (b"EXEC", b"DISCARD") and not _wrong_arity(old):
            queued, self.queue = self.queue, None
            return queued if name == b"EXEC" else None
        return None

    def _follow_chain(self, command: Command, new: Reply) -> str:
        """What our reply breaks, together with those just before it."""
        tag = command.tag
        if new == _QUEUED or self.queue is not None:
            self.chain.clear()
            return ""
        previous = [one.tag for one, _ in self.chain]
        wrong: str | None = None
        if tag in (PROBE_BEFORE, PROBE_AFTER, FULL_FIRST):
            wrong = wrong_lag(new)
        if tag == GROUPS_SECOND and previous == [FULL_FIRST]:
            full, shown = self.chain[0]
            wrong = wrong_groups(shown, new) if full.args[2] == command.args[2] else None
        if tag == PROBE_AFTER and previous == [PROBE_BEFORE, PROBE_READ]:
            read = self.chain[1][0].args
            if self.chain[0][0].args == command.args:
                group = next(read[i + 1] for i, word in enumerate(read) if word.upper() == b"GROUP")
                wrong = wrong or wrong_count(self.chain[0][1], group, self.chain[1][1], new)
        if tag in (FULL_FIRST, PROBE_BEFORE):
            self.chain = [(command, new)]
        elif tag == PROBE_READ and previous == [PROBE_BEFORE]:
            self.chain.append((command, new))
        elif tag == AFTER_USE and previous == [PROBE_BEFORE, PROBE_READ]:
            pass  # a consumer changes no counter
        else:
            self.chain.clear()
        return wrong or ""

    def _unequal(self, command: Command, old: Reply, new: Reply) -> tuple[Reply, Reply] | None:
        """The masked and translated replies, if they are not equal."""
        name = command.args[0].upper()
        situation = Situation(
            name, command.args, command.tag, self.episode.exact_counters, self.after_minid
        )
        diverges = False
        try:
            old, new = mask_times(situation, old, new)
            old, new = mask_clock_ids(old), mask_clock_ids(new)
            if self.newer:
                for difference in BY_COMMAND.get(name, ANY_COMMAND):
                    translated = difference.translate(situation, old, new)
                    if translated is not None:
                        old, new = translated
                        self.seen[difference.name] += 1
                        diverges = diverges or difference.diverges
        except (TypeError, IndexError, KeyError, AttributeError, ValueError):
            return old, new  # not of the shape that this command's replies have
        if old != new:
            return old, new
        if diverges:
            raise _Diverged
        return None


def _length(reply: Reply) -> int | None:
    """How many elements an array has."""
    return len(reply[1]) if reply[0] == "*" and reply[1] is not None else None


def _wrong_arity(reply: Reply) -> bool:
    return reply[0] == "-" and reply[1].startswith(b"ERR wrong number of arguments")


class Pair:
    """Two servers, the old one first, with connections of both protocol versions."""

    def __init__(self, old_port: int, new_port: int, versions: Versions = Versions.NEWER) -> None:
        """Connects when an episode needs it."""
        self.ports = (old_port, new_port)
        self.versions = versions
        self._clients: dict[int, list[RespClient]] = {}

    def __enter__(self) -> Pair:
        """The pair itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections; the next episode opens new ones."""
        for clients in self._clients.values():
            for client in clients:
                client.close()
        self._clients.clear()

    def clients(self, resp: int) -> list[RespClient]:
        """The connections for this protocol version."""
        if resp not in self._clients:
            self._clients[resp] = [RespClient(port, resp=resp) for port in self.ports]
        return self._clients[resp]

    def replies(self, episode: Episode) -> list[list[bytes]]:
        """The raw replies of both servers to the episode's commands."""
        prelude = episode.prelude()
        lines = [encode_command(args) for args in prelude]
        lines += [encode_command(command.args) for command in episode.commands]
        try:
            both = exchange(self.clients(episode.resp), b"".join(lines), len(lines), REPLY_SECONDS)
        except BaseException:
            self.close()  # half-read connections are of no more use
            raise
        for raw in both:
            for args, reply in list(zip(prelude, raw, strict=False))[1:]:
                if reply != b"+OK\r\n":
                    raise AssertionError(f"{args!r} is refused: {reply!r}")
        return [raw[len(prelude) :] for raw in both]

    def run(self, episode: Episode) -> Outcome:
        """Play the episode; stops comparing at the first mismatch."""
        outcome = Outcome()
        old, new = self.replies(episode)
        comparison = Comparison(episode, self.versions, outcome.differences)
        for at, command in enumerate(episode.commands):
            try:
                outcome.mismatch = comparison.check(at, command, old[at], new[at])
            except _Diverged:
                outcome.compared += 1
                outcome.skipped = len(episode.commands) - at - 1
                break
            outcome.compared += 1
            if outcome.mismatch is not None:
                outcome.skipped = len(episode.commands) - at - 1
                break
        return outcome

    # --- shrinking ----------------------------------------------------------------

    def shrink(self, mismatch: Mismatch) -> Mismatch:
        """The same mismatch with as few commands as can be found (delta debugging)."""
        signature = mismatch.signature
        first = mismatch.episode.commands[: mismatch.at + 1]
        best = self._again(mismatch.episode, first, signature)
        if best is None:
            return replace(mismatch, reproduced=False)
        runs = 0
        size = max(1, len(best.episode.commands) // 2)
        while runs < SHRINK_RUNS:
            commands = best.episode.commands
            at, smaller = 0, False
            while at < len(commands) and runs < SHRINK_RUNS:
                runs += 1
                rest = commands[:at] + commands[at + size :]
                found = self._again(best.episode, rest, signature) if rest else None
                if found is None:
                    at += size
                else:
                    best, commands, smaller = found, found.episode.commands, True
            if size > 1:
                size //= 2
            elif not smaller:
                break
        return best

    def _again(
        self, episode: Episode, commands: Sequence[Command], signature: str
    ) -> Mismatch | None:
        """The mismatch of this signature in these commands; what follows it is cut off."""
        if not consumers_are_settled(commands):
            return None
        found = self.run(replace(episode, commands=tuple(commands))).mismatch
        if found is None or found.signature != signature:
            return None
        kept = found.episode.commands[: found.at + 1]
        return replace(found, episode=replace(found.episode, commands=kept))


# --- showing --------------------------------------------------------------------------


def quote(word: bytes) -> str:
    """As redis-cli would take it."""
    text = word.decode("latin-1")
    if re.fullmatch(r"[!-~]+", text) and not set(text) & set("\"'\\"):
        return text
    special = {"\r": "\\r", "\n": "\\n", '"': '\\"', "\\": "\\\\"}
    return (
        '"'
        + "".join(special.get(c, c if " " <= c <= "~" else f"\\x{ord(c):02x}") for c in text)
        + '"'
    )


def show(reply: Reply) -> str:
    """A reply for people."""
    kind, value = reply
    if kind == "-":
        return f"(error) {ascii(value.decode('latin-1'))[1:-1]}"
    if kind == ":":
        return str(value)
    if value is None:
        return {"$": "(null bulk)", "*": "(null array)"}.get(kind, "(null)")
    if kind == "%":
        return "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return ("" if kind == "*" else kind) + "[" + ", ".join(show(item) for item in value) + "]"
    if kind == "$":
        return quote(value)
    return f"{kind}{value.decode('latin-1') if isinstance(value, bytes) else value}"


def first_difference(old: Reply, new: Reply) -> str:
    """Where two replies part, without what varies from case to case."""
    if "-" in (old[0], new[0]):
        return f"{_kind_of(old)} / {_kind_of(new)}"
    if old[0] != new[0] or (old[1] is None) != (new[1] is None):
        return f"{_kind_of(old)} / {_kind_of(new)}"
    a, b = pairs_of(old), pairs_of(new)
    if a and b and all(key[0] == "$" and key[1] for key, _ in a) and _named(a):
        theirs, ours = [key[1] for key, _ in a], [key[1] for key, _ in b]
        if theirs != ours:
            odd = sorted(set(theirs) ^ set(ours), key=repr) or ["order"]
            return f"fields: {odd}"
        for (key, x), (_, y) in zip(a, b, strict=True):
            if x != y:
                return f"{quote(key[1])} > {first_difference(x, y)}"
    if isinstance(old[1], list):
        if len(old[1]) != len(new[1]):
            return "length"
        for x, y in zip(old[1], new[1], strict=True):
            if x != y and isinstance(x[0], str):
                return f"item > {first_difference(x, y)}"
        return "items"
    return "value"


def _named(pairs: list[tuple[Reply, Reply]]) -> bool:
    names = {key[1] for key, _ in pairs}
    return bool(names & {b"length", b"name", b"pending", b"seen-time"})


def _kind_of(reply: Reply) -> str:
    if reply[0] == "-":
        return re.sub(r"'[^']*'", "'_'", reply[1].decode("latin-1"))[:70]
    if reply[1] is None:
        return "null"
    return {"$": "text", ":": "number", "*": "array", "%": "map", "+": "status"}.get(
        reply[0], reply[0]
    )


def report(mismatch: Mismatch) -> str:
    """A mismatch with all that is needed to repeat it."""
    episode = mismatch.episode
    lines = [
        f"--- {mismatch.signature}",
        f"    seed {episode.seed}, episode {episode.number}, RESP{episode.resp}"
        + ("" if mismatch.reproduced else "; NOT REPRODUCED when repeated"),
    ]
    lines += [f"    CONFIG SET {quote(k)} {quote(v)}" for k, v in episode.config]
    lines += ["    " + " ".join(quote(word) for word in c.args) for c in episode.commands[-40:]]
    if mismatch.note:
        lines.append(f"  rule: {mismatch.note}")
    lines.append(f"  Redis: {show(mismatch.old)[:1500]}")
    lines.append(f"  ours:  {show(mismatch.new)[:1500]}")
    return "\n".join(lines)
