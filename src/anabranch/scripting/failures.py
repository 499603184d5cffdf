"""Errors of the functions that scripts call."""

from __future__ import annotations

from lupa import lua51


class Failure(Exception):
    """An error that a script gets, with its whole text."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


class LibraryError(Failure):
    """An error of a library. Its text names the place in the script, as errors of Lua do."""


class ArgumentError(Exception):
    """An argument that a function of a library cannot use; the first one is 1."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index = index
        self.problem = problem


def number_of(args: tuple[object, ...], index: int) -> float:
    """An argument that must be a number, or the text of one."""
    value = args[index - 1] if index <= len(args) else None
    if isinstance(value, bytes) and b"_" not in value:  # which Python allows between digits
        try:
            if b"x" in value.lower():
                return float.fromhex(value.decode("ascii"))
            return float(value)
        except (ValueError, OverflowError):
            pass
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(index, f"number expected, got {_type_of(args, index)}")
    return value


def text_in(args: tuple[object, ...], index: int) -> bytes:
    """An argument that must be text, or a number."""
    value = args[index - 1] if index <= len(args) else None
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(index, f"string expected, got {_type_of(args, index)}")
    return b"%.14g" % value


def _type_of(args: tuple[object, ...], index: int) -> str:
    """The name that Lua has for the type of an argument."""
    if index > len(args):
        return "no value"
    value = args[index - 1]
    if value is None:
        return "nil"
    if isinstance(value, bytes):
        return "string"
    return "boolean" if isinstance(value, bool) else lua51.lua_type(value) or "userdata"
