"""The rows of the command table: scripts and functions."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "scripting",
    "anabranch.commands.scripting",
    """
eval -3 evaluation.evaluate 2.6.0 noscript stale skip_monitor no_mandatory_keys movablekeys
    script numkeys [key [key ...]] [arg [arg ...]]
    does: Runs a script of Lua as one transaction.
    flags: script_runner
    cost: Depends on the script.
    keys: @2# RW access update
evalsha -3 evaluation.evaluate_by_hash 2.6.0 noscript stale skip_monitor no_mandatory_keys
    sha1 numkeys [key [key ...]] [arg [arg ...]]
    does: Runs a script that the server knows, by its hash.
    flags: movablekeys script_runner
    cost: Depends on the script.
    keys: @2# RW access update
eval_ro -3 evaluation.evaluate 7.0.0 readonly noscript stale skip_monitor no_mandatory_keys
    script numkeys [key [key ...]] [arg [arg ...]]
    does: Runs a script that only reads.
    flags: movablekeys script_runner
    cost: Depends on the script.
    keys: @2# RO access
evalsha_ro -3 evaluation.evaluate_by_hash 7.0.0 readonly noscript stale skip_monitor
    sha1 numkeys [key [key ...]] [arg [arg ...]]
    does: Runs a script that only reads, by its hash.
    flags: no_mandatory_keys movablekeys script_runner
    cost: Depends on the script.
    keys: @2# RO access
fcall -3 functions.fcall 7.0.0 noscript stale skip_monitor no_mandatory_keys movablekeys
    function numkeys [key [key ...]] [arg [arg ...]]
    does: Runs a function of a library.
    flags: script_runner
    cost: Depends on the script.
    keys: @2# RW access update
fcall_ro -3 functions.fcall 7.0.0 readonly noscript stale skip_monitor no_mandatory_keys movablekeys
    function numkeys [key [key ...]] [arg [arg ...]]
    does: Runs a function of a library that only reads.
    flags: script_runner
    cost: Depends on the script.
    keys: @2# RO access
script -2 - 2.6.0
    does: Commands about scripts.
    help: 5.0.0 scripting
script|load 3 evaluation.script_load 2.6.0 noscript stale
    script
    does: Keeps a script for EVALSHA; answers its hash.
    cost: O(N), N being the length of the script
    tips: request_policy:all_nodes response_policy:all_succeeded
script|exists -3 evaluation.script_exists 2.6.0 noscript
    sha1 [sha1 ...]
    does: Answers which scripts EVALSHA finds.
    cost: O(N) where N is the number of scripts asked for
    tips: request_policy:all_shards response_policy:agg_logical_and
script|flush -2 evaluation.script_flush 2.6.0 noscript
    [ASYNC | SYNC]
    does: Forgets all scripts.
    cost: O(N), N being the number of scripts
    tips: request_policy:all_nodes response_policy:all_succeeded
script|kill 2 evaluation.script_kill 2.6.0 noscript allow_busy
    does: Ends the script that runs, if it has written nothing.
    tips: request_policy:all_shards response_policy:one_succeeded
function -2 - 7.0.0
    does: Commands about libraries of functions.
    help: 7.0.0 scripting
function|load -3 functions.function_load 7.0.0 write denyoom noscript
    [REPLACE] function-code
    does: Loads a library; answers its name.
    cost: O(N), N being the length of the source
    tips: request_policy:all_shards response_policy:all_succeeded
function|delete 3 functions.function_delete 7.0.0 write noscript
    library-name
    does: Deletes a library.
    tips: request_policy:all_shards response_policy:all_succeeded
function|flush -2 functions.function_flush 7.0.0 write noscript
    [ASYNC | SYNC]
    does: Deletes all libraries.
    cost: O(N), N being the number of libraries
    tips: request_policy:all_shards response_policy:all_succeeded
function|list -2 functions.function_list 7.0.0 noscript
    [LIBRARYNAME library-name-pattern] [WITHCODE]
    does: Lists the libraries and their functions.
    cost: O(N), N being the number of functions
    tips: nondeterministic_output_order
function|dump 2 functions.function_dump 7.0.0 noscript
    does: Returns the sources of all libraries.
    cost: O(N), N being the length of the sources
function|restore -3 functions.function_restore 7.0.0 write denyoom noscript
    serialized-value [FLUSH | APPEND | REPLACE]
    does: Loads the libraries of a dump.
    cost: O(N), N being the length of the sources
    tips: request_policy:all_shards response_policy:all_succeeded
function|kill 2 evaluation.script_kill 7.0.0 noscript allow_busy
    does: Ends the function that runs, if it has written nothing.
    tips: request_policy:all_shards response_policy:one_succeeded
function|stats 2 functions.function_stats 7.0.0 noscript allow_busy
    does: Describes the function that runs.
    tips: nondeterministic_output request_policy:all_shards response_policy:special
""",
)
