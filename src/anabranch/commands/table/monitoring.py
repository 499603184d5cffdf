"""The rows of the command table: INFO, LATENCY, MEMORY, SLOWLOG, COMMAND."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "server",
    "anabranch.commands.server",
    """
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
)
