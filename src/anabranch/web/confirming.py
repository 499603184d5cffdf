"""Which commands of the page's command line delete: the page asks before it runs one of them.

That follows from the command table: a row says of each key whether the command deletes in it. A few
commands delete by an option, or what is no key.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.engine.key_extraction import keys_of
from anabranch.engine.spec import Command
from anabranch.web.plain import shown_name

_ALWAYS: Final = frozenset(
    {
        *("flushall", "flushdb", "acl|deluser", "ab.region|remove"),
        *("expire", "expireat", "pexpire", "pexpireat"),
    }
)

_BY_OPTION: Final = {
    "xadd": {b"MAXLEN", b"MINID"},
    "ab.import": {b"MAXLEN", b"MINID"},
    "restore": {b"REPLACE"},
    "copy": {b"REPLACE"},
    "getex": {b"EX", b"PX", b"EXAT", b"PXAT"},
}

_NEVER: Final = frozenset({"xautoclaim"})
"""Deletes pending entries whose entries are deleted already."""

_LOCAL: Final = frozenset({"xgroup|delconsumer", "acl|deluser"})
"""Concern this region alone."""


def question(command: Command, words: list[bytes], *, is_region: bool) -> dict[str, Any] | None:
    """What to ask before a command that deletes: ``what`` it does, and the ``name`` to type.

    The name is that of the only key, else that of the command. None: the command deletes nothing.
    """
    keys = keys_of(command, words)
    name = command.full_name
    deletes = name in _ALWAYS or any("delete" in flags.split() for _, flags in keys)
    if name in _BY_OPTION:
        deletes = any(word.upper() in _BY_OPTION[name] for word in words[2:])
    if not deletes or name in _NEVER:
        return None
    what = command.summary
    if len(keys) > 1:
        what += f" The command names {len(keys)} keys."
    if is_region and name not in _LOCAL:
        what += " It does so in all regions."
    shown = keys[0][0] if len(keys) == 1 else name.replace("|", " ").upper().encode()
    return {"what": what, "name": shown_name(shown)}
