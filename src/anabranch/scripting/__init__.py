"""The Lua machine: runs scripts inside limits of memory and time. Needs ``anabranch[lua]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import CommandError

if TYPE_CHECKING:
    from anabranch.engine.script_machine import ScriptMachine

__all__ = ["new_machine"]


def new_machine(memory_bytes: int) -> ScriptMachine:
    """A machine whose scripts may take so much memory together.

    Raises :class:`CommandError` if the packages that it needs are not installed.
    """
    try:
        # Few servers run scripts: the others do not pay for the import.
        from anabranch.scripting.machine import LuaMachine  # noqa: PLC0415
    except ImportError:
        raise CommandError(
            "ERR scripts need Lua, which is not installed: pip install 'anabranch[lua]'"
        ) from None
    return LuaMachine(memory_bytes)
