"""One command of a server, as the dispatcher finds it by name."""

from __future__ import annotations

from anabranch.engine.spec import Command, CommandFunction
from anabranch.metrics.stats import CommandStats


class ServedCommand(CommandStats):
    """A command of this server: its row, its function, its statistics."""

    def __init__(self, command: Command) -> None:
        super().__init__()
        self.command = command
        self.full_name = command.full_name
        self.function: CommandFunction | None = command.function
        self.low = abs(command.arity)
        self.high = command.arity if command.arity >= 0 else 1 << 31
        if command.subcommands:  # no count fits: the dispatcher must look at the second word
            self.low, self.high = 1 << 31, 0
        self.is_container = command.is_container
        self.subcommands: dict[bytes, ServedCommand] = {}
        # Works on streams only: it cannot change who the client is, nor what it may do next.
        self.is_tame = command.group == "stream"
