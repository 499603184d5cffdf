"""The rows of the command table: scripts and functions."""

from __future__ import annotations

from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command, CommandFunction
from anabranch.commands.scripting import evaluation, functions, scripts

__all__ = ["COMMANDS"]

_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys script_runner"
_SLOW = "slow scripting"
_ALL_NODES = ("request_policy:all_nodes", "response_policy:all_succeeded")
_ALL_SHARDS = ("request_policy:all_shards", "response_policy:all_succeeded")
_ONE_SHARD = ("request_policy:all_shards", "response_policy:one_succeeded")


def _runner(
    name: str, function: CommandFunction, since: str, summary: str, first: str, flags: str = ""
) -> Command:
    """A command that runs a script: its keys are behind their number."""
    return Command(
        name,
        function,
        arity=-3,
        flags=f"{flags} {_FLAGS}",
        categories=_SLOW,
        key_positions=evaluation.keys,
        since=since,
        group="scripting",
        summary=summary,
        complexity="Depends on the script.",
        syntax=f"{first} numkeys [key [key ...]] [arg [arg ...]]",
    )


_SCRIPT = Command(
    "script",
    None,
    arity=-2,
    categories="slow",
    since="2.6.0",
    group="scripting",
    summary="Commands about scripts.",
    complexity="Depends on the sub-command",
    subcommands=[
        Command(
            "load",
            scripts.script_load,
            arity=3,
            flags="noscript stale",
            categories=_SLOW,
            since="2.6.0",
            group="scripting",
            summary="Keeps a script for EVALSHA; answers its hash.",
            complexity="O(N), N being the length of the script",
            syntax="script",
            tips=_ALL_NODES,
        ),
        Command(
            "exists",
            scripts.script_exists,
            arity=-3,
            flags="noscript",
            categories=_SLOW,
            since="2.6.0",
            group="scripting",
            summary="Answers which scripts EVALSHA finds.",
            complexity="O(N) where N is the number of scripts asked for",
            syntax="sha1 [sha1 ...]",
            tips=("request_policy:all_shards", "response_policy:agg_logical_and"),
        ),
        Command(
            "flush",
            scripts.script_flush,
            arity=-2,
            flags="noscript",
            categories=_SLOW,
            since="2.6.0",
            group="scripting",
            summary="Forgets all scripts.",
            complexity="O(N), N being the number of scripts",
            syntax="[ASYNC | SYNC]",
            tips=_ALL_NODES,
        ),
        Command(
            "kill",
            scripts.script_kill,
            arity=2,
            flags="noscript allow_busy",
            categories=_SLOW,
            since="2.6.0",
            group="scripting",
            summary="Ends the script that runs, if it has written nothing.",
            complexity="O(1)",
            tips=_ONE_SHARD,
        ),
        help_row("5.0.0", _SLOW),
    ],
)


_FUNCTION = Command(
    "function",
    None,
    arity=-2,
    categories="slow",
    since="7.0.0",
    group="scripting",
    summary="Commands about libraries of functions.",
    complexity="Depends on the sub-command",
    subcommands=[
        Command(
            "load",
            functions.function_load,
            arity=-3,
            flags="write denyoom noscript",
            categories="write slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Loads a library; answers its name.",
            complexity="O(N), N being the length of the source",
            syntax="[REPLACE] function-code",
            tips=_ALL_SHARDS,
        ),
        Command(
            "delete",
            functions.function_delete,
            arity=3,
            flags="write noscript",
            categories="write slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Deletes a library.",
            complexity="O(1)",
            syntax="library-name",
            tips=_ALL_SHARDS,
        ),
        Command(
            "flush",
            functions.function_flush,
            arity=-2,
            flags="write noscript",
            categories="write slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Deletes all libraries.",
            complexity="O(N), N being the number of libraries",
            syntax="[ASYNC | SYNC]",
            tips=_ALL_SHARDS,
        ),
        Command(
            "list",
            functions.function_list,
            arity=-2,
            flags="noscript",
            categories="slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Lists the libraries and their functions.",
            complexity="O(N), N being the number of functions",
            syntax="[LIBRARYNAME library-name-pattern] [WITHCODE]",
            tips=("nondeterministic_output_order",),
        ),
        Command(
            "dump",
            functions.function_dump,
            arity=2,
            flags="noscript",
            categories="slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Returns the sources of all libraries.",
            complexity="O(N), N being the length of the sources",
        ),
        Command(
            "restore",
            functions.function_restore,
            arity=-3,
            flags="write denyoom noscript",
            categories="write slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Loads the libraries of a dump.",
            complexity="O(N), N being the length of the sources",
            syntax="serialized-value [FLUSH | APPEND | REPLACE]",
            tips=_ALL_SHARDS,
        ),
        Command(
            "kill",
            scripts.script_kill,
            arity=2,
            flags="noscript allow_busy",
            categories="slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Ends the function that runs, if it has written nothing.",
            complexity="O(1)",
            tips=_ONE_SHARD,
        ),
        Command(
            "stats",
            functions.function_stats,
            arity=2,
            flags="noscript allow_busy",
            categories="slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Describes the function that runs.",
            complexity="O(1)",
            tips=(
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ),
        ),
        help_row("7.0.0", _SLOW),
    ],
)


COMMANDS: list[Command] = [
    _runner(
        "eval",
        evaluation.evaluate,
        "2.6.0",
        "Runs a script of Lua as one transaction.",
        "script",
    ),
    _runner(
        "evalsha",
        evaluation.evaluate_by_hash,
        "2.6.0",
        "Runs a script that the server knows, by its hash.",
        "sha1",
    ),
    _runner(
        "eval_ro",
        evaluation.evaluate,
        "7.0.0",
        "Runs a script that only reads.",
        "script",
        "readonly",
    ),
    _runner(
        "evalsha_ro",
        evaluation.evaluate_by_hash,
        "7.0.0",
        "Runs a script that only reads, by its hash.",
        "sha1",
        "readonly",
    ),
    _runner("fcall", functions.fcall, "7.0.0", "Runs a function of a library.", "function"),
    _runner(
        "fcall_ro",
        functions.fcall,
        "7.0.0",
        "Runs a function of a library that only reads.",
        "function",
        "readonly",
    ),
    _SCRIPT,
    _FUNCTION,
]
