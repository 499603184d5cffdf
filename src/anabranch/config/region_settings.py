"""The directives of a region among others; the rest is in ``settings``."""

from __future__ import annotations

from typing import Final

from anabranch.config.kinds import (
    Addresses,
    Choice,
    Integer,
    Memory,
    Name,
    Secret,
    Text,
    WordList,
    YesNo,
)
from anabranch.config.rows import row

GOSSIP_PORT_ABOVE: Final = 10_000
"""How far the gossip port is above the port for clients, unless it is set."""


class RegionSettings:
    """The values of these directives, as attributes."""

    # fmt: off
    region_id: int = row(
        Integer(0, 255), "0", group="regions", immutable=True,
        sentence="Number of this region in an Active-Active cluster; 0 is a server on its own.",
    )
    region_name: str = row(
        Name(), "", group="regions", immutable=True,
        sentence="Name of this region; region and its number unless set.",
    )
    cluster_create: bool = row(
        YesNo(), "no", group="regions", immutable=True,
        sentence="Create a new cluster with this region, unless it belongs to one.",
    )
    join: str = row(
        Addresses(), "", group="regions",
        sentence="Gossip addresses (host:port) of members of the cluster to join, unless this "
        "region belongs to one.",
    )
    gossip_port: int = row(
        Integer(0, 65535), "0", group="regions", immutable=True,
        sentence="TCP port for other regions; 0 is the port for clients plus 10000.",
    )
    gossip_bind: str = row(
        WordList(), "127.0.0.1", group="regions",
        sentence="Addresses to listen on for other regions.",
    )
    gossip_announce: str = row(
        Text(), "", group="regions",
        sentence="Host name or address under which other regions find this one; 127.0.0.1 unless "
        "set.",
    )
    gossip_secret: str = row(
        Secret(16), "", group="regions", secret=True,
        sentence="Secret that all regions of the cluster share: they prove it to each other and "
        "seal their frames with it. Without it anybody who reaches the gossip port is let in.",
    )
    gossip_window: int = row(
        Memory(), "8mb", group="regions",
        sentence="How much another region may send before this one has applied it; a change holds "
        "for later links.",
    )
    gossip_hold_bytes: int = row(
        Memory(), "64mb", group="regions",
        sentence="How many bytes of effects of another region may wait for their causes.",
    )
    region_cache_bytes: int = row(
        Memory(), "64mb", group="regions",
        sentence="Newest effects kept in memory for other regions; older ones are read from disk.",
    )
    oplog_max_bytes: int = row(
        Memory(), "1gb", group="regions",
        sentence="Keep at most this much of the log for regions that lag; beyond it they get a "
        "full sync.",
    )
    oplog_max_age: int = row(
        Integer(0, 2147483647), "604800", group="regions", unit="seconds",
        sentence="Keep the log for regions that lag at most this long; beyond it they get a full "
        "sync. 0 is no limit.",
    )
    max_unstable_marks: int = row(
        Integer(), "1000000", group="regions",
        sentence="Warn when there are more tombstones than this because some member may lack them; "
        "0 never does.",
    )
    max_held_tags: int = row(
        Integer(), "1000000", group="regions",
        sentence="Hold at most this many tags of idempotent producers that some member may lack; "
        "the oldest are dropped, and conflicts with them are not found. 0 is no limit.",
    )
    mark_retention: str = row(
        Choice("stable", "forever"), "stable", group="regions",
        sentence="How long tombstones are kept: until every member has them on its disk (stable), "
        "or forever.",
    )
    serve_while_joining: bool = row(
        YesNo(), "yes", group="regions",
        sentence="Accept writes during a full sync from another region.",
    )
    min_regions_to_write: int = row(
        Integer(0, 254), "0", group="regions",
        sentence="Refuse writes while fewer other regions than this keep up; 0 never does.",
    )
    min_regions_max_lag: int = row(
        Integer(0, 2147483647), "10000", group="regions", unit="milliseconds",
        sentence="A region keeps up if it is connected and has applied everything older than this.",
    )
    availability_api: bool = row(
        YesNo(), "no", group="regions",
        sentence="Answer the HTTP health checks of clients that fail over between regions: on "
        "http-port, or, if that is 0, on port 9443 of the addresses of bind.",
    )
    max_clock_skew_ms: int = row(
        Integer(0, 86400000), "500", group="regions", unit="milliseconds",
        sentence="Warn when another region's clock differs by more than this.",
    )
    digest_interval: int = row(
        Integer(0, 86400), "60", group="regions", unit="seconds",
        sentence="Compare digests with every other region this often; 0 compares on request only.",
    )
    clock_skew_action: str = row(
        Choice("warn", "refuse"), "warn", group="regions",
        sentence="Whether a region whose own clock differs from the median of the others by more "
        "than max-clock-skew-ms also refuses to make IDs from it.",
    )
    region_expire_after: int = row(
        Integer(0, 2147483647), "0", group="regions", unit="seconds",
        sentence="Remove a member from which no region has received anything for this long; 0 "
        "never does, less than 60 counts as 60.",
    )
    xadd_id_uniqueness_mode: str = row(
        Choice("strict", "semi-strict", "liberal"), "strict", group="regions",
        aliases=("crdt_xadd_id_uniqueness_mode",),
        sentence="Which IDs XADD accepts in Active-Active mode: only IDs that are unique (strict), "
        "full IDs as well (semi-strict), or Redis's own rules (liberal).",
    )
    replication_oom_threshold_percent: int = row(
        Integer(0, 90), "5", group="regions", unit="percent",
        sentence="This share of maxmemory is reserved for effects of other regions: "
        "local commands are refused that much earlier.",
    )
    idmp_conflict: str = row(
        Choice("collapse", "keep"), "collapse", group="regions",
        sentence="Whether one (collapse) or all (keep) of the entries stay that several regions "
        "accepted for one idempotent ID.",
    )
    # fmt: on
