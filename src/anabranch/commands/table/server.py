"""The rows of the command table: administration: roles, snapshots, CONFIG, DEBUG."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "server",
    "anabranch.commands.server",
    """
time 1 administration.time 2.6.0 loading stale fast
    does: Returns the server's time in seconds and microseconds.
    tips: nondeterministic_output
role 1 administration.role 2.8.12 noscript loading stale fast
    does: Returns the role of the server, which is always master.
    acl: admin dangerous
wait 3 administration.wait 3.0.0 blocking
    numreplicas timeout
    does: Waits until other regions have applied what this connection has written.
    acl: connection
    group: generic
    tips: request_policy:all_shards response_policy:agg_min
waitaof 4 administration.waitaof 7.2.0 blocking
    numlocal numreplicas timeout
    does: Waits until earlier writes are in the log on disk, here or in other regions.
    acl: connection
    group: generic
    tips: request_policy:all_shards response_policy:agg_min
monitor 1 administration.monitor 1.0.0 admin noscript loading stale
    does: Shows every request of every connection from now on.
    cost: -
shutdown -1 administration.shutdown 1.0.0 admin noscript loading stale no_multi allow_busy
    [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]
    does: Stops the server.
    cost: O(N) where N is the size of what is saved
    history: 7.0.0 Takes NOW, FORCE and ABORT.
replicaof 3 administration.replicaof 5.0.0 admin noscript stale no_async_loading
    host port | NO ONE
    does: Accepts NO ONE, which is the case already; refuses all else.
slaveof 3 administration.replicaof 1.0.0 admin noscript stale no_async_loading
    host port | NO ONE
    does: The old name of REPLICAOF.
psync -3 administration.no_sync 2.8.0 admin noscript no_async_loading no_multi
    replicationid offset
    does: Refused: there are no read-only replicas.
    cost: -
sync 1 administration.no_sync 1.0.0 admin noscript no_async_loading no_multi
    does: Refused: there are no read-only replicas.
    cost: -
replconf -1 administration.no_sync 3.0.0 admin noscript loading stale allow_busy
    does: Refused: there are no read-only replicas.
failover -1 administration.no_replicas 6.2.0 admin noscript stale
    [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]
    does: Refused: there are no read-only replicas.
module -2 - 4.0.0
    does: Commands about modules, of which there are none.
    help: 5.0.0
module|list 2 administration.module_list 4.0.0 admin noscript
    does: Lists the loaded modules: none.
    tips: nondeterministic_output_order
lolwut -1 administration.lolwut 5.0.0 readonly fast
    [VERSION version]
    does: Draws something and names the version.
save 1 saving.save 1.0.0 admin noscript no_async_loading no_multi
    does: Takes a snapshot and replies when it is on the disk.
    cost: O(N), N being all there is.
bgsave -1 saving.bgsave 1.0.0 admin noscript no_async_loading
    [SCHEDULE]
    does: Takes a snapshot in the background.
    cost: O(N), N being all there is.
    history: 3.2.2 Takes SCHEDULE.
lastsave 1 saving.lastsave 1.0.0 loading stale fast
    does: Returns the Unix time of the last save.
    acl: admin dangerous
    tips: nondeterministic_output
bgrewriteaof 1 saving.bgrewriteaof 1.0.0 admin noscript no_async_loading
    does: Takes a snapshot in the background and drops the log before it.
config -2 - 2.0.0
    does: A container for the commands that read and change settings.
    cost: Depends on subcommand.
    help: 5.0.0
config|get -3 config.config_get 2.0.0 admin noscript loading stale
    parameter [parameter ...]
    does: Shows the settings whose names match a pattern.
    cost: O(N) with N settings known to the server
    history: 7.0.0 Takes several patterns.
config|set -4 config.config_set 2.0.0 admin noscript loading stale
    parameter value [parameter value ...]
    does: Changes settings of the running server, all or none.
    cost: O(N) with N settings given
    tips: request_policy:all_nodes response_policy:all_succeeded
    history: 7.0.0 Takes several settings.
config|resetstat 2 config.config_resetstat 2.0.0 admin noscript loading stale
    does: Sets the statistics of INFO back to zero.
    tips: request_policy:all_nodes response_policy:all_succeeded
config|rewrite 2 config.config_rewrite 2.8.0 admin noscript loading stale
    does: Writes the present settings into the configuration file.
    tips: request_policy:all_nodes response_policy:all_succeeded
debug -2 debug.debug 1.0.0 admin noscript loading stale
    subcommand [argument ...]
    does: For tests and for looking inside.
    cost: Depends on the sub-command
""",
)
