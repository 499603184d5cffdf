"""The rows of the command table: the server, what it observes, and ACL."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = [
    *rows(
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
save 1 administration.save 1.0.0 admin noscript no_async_loading no_multi
    does: Takes a snapshot and replies when it is on the disk.
    cost: O(N), N being all there is.
bgsave -1 administration.bgsave 1.0.0 admin noscript no_async_loading
    [SCHEDULE]
    does: Takes a snapshot in the background.
    cost: O(N), N being all there is.
    history: 3.2.2 Takes SCHEDULE.
lastsave 1 administration.lastsave 1.0.0 loading stale fast
    does: Returns the Unix time of the last save.
    acl: admin dangerous
    tips: nondeterministic_output
bgrewriteaof 1 administration.bgrewriteaof 1.0.0 admin noscript no_async_loading
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
info -1 info.info 1.0.0 loading stale
    [section [section ...]]
    does: Shows figures of the server.
    cost: O(N) where N is the number of commands and connections
    acl: dangerous
    tips: nondeterministic_output request_policy:all_shards response_policy:special
    history: 7.0.0 Takes several sections.
latency -2 - 2.8.13
    does: Commands about latency.
    help: 2.8.13
latency|doctor 2 latency.doctor 2.8.13 admin noscript loading stale
    does: Tells in sentences what the monitor saw.
    tips: nondeterministic_output request_policy:all_nodes response_policy:special
latency|graph 3 latency.graph 2.8.13 admin noscript loading stale
    event
    does: Draws the samples of an event.
    tips: nondeterministic_output request_policy:all_nodes response_policy:special
latency|histogram -2 latency.histogram 7.0.0 admin noscript loading stale
    [command [command ...]]
    does: Shows how long calls took, by command.
    cost: O(N) where N is the number of commands
    tips: nondeterministic_output request_policy:all_nodes response_policy:special
latency|history 3 latency.history 2.8.13 admin noscript loading stale
    event
    does: Lists the samples of an event.
    tips: nondeterministic_output request_policy:all_nodes response_policy:special
latency|latest 2 latency.latest 2.8.13 admin noscript loading stale
    does: Lists the latest sample of every event.
    tips: nondeterministic_output request_policy:all_nodes response_policy:special
latency|reset -2 latency.reset 2.8.13 admin noscript loading stale
    [event [event ...]]
    does: Forgets the samples of some or all events.
    tips: request_policy:all_nodes response_policy:agg_sum
memory -2 - 4.0.0
    does: Commands about memory.
    help: 4.0.0
memory|doctor 2 memory.doctor 4.0.0
    does: Describes memory problems in sentences.
    tips: request_policy:all_shards response_policy:special nondeterministic_output
memory|malloc-stats 2 memory.malloc_stats 4.0.0
    does: Answers that the allocator keeps no statistics.
    tips: request_policy:all_shards response_policy:special nondeterministic_output
memory|purge 2 memory.purge 4.0.0
    does: Gives memory that was freed back to the system.
    tips: request_policy:all_shards response_policy:all_succeeded
memory|stats 2 memory.stats 4.0.0
    does: Shows the use of memory.
    tips: request_policy:all_shards response_policy:special nondeterministic_output
memory|usage -3 memory.usage 4.0.0 readonly
    key [SAMPLES count]
    does: Estimates the bytes of a key with its value.
    cost: O(N) where N is the number of samples
    keys: @2 RO
slowlog -2 - 2.2.12
    does: Commands about the slow log.
    help: 6.2.0
slowlog|get -2 slowlog.get 2.2.12 admin loading stale
    [count]
    does: Lists the latest slow requests, 10 by default, -1 for all.
    cost: O(N) where N is the number of entries listed
    tips: request_policy:all_nodes nondeterministic_output
    history: 4.0.0 Entries name the client and its address.
    history: 8.10.0 Entries have the number of arguments of the request.
    history: 8.12.0 Entries have the processor time of the request.
slowlog|len 2 slowlog.length 2.2.12 admin loading stale
    does: Counts the entries of the slow log.
    tips: request_policy:all_nodes response_policy:agg_sum nondeterministic_output
slowlog|reset 2 slowlog.reset 2.2.12 admin loading stale
    does: Empties the slow log.
    cost: O(N) where N is the number of entries
    tips: request_policy:all_nodes response_policy:all_succeeded
command -1 catalogue.command 2.8.13 loading stale
    does: Describes all commands.
    cost: O(N), N being the commands
    acl: connection
    tips: nondeterministic_output_order
    help: 5.0.0 connection
command|count 2 catalogue.count 2.8.13 loading stale
    does: Returns how many commands there are.
    cost: O(N), N being the commands
    acl: connection
command|docs -2 catalogue.docs 7.0.0 loading stale
    [command-name [command-name ...]]
    does: Returns summaries and arguments of commands.
    cost: O(N), N being the commands asked for
    acl: connection
    tips: nondeterministic_output_order
command|getkeys -3 catalogue.getkeys 2.8.13 loading stale
    command [arg [arg ...]]
    does: Finds the keys in a request.
    cost: O(N), N being the arguments of the request
    acl: connection
command|getkeysandflags -3 catalogue.getkeysandflags 7.0.0 loading stale
    command [arg [arg ...]]
    does: Returns the keys of a request and how they are accessed.
    cost: O(N), N being the arguments of the request
    acl: connection
command|info -2 catalogue.info 2.8.13 loading stale
    [command-name [command-name ...]]
    does: Describes commands for clients: arity, flags, keys.
    cost: O(N), N being the commands asked for
    acl: connection
    tips: nondeterministic_output_order
    history: 7.0.0 Without names, all commands are described.
command|list -2 catalogue.list_ 7.0.0 loading stale
    [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]
    does: Lists the names of commands.
    cost: O(N), N being the commands
    acl: connection
    tips: nondeterministic_output_order
""",
    ),
    *rows(
        "server",
        "anabranch.commands.acl",
        """
acl -2 - 6.0.0
    does: Commands about users and their rules.
    help: 6.0.0
acl|cat -2 acl.cat 6.0.0 noscript loading stale
    [category]
    does: Lists the categories, or the commands of one.
    cost: O(N), N being the commands
acl|deluser -3 acl.deluser 6.0.0 admin noscript loading stale
    username [username ...]
    does: Removes users and closes their connections.
    cost: O(N), N being the connections
    tips: request_policy:all_nodes response_policy:all_succeeded
acl|dryrun -4 acl.dryrun 7.0.0 admin noscript loading stale
    username command [arg [arg ...]]
    does: Returns whether a user may run a command, without running it.
acl|genpass -2 acl.genpass 6.0.0 noscript loading stale
    [bits]
    does: Makes a random password.
acl|getuser 3 acl.getuser 6.0.0 admin noscript loading stale
    username
    does: Returns the flags, password hashes and rules of a user.
    cost: O(N), N being the rules
    history: 6.2.0 Added channel patterns.
    history: 7.0.0 Added selectors; patterns became text.
acl|list 2 acl.list_ 6.0.0 admin noscript loading stale
    does: Lists the users as lines of configuration.
    cost: O(N), N being the users
acl|load 2 acl.load 6.0.0 admin noscript loading stale
    does: Reads the users from the ACL file again.
    cost: O(N), N being the users
acl|log -2 acl.log 6.0.0 admin noscript loading stale
    [count | RESET]
    does: Returns recent denials, or deletes them.
    cost: O(N), N being the entries returned
    history: 7.2.0 Added entry ID and timestamps.
acl|save 2 acl.save 6.0.0 admin noscript loading stale
    does: Writes the users to the ACL file.
    cost: O(N), N being the users
    tips: request_policy:all_nodes response_policy:all_succeeded
acl|setuser -3 acl.setuser 6.0.0 admin noscript loading stale
    username [rule [rule ...]]
    does: Makes or changes a user.
    cost: O(N), N being the rules
    tips: request_policy:all_nodes response_policy:all_succeeded
    history: 6.2.0 Added channel patterns.
    history: 7.0.0 Added selectors and key permissions.
acl|users 2 acl.users 6.0.0 admin noscript loading stale
    does: Lists the names of the users.
    cost: O(N), N being the users
acl|whoami 2 acl.whoami 6.0.0 noscript loading stale
    does: Returns the user of this connection.
""",
    ),
]
