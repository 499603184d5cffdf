"""The places of keys in a request: one rule for COMMAND GETKEYS, ACL checks and other code.

The row of a command describes its keys by key specifications. If a specification begins at a
keyword, the options before it are stepped over, as XREAD and XREADGROUP read their arguments: a
group or a consumer may be called STREAMS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.engine.arguments import integer_or_none
from anabranch.engine.spec import Command, KeySpec

_CHANNEL = "not_key"  # a shard channel: it stands where a key does, for routing


def has_keys(command: Command) -> bool:
    """Whether a request of this command can name keys at all."""
    return any(spec.flags != _CHANNEL for spec in command.keys)


def key_places(command: Command, args: list[bytes]) -> list[tuple[int, str]]:
    """Index of each key in the request, with the flags of its specification."""
    if command.find_keys is not None:
        return command.find_keys(args)
    return [
        (index, spec.flags)
        for spec in command.keys
        if spec.flags != _CHANNEL
        for index in _indices(spec, args)
    ]


def keys_of(command: Command, args: list[bytes]) -> list[tuple[bytes, str]]:
    """The keys themselves, with the flags of their specifications (``RW update``)."""
    return [(args[index], flags) for index, flags in key_places(command, args)]


def _indices(spec: KeySpec, args: list[bytes]) -> Iterator[int]:
    size = len(args)
    if isinstance(spec.begin, int):
        first = spec.begin
    else:
        assert spec.begin[0] == "STREAMS", "no command here has another keyword"
        first = streams_at(args)
    if not 0 < first < size:
        return iter(())
    if spec.counted:
        last = first + (integer_or_none(args[first]) or 0)
        first += 1
        if last >= size:
            return iter(())  # as in Redis: the command will refuse this
    elif spec.last >= 0:
        last = first + spec.last
    elif spec.limit > 1:
        last = first + (size - first) // spec.limit + spec.last
    else:
        last = size + spec.last
    return iter(range(first, min(last, size - 1) + 1, spec.step))


OPTION_WIDTH: Final = {
    b"COUNT": 2,
    b"MAXCOUNT": 2,
    b"MAXSIZE": 2,
    b"BLOCK": 2,
    b"CLAIM": 2,
    b"GROUP": 3,
    b"FROM": 2,
    b"CREDIT": 2,
    b"WHERE": 4,
}
"""The count of words of each option, its name included; one if it is not listed."""


def options_before(args: list[bytes], first: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """The options in front of the word before ``first``: each name in capitals, and all its words.

    An option that this word cuts off has fewer words.
    """
    at = 1
    while at < first - 1:
        name = args[at].upper()
        given = args[at : min(at + OPTION_WIDTH.get(name, 1), first - 1)]
        at += len(given)
        yield name, given


def streams_at(args: Sequence[bytes], words: tuple[bytes, ...] = (b"STREAMS",)) -> int:
    """The index of the first key, by the syntax of the options; 0 without STREAMS.

    ``words`` are those behind which names begin. A group or a consumer may be called STREAMS, so
    options are stepped over, not searched.
    """
    index = 1
    while index < len(args):
        word = args[index].upper()
        if word in words:
            return index + 1 if index + 1 < len(args) else 0
        index += OPTION_WIDTH.get(word, 1)
    return 0
