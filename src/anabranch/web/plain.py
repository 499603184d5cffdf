"""Converts replies to JSON, and JSON to commands. Bytes that are not UTF-8 become base64."""

from __future__ import annotations

import base64
from collections.abc import ItemsView
from typing import Any, Final

from anabranch.scheduling import Steps

NAME_BYTES_MAX: Final = 1024
"""A longer name is cut where many names are shown."""

NAME_BYTES_LEFT: Final = 100
"""What is left of it."""


def shown_bytes(raw: bytes) -> Any:
    """Text, or ``{"b64": ...}`` if the bytes are not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode("ascii")}


def shown_name(raw: bytes) -> Any:
    """The same for a name, as it may be very long: then ``{"cut": ..., "size": ...}``."""
    if len(raw) <= NAME_BYTES_MAX:
        return shown_bytes(raw)
    return {"cut": raw[:NAME_BYTES_LEFT].decode("utf-8", "replace"), "size": len(raw)}


def plain(reply: Any) -> Steps[Any]:
    """A reply of hiredis in the types of JSON; maps become lists of pairs."""
    if isinstance(reply, bytes):
        return shown_bytes(reply)
    if isinstance(reply, dict):
        reply = reply.items()
    if isinstance(reply, list | tuple | set | frozenset | ItemsView):
        found = []
        for item in reply:
            found.append((yield from plain(item)))
            yield
        return found
    if isinstance(reply, Exception):
        return {"error": str(reply)}
    return reply


def words_of(command: Any) -> Steps[list[bytes]]:
    """The words of a command; raises :class:`ValueError` if the value is not a command."""
    if not isinstance(command, list) or not command:
        raise ValueError("a command is a list of words")
    words = []
    for word in command:
        yield
        if isinstance(word, str):
            words.append(word.encode("utf-8", "surrogatepass"))
        elif isinstance(word, int) and not isinstance(word, bool):
            words.append(b"%d" % word)
        elif isinstance(word, dict) and isinstance(word.get("b64"), str):
            words.append(base64.b64decode(word["b64"], validate=True))
        else:
            raise ValueError('a word is text, a whole number, or {"b64": ...}')
    return words
