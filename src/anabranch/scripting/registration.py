"""What a library registers: the arguments of redis.register_function()."""

from __future__ import annotations

from typing import Any

from lupa import lua51

from anabranch.commands.scripting.shebang import FLAGS, NAME_RULE, is_name
from anabranch.scripting.failures import Failure


def read_registration(args: tuple[object, ...]) -> tuple[bytes, tuple[Any, bytes, list[bytes]]]:
    """What redis.register_function() was called with: name, and function, description, flags."""
    fields: dict[object, object]
    if len(args) == 2:
        fields = {b"function_name": args[0], b"callback": args[1]}
        if lua51.lua_type(args[1]) != "function":
            raise Failure(b"ERR second argument to redis.register_function must be a function")
    elif len(args) == 1:
        if lua51.lua_type(args[0]) != "table":
            raise Failure(
                b"ERR calling redis.register_function with a single argument is only applicable "
                b"to Lua table (representing named arguments)."
            )
        fields = dict(args[0].items())  # type: ignore[attr-defined]
    else:
        raise Failure(b"ERR wrong number of arguments to redis.register_function")
    if not fields.keys() <= {b"function_name", b"callback", b"flags", b"description"}:
        raise Failure(b"ERR unknown argument given to redis.register_function")
    name, about = fields.get(b"function_name"), fields.get(b"description", b"")
    if name is None:
        raise Failure(b"ERR redis.register_function must get a function name argument")
    if not isinstance(name, bytes):
        raise Failure(
            b"ERR function_name argument given to redis.register_function must be a string"
        )
    if not isinstance(about, bytes):
        raise Failure(b"ERR description argument given to redis.register_function must be a string")
    if not is_name(name):
        raise Failure(NAME_RULE.encode())
    callback = fields.get(b"callback")
    if callback is None:
        raise Failure(b"ERR redis.register_function must get a callback argument")
    if lua51.lua_type(callback) != "function":
        raise Failure(b"ERR callback argument given to redis.register_function must be a function")
    flags: list[bytes] = []
    if b"flags" in fields:
        if lua51.lua_type(fields[b"flags"]) != "table":
            raise Failure(
                b"ERR flags argument to redis.register_function must be a table representing "
                b"function flags"
            )
        flags = list(fields[b"flags"].values())  # type: ignore[attr-defined]
    if not set(flags) <= FLAGS:
        raise Failure(b"ERR unknown flag given")
    return name, (callback, about, flags)
