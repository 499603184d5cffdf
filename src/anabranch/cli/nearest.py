"""Groups of sub-commands that answer an unknown name with the nearest one."""

from __future__ import annotations

from difflib import get_close_matches

import click


class NearestGroup(click.Group):
    """A group; not every version of click names the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The sub-command; :class:`click.UsageError` with the nearest name if there is none."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, known, n=1)
            advice = f"Did you mean '{near[0]}'?" if near else "The help lists all of them."
            ctx.fail(f"No such command '{name}'. {advice}")
        return super().resolve_command(ctx, args)
