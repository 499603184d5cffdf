"""The rows of the command table: Redis Cluster, which standalone servers refuse.

Names, arity, flags and tips are those of Redis, so that rules and clients find each sub-command.
"""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "cluster",
    "anabranch.commands.connection",
    """
readonly 1 connection.no_cluster 3.0.0 loading stale fast
    does: Cluster only: refused by this server.
    acl: connection
readwrite 1 connection.no_cluster 3.0.0 loading stale fast
    does: Cluster only: refused by this server.
    acl: connection
asking 1 connection.no_cluster 3.0.0 fast
    does: Cluster only: refused by this server.
    acl: connection
cluster -2 - 3.0.0
    does: Cluster only: refused by this server.
cluster|addslots -3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|addslotsrange -4 connection.no_cluster 7.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|bumpepoch 2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|count-failure-reports 3 connection.no_cluster 3.0.0 admin stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|countkeysinslot 3 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
cluster|delslots -3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|delslotsrange -4 connection.no_cluster 7.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|failover -2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|flushslots 2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|forget 3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|getkeysinslot 4 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|help 2 connection.no_cluster 5.0.0 loading stale
    does: Cluster only: refused by this server.
cluster|info 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|keyslot 3 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
cluster|links 2 connection.no_cluster 7.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|meet -4 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|migration -4 connection.no_cluster 8.4.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|myid 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
cluster|myshardid 2 connection.no_cluster 7.2.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|nodes 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|replicas 3 connection.no_cluster 5.0.0 admin stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|replicate 3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|reset -2 connection.no_cluster 3.0.0 admin noscript stale
    does: Cluster only: refused by this server.
cluster|saveconfig 2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|set-config-epoch 3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|setslot -4 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|shards 2 connection.no_cluster 7.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|slaves 3 connection.no_cluster 3.0.0 admin stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|slot-stats -4 connection.no_cluster 8.2.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output request_policy:all_shards
cluster|slots 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|syncslots -3 connection.no_cluster 8.4.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
""",
    is_hot=True,
)
