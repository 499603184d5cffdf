"""The rows of the command table: administration: roles, snapshots, CONFIG, DEBUG."""

from __future__ import annotations

from functools import partial

from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command
from anabranch.commands.server import administration, config, debug, saving

__all__ = ["COMMANDS"]

Row = partial(Command, group="server")

_REPLICATION_FLAGS = "admin noscript stale no_async_loading"
_DANGEROUS = "admin slow dangerous"
_ACKNOWLEDGEMENT_TIPS = ("request_policy:all_shards", "response_policy:agg_min")
_ADMIN = "admin noscript loading stale"
_EVERYWHERE = ("request_policy:all_nodes", "response_policy:all_succeeded")
_ALL_SHARDS = ("request_policy:all_shards", "response_policy:all_succeeded")

COMMANDS: list[Command] = [
    # server/administration.py
    Row(
        "time",
        administration.time,
        arity=1,
        flags="loading stale fast",
        since="2.6.0",
        summary="Returns the server's time in seconds and microseconds.",
        tips=("nondeterministic_output",),
    ),
    Row(
        "role",
        administration.role,
        arity=1,
        flags="noscript loading stale fast",
        categories="admin dangerous",
        since="2.8.12",
        summary="Returns the role of the server, which is always master.",
    ),
    Row(
        "wait",
        administration.wait,
        arity=3,
        flags="blocking",
        categories="connection",
        since="3.0.0",
        group="generic",
        summary="Waits until other regions have applied what this connection has written.",
        syntax="numreplicas timeout",
        tips=_ACKNOWLEDGEMENT_TIPS,
    ),
    Row(
        "waitaof",
        administration.waitaof,
        arity=4,
        flags="blocking",
        categories="connection",
        since="7.2.0",
        group="generic",
        summary="Waits until earlier writes are in the log on disk, here or in other regions.",
        syntax="numlocal numreplicas timeout",
        tips=_ACKNOWLEDGEMENT_TIPS,
    ),
    Row(
        "monitor",
        administration.monitor,
        arity=1,
        flags="admin noscript loading stale",
        since="1.0.0",
        summary="Shows every request of every connection from now on.",
        complexity="",
    ),
    Row(
        "shutdown",
        administration.shutdown,
        arity=-1,
        flags="admin noscript loading stale no_multi allow_busy",
        since="1.0.0",
        summary="Stops the server.",
        complexity="O(N) where N is the size of what is saved",
        syntax="[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        history=(("7.0.0", "Takes NOW, FORCE and ABORT."),),
    ),
    Row(
        "replicaof",
        administration.replicaof,
        arity=3,
        flags=_REPLICATION_FLAGS,
        since="5.0.0",
        summary="Accepts NO ONE, which is the case already; refuses all else.",
        syntax="host port | NO ONE",
    ),
    Row(
        "slaveof",
        administration.replicaof,
        arity=3,
        flags=_REPLICATION_FLAGS,
        since="1.0.0",
        summary="The old name of REPLICAOF.",
        syntax="host port | NO ONE",
    ),
    Row(
        "psync",
        administration.no_sync,
        arity=-3,
        flags="admin noscript no_async_loading no_multi",
        since="2.8.0",
        summary="Refused: there are no read-only replicas.",
        complexity="",
        syntax="replicationid offset",
    ),
    Row(
        "sync",
        administration.no_sync,
        arity=1,
        flags="admin noscript no_async_loading no_multi",
        since="1.0.0",
        summary="Refused: there are no read-only replicas.",
        complexity="",
    ),
    Row(
        "replconf",
        administration.no_sync,
        arity=-1,
        flags="admin noscript loading stale allow_busy",
        since="3.0.0",
        summary="Refused: there are no read-only replicas.",
    ),
    Row(
        "failover",
        administration.no_replicas,
        arity=-1,
        flags="admin noscript stale",
        since="6.2.0",
        summary="Refused: there are no read-only replicas.",
        syntax="[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
    ),
    Row(
        "module",
        None,
        arity=-2,
        since="4.0.0",
        summary="Commands about modules, of which there are none.",
        subcommands=[
            Row(
                "list",
                administration.module_list,
                arity=2,
                flags="admin noscript",
                since="4.0.0",
                summary="Lists the loaded modules: none.",
                tips=("nondeterministic_output_order",),
            ),
            help_row("5.0.0"),
        ],
    ),
    Row(
        "lolwut",
        administration.lolwut,
        arity=-1,
        flags="readonly fast",
        since="5.0.0",
        summary="Draws something and names the version.",
        syntax="[VERSION version]",
    ),
    # server/saving.py
    Row(
        "save",
        saving.save,
        arity=1,
        flags="admin noscript no_async_loading no_multi",
        since="1.0.0",
        summary="Takes a snapshot and replies when it is on the disk.",
        complexity="O(N), N being all there is.",
    ),
    Row(
        "bgsave",
        saving.bgsave,
        arity=-1,
        flags="admin noscript no_async_loading",
        since="1.0.0",
        summary="Takes a snapshot in the background.",
        complexity="O(N), N being all there is.",
        syntax="[SCHEDULE]",
        history=(("3.2.2", "Takes SCHEDULE."),),
    ),
    Row(
        "lastsave",
        saving.lastsave,
        arity=1,
        flags="loading stale fast",
        categories="admin dangerous",
        since="1.0.0",
        summary="Returns the Unix time of the last save.",
        tips=("nondeterministic_output",),
    ),
    Row(
        "bgrewriteaof",
        saving.bgrewriteaof,
        arity=1,
        flags="admin noscript no_async_loading",
        since="1.0.0",
        summary="Takes a snapshot in the background and drops the log before it.",
    ),
    # server/config.py
    Row(
        "config",
        None,
        arity=-2,
        since="2.0.0",
        summary="A container for the commands that read and change settings.",
        complexity="Depends on subcommand.",
        subcommands=[
            Row(
                "get",
                config.config_get,
                arity=-3,
                flags=_ADMIN,
                since="2.0.0",
                summary="Shows the settings whose names match a pattern.",
                complexity="O(N) with N settings known to the server",
                syntax="parameter [parameter ...]",
                history=[("7.0.0", "Takes several patterns.")],
            ),
            Row(
                "set",
                config.config_set,
                arity=-4,
                flags=_ADMIN,
                tips=_EVERYWHERE,
                since="2.0.0",
                summary="Changes settings of the running server, all or none.",
                complexity="O(N) with N settings given",
                syntax="parameter value [parameter value ...]",
                history=[("7.0.0", "Takes several settings.")],
            ),
            Row(
                "resetstat",
                config.config_resetstat,
                arity=2,
                flags=_ADMIN,
                tips=_EVERYWHERE,
                since="2.0.0",
                summary="Sets the statistics of INFO back to zero.",
            ),
            Row(
                "rewrite",
                config.config_rewrite,
                arity=2,
                flags=_ADMIN,
                tips=_EVERYWHERE,
                since="2.8.0",
                summary="Writes the present settings into the configuration file.",
            ),
            help_row("5.0.0"),
        ],
    ),
    # server/debug.py
    Row(
        "debug",
        debug.debug,
        arity=-2,
        flags="admin noscript loading stale",
        since="1.0.0",
        summary="For tests and for looking inside.",
        complexity="Depends on the sub-command",
        syntax="subcommand [argument ...]",
    ),
]
