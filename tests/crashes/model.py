"""What commands do to the keys of one database, written down a second time.

:func:`run` tells the state after a command, and its reply as :func:`plain` shows it. It knows only
what the workload of :mod:`tests.crashes.clients` sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import hiredis

__all__ = ["ERROR", "REFUSED", "Request", "State", "Stream", "changed_keys", "keys_read", "parts"]
__all__ += ["UNFORETOLD", "fits_cursor", "plain", "run"]

Request = tuple[str, ...]
"""The words of a command; a transaction is its commands, joined by ``;``."""

ERROR = "an error"
"""Every error reply but the next."""

UNFORETOLD = frozenset({"PUBLISH", "BGSAVE", "SAVE", "DEBUG", "CONFIG"})
"""Commands that change nothing, and whose replies do not matter."""

REFUSED = "refused"
"""The error of a read that a crash might make untrue."""


@dataclass(frozen=True)
class Group:
    """A consumer group: the last ID handed out, and who has which entries pending."""

    last: int
    pending: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """A stream; an ID is the number before its dash."""

    entries: Mapping[int, str] = field(default_factory=dict)
    last: int = 0
    deleted: int = 0
    added: int = 0
    groups: Mapping[str, Group] = field(default_factory=dict)


Value = str | Stream
State = dict[str, Value]


def shown(number: int) -> str:
    """An ID as it is written."""
    return f"{number}-0" if number else "0-0"


def plain(words: Request, reply: Any) -> Any:
    """A reply without what no model can foretell, such as times."""
    if isinstance(reply, hiredis.ReplyError):
        return REFUSED if "MISCONF" in str(reply) else ERROR
    if ";" in words:
        if not isinstance(reply, list):
            return reply
        return [plain(each, one) for each, one in zip(parts(words), reply, strict=True)]
    reply = _text(reply)
    if words[0] == "AB.READ":
        return reply[0][2]
    if words[0] == "KEYS":
        return sorted(reply)
    if words[:2] == ("XINFO", "STREAM"):
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        names = ("length", "last-generated-id", "max-deleted-entry-id", "entries-added", "groups")
        return [facts[name] for name in names]
    return reply


def _text(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode()
    return [_text(each) for each in reply] if isinstance(reply, list) else reply


def parts(words: Request) -> list[Request]:
    """The commands of a transaction."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == ";":
            found.append([])
        else:
            found[-1].append(word)
    return [tuple(each) for each in found]


def changed_keys(words: Request) -> set[str] | None:
    """The keys that a command may change; None if it may be any."""
    keys: set[str] = set()
    for each in parts(words):
        if each[0] == "FLUSHDB":
            return None
        if each[0] in _CHANGES:
            keys.update(each[place] for place in _CHANGES[each[0]])
    return keys


_CHANGES = {
    **dict.fromkeys(("XADD", "XDEL", "XTRIM", "XACK", "DEL", "INCR", "SET"), (1,)),
    **dict.fromkeys(("RENAME", "COPY"), (1, 2)),
    "XGROUP": (2,),
    "XREADGROUP": (-2,),
}
"""Where the keys stand that writing commands change."""


def fits_cursor(state: State, words: Request, told: Any) -> bool:
    """Whether AB.READ may return these entries: all that the reader does not know, and no others.

    What it knows follows key and cursor. What a COPY brings back may be returned again.
    """
    rows = _rows(_stream(state, words[1]))
    return all(row in rows for row in told) and all(
        row in told for row in rows if row[0] not in words[3:]
    )


def keys_read(words: Request) -> list[str] | None:
    """The keys that a reading command names; None if it tells of all."""
    if words[0] in ("DBSIZE", "KEYS", "AB.READ"):  # whose cursor tells of all, too
        return None
    if words[0] == "XREAD":
        named = words[words.index("STREAMS") + 1 :]
        return list(named[: len(named) // 2])
    if words[0] == "XINFO":
        return [words[2]]
    return list(words[1:]) if words[0] == "EXISTS" else [words[1]]


def run(state: State, words: Request) -> tuple[State, Any]:
    """The state afterwards, and the reply."""
    if ";" not in words:
        return _COMMANDS[words[0]](state, *words[1:])
    replies = []
    for each in parts(words):
        state, reply = run(state, each)
        replies.append(reply)
    return state, replies


def _stream(state: State, key: str) -> Stream:
    value = state.get(key, Stream())
    assert isinstance(value, Stream)
    return value


def _rows(stream: Stream, behind: int = 0) -> list[Any]:
    entries = sorted(stream.entries.items())
    return [[shown(number), ["f", text]] for number, text in entries if number > behind]


# -- writing ----------------------------------------------------------------------------------


def _xadd(state: State, key: str, entry_id: str, _field: str, text: str) -> tuple[State, Any]:
    stream, number = _stream(state, key), int(entry_id[:-2])
    if number <= stream.last:
        return state, ERROR
    entries = {**stream.entries, number: text}
    return {
        **state,
        key: replace(stream, entries=entries, last=number, added=stream.added + 1),
    }, entry_id


def _xdel(state: State, key: str, entry_id: str) -> tuple[State, Any]:
    stream, number = _stream(state, key), int(entry_id[:-2])
    if number not in stream.entries:
        return state, 0
    entries = {each: text for each, text in stream.entries.items() if each != number}
    deleted = max(stream.deleted, number)
    return {**state, key: replace(stream, entries=entries, deleted=deleted)}, 1


def _xtrim(state: State, key: str, _maxlen: str, _exact: str, most: str) -> tuple[State, Any]:
    if key not in state:
        return state, 0
    stream = _stream(state, key)
    kept = dict(sorted(stream.entries.items())[max(len(stream.entries) - int(most), 0) :])
    return {**state, key: replace(stream, entries=kept)}, len(stream.entries) - len(kept)


def _xgroup(state: State, _create: str, key: str, name: str, *_rest: str) -> tuple[State, Any]:
    stream = _stream(state, key)
    if name in stream.groups:
        return state, ERROR
    return {**state, key: replace(stream, groups={**stream.groups, name: Group(0)})}, "OK"


def _xreadgroup(
    state: State, _word: str, name: str, consumer: str, *rest: str
) -> tuple[State, Any]:
    _, count, _, key, _ = rest
    if key not in state or name not in _stream(state, key).groups:
        return state, ERROR
    stream = _stream(state, key)
    group = stream.groups[name]
    taken = sorted(each for each in stream.entries if each > group.last)[: int(count)]
    if not taken:
        return state, None
    pending = {**group.pending, **dict.fromkeys(taken, consumer)}
    groups = {**stream.groups, name: Group(taken[-1], pending)}
    rows = [[shown(each), ["f", stream.entries[each]]] for each in taken]
    return {**state, key: replace(stream, groups=groups)}, [[key, rows]]


def _xack(state: State, key: str, name: str, entry_id: str) -> tuple[State, Any]:
    stream, number = _stream(state, key), int(entry_id[:-2])
    group = stream.groups.get(name)
    if group is None or number not in group.pending:
        return state, 0
    pending = {each: who for each, who in group.pending.items() if each != number}
    groups = {**stream.groups, name: replace(group, pending=pending)}
    return {**state, key: replace(stream, groups=groups)}, 1


def _del(state: State, key: str) -> tuple[State, Any]:
    return {each: value for each, value in state.items() if each != key}, int(key in state)


def _rename(state: State, key: str, target: str) -> tuple[State, Any]:
    if key not in state:
        return state, ERROR
    left = {each: value for each, value in state.items() if each != key}
    return {**left, target: state[key]}, "OK"


def _copy(state: State, key: str, target: str, _replace: str) -> tuple[State, Any]:
    if key == target:
        return state, ERROR
    if key not in state:
        return state, 0
    return {**state, target: state[key]}, 1


def _incr(state: State, key: str) -> tuple[State, Any]:
    value = state.get(key, "0")
    assert isinstance(value, str)
    return {**state, key: str(int(value) + 1)}, int(value) + 1


# -- reading ----------------------------------------------------------------------------------


def _xread(state: State, *words: str) -> tuple[State, Any]:
    at = words.index("STREAMS") + 1
    count = (len(words) - at) // 2
    found = []
    for key, behind in zip(words[at : at + count], words[at + count :], strict=True):
        rows = _rows(_stream(state, key), int(behind))
        if rows:
            found.append([key, rows])
    return state, found or None


def _xpending(state: State, key: str, name: str) -> tuple[State, Any]:
    if key not in state or name not in _stream(state, key).groups:
        return state, ERROR
    pending = _stream(state, key).groups[name].pending
    if not pending:
        return state, [0, None, None, None]
    owners = sorted(set(pending.values()))
    counts = [[each, str(list(pending.values()).count(each))] for each in owners]
    return state, [len(pending), shown(min(pending)), shown(max(pending)), counts]


def _xinfo(state: State, _stream_word: str, key: str) -> tuple[State, Any]:
    if key not in state:
        return state, ERROR
    stream = _stream(state, key)
    facts = [len(stream.entries), shown(stream.last), shown(stream.deleted), stream.added]
    return state, [*facts, len(stream.groups)]


_COMMANDS: dict[str, Callable[..., tuple[State, Any]]] = {
    "XADD": _xadd,
    "XDEL": _xdel,
    "XTRIM": _xtrim,
    "XGROUP": _xgroup,
    "XREADGROUP": _xreadgroup,
    "XACK": _xack,
    "DEL": _del,
    "RENAME": _rename,
    "COPY": _copy,
    "INCR": _incr,
    "SET": lambda state, key, text: ({**state, key: text}, "OK"),
    "FLUSHDB": lambda _state: ({}, "OK"),
    "PUBLISH": lambda state, *_words: (state, None),
    **dict.fromkeys(UNFORETOLD - {"PUBLISH"}, lambda state, *_words: (state, None)),
    "WATCH": lambda state, _key: (state, "OK"),
    "XRANGE": lambda state, key, *_ends: (state, _rows(_stream(state, key))),
    "XREVRANGE": lambda state, key, *_ends: (state, _rows(_stream(state, key))[::-1]),
    "XLEN": lambda state, key: (state, len(_stream(state, key).entries)),
    "XREAD": _xread,
    "XPENDING": _xpending,
    "XINFO": _xinfo,
    "GET": lambda state, key: (state, state.get(key)),
    "EXISTS": lambda state, *keys: (state, sum(key in state for key in keys)),
    "DBSIZE": lambda state: (state, len(state)),
    "KEYS": lambda state, _all: (state, sorted(state)),
}
