"""The rows of the command table: scripts and functions."""

from __future__ import annotations

from functools import partial

from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command, CommandFunction, KeySpec
from anabranch.commands.scripting import evaluation, functions, scripts

__all__ = ["COMMANDS"]

Row = partial(Command, group="scripting")

_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys script_runner"
_ALL_NODES = ("request_policy:all_nodes", "response_policy:all_succeeded")
_ALL_SHARDS = ("request_policy:all_shards", "response_policy:all_succeeded")
_ONE_SHARD = ("request_policy:all_shards", "response_policy:one_succeeded")


def _runner(
    name: str, function: CommandFunction, since: str, summary: str, first: str, flags: str = ""
) -> Command:
    """A command that runs a script: its keys are behind their number."""
    use = "RO access" if flags else "RW access update"
    return Row(
        name,
        function,
        arity=-3,
        flags=f"{flags} {_FLAGS}",
        keys=(KeySpec(use, begin=2, counted=True),),
        since=since,
        summary=summary,
        complexity="Depends on the script.",
        syntax=f"{first} numkeys [key [key ...]] [arg [arg ...]]",
    )


_SCRIPT = Row(
    "script",
    None,
    arity=-2,
    categories="",
    since="2.6.0",
    summary="Commands about scripts.",
    subcommands=[
        Row(
            "load",
            scripts.script_load,
            arity=3,
            flags="noscript stale",
            since="2.6.0",
            summary="Keeps a script for EVALSHA; answers its hash.",
            complexity="O(N), N being the length of the script",
            syntax="script",
            tips=_ALL_NODES,
        ),
        Row(
            "exists",
            scripts.script_exists,
            arity=-3,
            flags="noscript",
            since="2.6.0",
            summary="Answers which scripts EVALSHA finds.",
            complexity="O(N) where N is the number of scripts asked for",
            syntax="sha1 [sha1 ...]",
            tips=("request_policy:all_shards", "response_policy:agg_logical_and"),
        ),
        Row(
            "flush",
            scripts.script_flush,
            arity=-2,
            flags="noscript",
            since="2.6.0",
            summary="Forgets all scripts.",
            complexity="O(N), N being the number of scripts",
            syntax="[ASYNC | SYNC]",
            tips=_ALL_NODES,
        ),
        Row(
            "kill",
            scripts.script_kill,
            arity=2,
            flags="noscript allow_busy",
            since="2.6.0",
            summary="Ends the script that runs, if it has written nothing.",
            tips=_ONE_SHARD,
        ),
        help_row("5.0.0", "scripting"),
    ],
)


_FUNCTION = Row(
    "function",
    None,
    arity=-2,
    categories="",
    since="7.0.0",
    summary="Commands about libraries of functions.",
    subcommands=[
        Row(
            "load",
            functions.function_load,
            arity=-3,
            flags="write denyoom noscript",
            since="7.0.0",
            summary="Loads a library; answers its name.",
            complexity="O(N), N being the length of the source",
            syntax="[REPLACE] function-code",
            tips=_ALL_SHARDS,
        ),
        Row(
            "delete",
            functions.function_delete,
            arity=3,
            flags="write noscript",
            since="7.0.0",
            summary="Deletes a library.",
            syntax="library-name",
            tips=_ALL_SHARDS,
        ),
        Row(
            "flush",
            functions.function_flush,
            arity=-2,
            flags="write noscript",
            since="7.0.0",
            summary="Deletes all libraries.",
            complexity="O(N), N being the number of libraries",
            syntax="[ASYNC | SYNC]",
            tips=_ALL_SHARDS,
        ),
        Row(
            "list",
            functions.function_list,
            arity=-2,
            flags="noscript",
            since="7.0.0",
            summary="Lists the libraries and their functions.",
            complexity="O(N), N being the number of functions",
            syntax="[LIBRARYNAME library-name-pattern] [WITHCODE]",
            tips=("nondeterministic_output_order",),
        ),
        Row(
            "dump",
            functions.function_dump,
            arity=2,
            flags="noscript",
            since="7.0.0",
            summary="Returns the sources of all libraries.",
            complexity="O(N), N being the length of the sources",
        ),
        Row(
            "restore",
            functions.function_restore,
            arity=-3,
            flags="write denyoom noscript",
            since="7.0.0",
            summary="Loads the libraries of a dump.",
            complexity="O(N), N being the length of the sources",
            syntax="serialized-value [FLUSH | APPEND | REPLACE]",
            tips=_ALL_SHARDS,
        ),
        Row(
            "kill",
            scripts.script_kill,
            arity=2,
            flags="noscript allow_busy",
            since="7.0.0",
            summary="Ends the function that runs, if it has written nothing.",
            tips=_ONE_SHARD,
        ),
        Row(
            "stats",
            functions.function_stats,
            arity=2,
            flags="noscript allow_busy",
            since="7.0.0",
            summary="Describes the function that runs.",
            tips=(
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ),
        ),
        help_row("7.0.0", "scripting"),
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
