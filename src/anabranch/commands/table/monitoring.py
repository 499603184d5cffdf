"""The rows of the command table: INFO, LATENCY, MEMORY, SLOWLOG, COMMAND."""

from __future__ import annotations

from functools import partial

from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command, CommandFunction, KeySpec
from anabranch.commands.server import catalogue, info, latency, memory, slowlog

__all__ = ["COMMANDS"]

Row = partial(Command, group="server")


def _row(
    name: str,
    function: CommandFunction,
    arity: int,
    since: str,
    summary: str,
    *,
    complexity: str = "O(1)",
    syntax: str = "",
    tips: tuple[str, ...] = (
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ),
) -> Command:
    """A sub-command of LATENCY."""
    return Row(
        name,
        function,
        arity=arity,
        flags="admin noscript loading stale",
        since=since,
        summary=summary,
        complexity=complexity,
        syntax=syntax,
        tips=tips,
    )


_SHARDS = ("request_policy:all_shards", "response_policy:special", "nondeterministic_output")
_FLAGS = "admin loading stale"
_CATALOGUE_FLAGS = "loading stale"
_UNORDERED = ("nondeterministic_output_order",)


COMMANDS: list[Command] = [
    # server/info.py
    Row(
        "info",
        info.info,
        arity=-1,
        flags="loading stale",
        categories="dangerous",
        since="1.0.0",
        summary="Shows figures of the server.",
        complexity="O(N) where N is the number of commands and connections",
        syntax="[section [section ...]]",
        tips=(
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ),
        history=(("7.0.0", "Takes several sections."),),
    ),
    # server/latency.py
    Row(
        "latency",
        None,
        arity=-2,
        since="2.8.13",
        summary="Commands about latency.",
        subcommands=[
            _row("doctor", latency.doctor, 2, "2.8.13", "Tells in sentences what the monitor saw."),
            _row(
                "graph",
                latency.graph,
                3,
                "2.8.13",
                "Draws the samples of an event.",
                syntax="event",
            ),
            help_row("2.8.13"),
            _row(
                "histogram",
                latency.histogram,
                -2,
                "7.0.0",
                "Shows how long calls took, by command.",
                complexity="O(N) where N is the number of commands",
                syntax="[command [command ...]]",
            ),
            _row(
                "history",
                latency.history,
                3,
                "2.8.13",
                "Lists the samples of an event.",
                syntax="event",
            ),
            _row("latest", latency.latest, 2, "2.8.13", "Lists the latest sample of every event."),
            _row(
                "reset",
                latency.reset,
                -2,
                "2.8.13",
                "Forgets the samples of some or all events.",
                syntax="[event [event ...]]",
                tips=("request_policy:all_nodes", "response_policy:agg_sum"),
            ),
        ],
    ),
    # server/memory.py
    Row(
        "memory",
        None,
        arity=-2,
        since="4.0.0",
        summary="Commands about memory.",
        subcommands=[
            Row(
                "doctor",
                memory.doctor,
                arity=2,
                since="4.0.0",
                summary="Describes memory problems in sentences.",
                tips=_SHARDS,
            ),
            help_row("4.0.0"),
            Row(
                "malloc-stats",
                memory.malloc_stats,
                arity=2,
                since="4.0.0",
                summary="Answers that the allocator keeps no statistics.",
                tips=_SHARDS,
            ),
            Row(
                "purge",
                memory.purge,
                arity=2,
                since="4.0.0",
                summary="Gives memory that was freed back to the system.",
                tips=("request_policy:all_shards", "response_policy:all_succeeded"),
            ),
            Row(
                "stats",
                memory.stats,
                arity=2,
                since="4.0.0",
                summary="Shows the use of memory.",
                tips=_SHARDS,
            ),
            Row(
                "usage",
                memory.usage,
                arity=-3,
                flags="readonly",
                keys=(KeySpec("RO", begin=2),),
                since="4.0.0",
                summary="Estimates the bytes of a key with its value.",
                complexity="O(N) where N is the number of samples",
                syntax="key [SAMPLES count]",
            ),
        ],
    ),
    # server/slowlog.py
    Row(
        "slowlog",
        None,
        arity=-2,
        since="2.2.12",
        summary="Commands about the slow log.",
        subcommands=[
            Row(
                "get",
                slowlog.get,
                arity=-2,
                flags=_FLAGS,
                since="2.2.12",
                summary="Lists the latest slow requests, 10 by default, -1 for all.",
                complexity="O(N) where N is the number of entries listed",
                syntax="[count]",
                tips=("request_policy:all_nodes", "nondeterministic_output"),
                history=(("4.0.0", "Entries name the client and its address."),),
            ),
            Row(
                "len",
                slowlog.length,
                arity=2,
                flags=_FLAGS,
                since="2.2.12",
                summary="Counts the entries of the slow log.",
                tips=(
                    "request_policy:all_nodes",
                    "response_policy:agg_sum",
                    "nondeterministic_output",
                ),
            ),
            Row(
                "reset",
                slowlog.reset,
                arity=2,
                flags=_FLAGS,
                since="2.2.12",
                summary="Empties the slow log.",
                complexity="O(N) where N is the number of entries",
                tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
            ),
            help_row("6.2.0"),
        ],
    ),
    # server/catalogue.py
    Row(
        "command",
        catalogue.command,
        arity=-1,
        flags=_CATALOGUE_FLAGS,
        categories="connection",
        since="2.8.13",
        summary="Describes all commands.",
        complexity="O(N), N being the commands",
        tips=_UNORDERED,
        subcommands=[
            Row(
                "count",
                catalogue.count,
                arity=2,
                flags=_CATALOGUE_FLAGS,
                categories="connection",
                since="2.8.13",
                summary="Returns how many commands there are.",
                complexity="O(N), N being the commands",
            ),
            Row(
                "docs",
                catalogue.docs,
                arity=-2,
                flags=_CATALOGUE_FLAGS,
                categories="connection",
                since="7.0.0",
                summary="Returns summaries and arguments of commands.",
                complexity="O(N), N being the commands asked for",
                syntax="[command-name [command-name ...]]",
                tips=_UNORDERED,
            ),
            Row(
                "getkeys",
                catalogue.getkeys,
                arity=-3,
                flags=_CATALOGUE_FLAGS,
                categories="connection",
                since="2.8.13",
                summary="Finds the keys in a request.",
                complexity="O(N), N being the arguments of the request",
                syntax="command [arg [arg ...]]",
            ),
            Row(
                "getkeysandflags",
                catalogue.getkeysandflags,
                arity=-3,
                flags=_CATALOGUE_FLAGS,
                categories="connection",
                since="7.0.0",
                summary="Returns the keys of a request and how they are accessed.",
                complexity="O(N), N being the arguments of the request",
                syntax="command [arg [arg ...]]",
            ),
            Row(
                "info",
                catalogue.info,
                arity=-2,
                flags=_CATALOGUE_FLAGS,
                categories="connection",
                since="2.8.13",
                summary="Describes commands for clients: arity, flags, keys.",
                complexity="O(N), N being the commands asked for",
                syntax="[command-name [command-name ...]]",
                history=(("7.0.0", "Without names, all commands are described."),),
                tips=_UNORDERED,
            ),
            Row(
                "list",
                catalogue.list_,
                arity=-2,
                flags=_CATALOGUE_FLAGS,
                categories="connection",
                since="7.0.0",
                summary="Lists the names of commands.",
                complexity="O(N), N being the commands",
                syntax="[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
                tips=_UNORDERED,
            ),
            help_row("5.0.0", "connection"),
        ],
    ),
]
