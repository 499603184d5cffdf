"""Every directive with an effect, each once: type, default, bounds, meaning.

``Settings`` declares an attribute per directive, and the declaration *is* the row: the file
reader, ``--help``, CONFIG GET and SET, the documentation and the tests are made from ``ROWS``.
Directives of Redis that are accepted without effect, or refused, are in ``compatibility``. To add a
directive, add one declaration here.

Reading a setting is reading a plain attribute: ``settings.stream_node_max_entries``.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.config.compatibility import COMPATIBILITY
from anabranch.config.kinds import (
    Addresses,
    Choice,
    Directive,
    EventClasses,
    FolderName,
    Integer,
    Limits,
    Lines,
    Memory,
    Name,
    Octal,
    OutputLimits,
    SavePoints,
    Secret,
    Text,
    WordList,
    YesNo,
    row,
    split_blanks,
)

GROUPS = {
    "network": "Network",
    "tls": "TLS",
    "process": "Process and logs",
    "access": "Access",
    "clients": "Clients and memory",
    "streams": "Streams",
    "regions": "Active-Active",
    "http": "Page, metrics and health",
    "persistence": "Persistence",
    "scripts": "Scripts",
    "watching": "Events and slow log",
    "compatibility": "Accepted without effect, so that files and tools written for Redis work",
    "refused": "Not available; the start says what to do instead",
}
"""Headings of ``--help`` and of the documentation, in order."""

GOSSIP_PORT_ABOVE: Final = 10_000
"""How far the gossip port is above the port for clients, unless it is set."""


def check_percentiles(text: str) -> str | None:
    """Why a list of percentiles is refused."""
    for word in split_blanks(text):
        try:
            ok = 0 <= float(word) <= 100
        except ValueError:
            ok = False
        if not ok:
            return "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
    return None


class Settings:
    """The values of all directives, as attributes."""

    # A row is a paragraph: kind, default, group, sentence, and what else there is to say of it.
    # fmt: off
    bind: str = row(WordList(), "127.0.0.1 -::1", "network",
        "Addresses to listen on; * is all of them, a leading - allows an address to be missing.")
    port: int = row(Integer(0, 65535), "6379", "network",
        "TCP port for clients; 0 is off, or a free port if there is no other listener.")
    unixsocket: str = row(Text(), "", "network",
        "Path of a Unix socket to listen on as well.", immutable=True)
    unixsocketperm: int = row(Octal(), "0", "network",
        "Permissions of the Unix socket; 0 leaves them to the umask.", immutable=True)
    timeout: int = row(Integer(0, 2147483647), "0", "network",
        "Close a client that has been idle this long; 0 never does.", unit="seconds")
    auth_timeout: int = row(Integer(0, 2147483647), "60", "network",
        "Close a client that must log in and has not done so for this long; 0 never does.",
        unit="seconds")
    handshake_timeout: int = row(Integer(1, 3600), "5", "network",
        "How long a TLS handshake or the handshake of a region may take, and an HTTP request to "
        "arrive.", unit="seconds")
    tcp_keepalive: int = row(Integer(0, 2147483647), "300", "network",
        "Probe silent connections this often, to notice dead ones; 0 is off.", unit="seconds")
    tcp_backlog: int = row(Integer(0, 2147483647), "511", "network",
        "How many connections may wait to be accepted.", immutable=True)
    protected_mode: bool = row(YesNo(), "yes", "network",
        "Refuse clients of other machines while the default user has no password.")

    tls_port: int = row(Integer(0, 65535), "0", "tls",
        "Port for clients with TLS; 0 is off.")
    tls_cert_file: str = row(Text(), "", "tls",
        "The server's certificate (PEM, with its chain).", volatile=True)
    tls_key_file: str = row(Text(), "", "tls",
        "The private key of the certificate (PEM).", volatile=True)
    tls_key_file_pass: str = row(Text(), "", "tls",
        "The password of the private key.", secret=True)
    tls_ca_cert_file: str = row(Text(), "", "tls",
        "Authorities that sign the certificates of clients and other regions (PEM).", volatile=True)
    tls_ca_cert_dir: str = row(Text(), "", "tls",
        "The same as a directory with hashed names.", volatile=True)
    tls_auth_clients: str = row(Choice("no", "yes", "optional"), "yes", "tls",
        "Whether a client must present a certificate.")
    tls_protocols: str = row(WordList(), "", "tls",
        "Allowed versions, TLSv1.2 and TLSv1.3; empty means both.")
    tls_ciphers: str = row(Text(), "", "tls",
        "Cipher suites of TLS 1.2 in OpenSSL's notation.")
    tls_prefer_server_ciphers: bool = row(YesNo(), "no", "tls",
        "Choose the cipher by the server's order of preference.")
    tls_replication: bool = row(YesNo(), "no", "tls",
        "TLS between regions; both sides present certificates with their region names.",
        immutable=True)
    tls_client_cert_file: str = row(Text(), "", "tls",
        "The certificate for outgoing links to other regions, if it differs from tls-cert-file.",
        volatile=True)
    tls_client_key_file: str = row(Text(), "", "tls",
        "Its private key (PEM).", volatile=True)
    tls_client_key_file_pass: str = row(Text(), "", "tls",
        "The password of that key.", secret=True)

    dir: str = row(Text(), ".", "process",
        "Working directory; relative paths of other directives start here.", protected=True)
    databases: int = row(Integer(1, 100_000), "16", "process",
        "How many numbered databases there are.", immutable=True)
    hz: int = row(Integer(0, 2147483647), "10", "process",
        "How often background work runs (kept between 1 and 500).", unit="per second")
    shutdown_timeout: int = row(Integer(0, 2147483647), "10", "process",
        "How long a stop waits for linked regions to take the last effects, and for clients to "
        "read their last replies.", unit="seconds")
    supervised: str = row(Choice("no", "systemd", "auto", "upstart"), "no", "process",
        "Notify systemd when the server is ready; auto does so if systemd asks for it.",
        immutable=True, refused={"upstart": "upstart is not supported, use supervised no"})
    daemonize: bool = row(YesNo(), "no", "process",
        "Only no: the server stays in the foreground.",
        immutable=True, refused={"yes": "the server stays in the foreground; let systemd, a "
        "container or 'nohup anabranch serve &' keep it running"})
    pidfile: str = row(Text(), "", "process",
        "Write the process ID to this file while running.", immutable=True)
    logfile: str = row(Text(), "", "process",
        "Write the log to this file; empty means standard output.", immutable=True)
    loglevel: str = row(Choice("debug", "verbose", "notice", "warning", "nothing"), "notice",
        "process",
        "The lowest level that is logged.")
    log_format: str = row(Choice("auto", "legacy", "logfmt", "json"), "auto", "process",
        "Format of log lines; auto is readable text on a terminal and JSON elsewhere.")
    log_timestamp_format: str = row(Choice("legacy", "iso8601", "milliseconds"), "legacy",
        "process",
        "Format of times in log lines; legacy means ISO 8601 in logfmt and JSON lines.")
    syslog_enabled: bool = row(YesNo(), "no", "process",
        "Log to syslog as well.", immutable=True)
    syslog_ident: str = row(Text(), "anabranch", "process",
        "The name used in syslog.", immutable=True)
    syslog_facility: str = row(Choice("user", *(f"local{n}" for n in range(8))), "local0",
        "process",
        "The facility used in syslog.", immutable=True)
    hide_user_data_from_log: bool = row(YesNo(), "no", "process",
        "Keep keys and values out of log lines and out of the slow log.")

    requirepass: str = row(Text(), "", "access",
        "Password of the default user.", secret=True)
    user: list[list[str]] = row(Lines(), "", "access",
        "An ACL user and its rules; one line for each user.",
        hidden=True, immutable=True, secret=True)
    aclfile: str = row(Text(), "", "access",
        "File with the ACL users, instead of user lines.", immutable=True)
    acl_pubsub_default: str = row(Choice("allchannels", "resetchannels"), "resetchannels", "access",
        "Whether a new ACL user may use all channels or none.")
    acllog_max_len: int = row(Integer(), "128", "access",
        "How many denials ACL LOG remembers.")
    enable_debug_command: str = row(Choice("no", "yes", "local"), "no", "access",
        "Who may use DEBUG; local means clients of this machine.", immutable=True)
    enable_protected_configs: str = row(Choice("no", "yes", "local"), "no", "access",
        "Who may change protected directives such as dir at run time.", immutable=True)

    maxclients: int = row(Integer(1, 4294967295), "10000", "clients",
        "How many clients may be connected at once.")
    client_output_buffer_limit: Limits = row(OutputLimits(),
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "clients",
        "Close clients that do not read: hard limit, soft limit, seconds above it.")
    client_query_buffer_limit: int = row(Memory(1 << 20), "1073741824", "clients",
        "Close a client whose unfinished request or transaction is larger than this.")
    proto_max_bulk_len: int = row(Memory(1 << 20), "536870912", "clients",
        "The largest single argument of a request.")
    maxmemory: int = row(Memory(), "0", "clients",
        "Refuse commands that add data while data and buffers hold more; 0 is no limit.")
    maxmemory_clients: int = row(Memory(percent=True), "0", "clients",
        "Close the clients that hold most while all together hold more; a percentage is one of "
        "maxmemory; 0 is no limit.")
    maxmemory_policy: str = row(Choice("volatile-lru", "volatile-lfu", "volatile-random",
        "volatile-ttl", "volatile-lrm", "allkeys-lru", "allkeys-lfu", "allkeys-random",
        "allkeys-lrm", "noeviction"), "noeviction", "clients",
        "Streams are never evicted: every policy acts as noeviction.")

    stream_node_max_entries: int = row(Integer(), "100", "streams",
        "Entries per node as approximate trimming counts them; 0 is no limit.")
    stream_node_max_bytes: int = row(Memory(), "4096", "streams",
        "Bytes per node as approximate trimming counts them; 0 is no limit.")
    stream_compression: bool = row(YesNo(), "yes", "streams",
        "Hold the entries of full nodes packed in memory. With no, nodes that are packed stay so "
        "until they change.")
    stream_compression_age: int = row(Integer(0, 86400), "10", "streams",
        "Pack a node when it has been full for this long, at most twice as long; earlier while "
        "much is added.", unit="seconds")
    stream_compression_level: int = row(Integer(1, 19), "1", "streams",
        "The zstd level of compressed nodes; a higher one takes longer and saves little.")
    stream_memory_hot: int = row(Memory(), "0", "streams",
        "While all data take less than this, nodes are packed only where that makes them much "
        "smaller, in a form that costs little to read; 0 is a quarter of maxmemory, or without "
        "one an eighth of the machine's memory, at least 128 MB.")
    stream_compression_cache: int = row(Memory(), "16mb", "streams",
        "What packed nodes that were opened for readers may hold beside; while all data take less "
        "than stream-memory-hot a sixteenth of that, if it is more.")
    stream_tiering: bool = row(YesNo(), "no", "streams",
        "Move the oldest nodes of streams to a temporary file in dir when data and buffers hold "
        "three quarters of maxmemory. With no, nodes stay where they are.")
    stream_idmp_duration: int = row(Integer(1, 86400), "100", "streams",
        "How long new streams remember idempotent IDs.", unit="seconds")
    stream_idmp_maxsize: int = row(Integer(1, 10000), "100", "streams",
        "How many idempotent IDs new streams remember per producer.")
    schedule_max_entries: int = row(Integer(), "10000000", "streams",
        "How many entries may be scheduled (AB.SCHEDULE) at a time, in all databases together.")
    ledger_retention: int = row(Integer(0, 2147483647), "2592000", "streams",
        "Forget a bulk producer that has sent nothing, and where a deleted stream ended, after "
        "this long; 0 never does. With several regions the shortest of their settings counts for "
        "producers.", unit="seconds")

    appendonly: bool = row(YesNo(), "yes", "persistence",
        "Write a log of all changes, so that a restart loses nothing.")
    appendfsync: str = row(Choice("everysec", "always", "no"), "everysec", "persistence",
        "When a reply is sent: always waits for the disk; otherwise a power failure costs a second "
        "(everysec) or what the system had not written (no).")
    appenddirname: str = row(FolderName(), "appendonlydir", "persistence",
        "The directory of log and snapshots, in dir.", immutable=True)
    save: str = row(SavePoints(), "", "persistence",
        "Take a snapshot after a number of seconds with a number of changes; for use without log.")
    auto_aof_rewrite_percentage: int = row(Integer(), "100", "persistence",
        "Take a snapshot when the log has grown to this share of the last; 0 never does.")
    auto_aof_rewrite_min_size: int = row(Memory(), "67108864", "persistence",
        "Take no such snapshot while the log is smaller than this.")
    oplog_segment_bytes: int = row(Memory(1 << 12), "67108864", "persistence",
        "Begin the next file of the log at this size.")
    serve_unsafe_reads: bool = row(YesNo(), "no", "persistence",
        "During disk errors also serve reads of changes that a crash would undo: to copy data that "
        "is only in memory.")
    oplog_compression: bool = row(YesNo(), "yes", "persistence",
        "Compress log and snapshots with zstd if that makes them smaller, turns of less than 4 KB "
        "of a server alone excepted; other regions get effects as they stand in the log.")

    busy_reply_threshold: int = row(Integer(), "5000", "scripts",
        "While a script runs for longer than this, other clients are answered BUSY; SCRIPT KILL "
        "ends it.", unit="milliseconds", aliases=("lua-time-limit",))
    script_memory_limit: int = row(Memory(1 << 20), "67108864", "scripts",
        "Memory that all scripts may take together.", immutable=True)

    notify_keyspace_events: str = row(EventClasses(), "", "watching",
        "Which keyspace events are published; empty is none, KEA nearly all.")
    notify_remote_effects: bool = row(YesNo(), "yes", "watching",
        "Also publish keyspace events for effects of other regions.")
    slowlog_log_slower_than: int = row(Integer(-1), "10000", "watching",
        "Commands slower than this enter the slow log; -1 is none, 0 all.", unit="microseconds")
    slowlog_max_len: int = row(Integer(), "128", "watching",
        "How many commands the slow log keeps.")
    slowlog_max_argc: int = row(Integer(1), "32", "watching",
        "How many arguments of a command the slow log keeps.")
    latency_monitor_threshold: int = row(Integer(), "0", "watching",
        "Remember latency events above this; 0 is off.", unit="milliseconds")
    latency_tracking: bool = row(YesNo(), "yes", "watching",
        "Report percentiles in INFO latencystats.")
    latency_tracking_info_percentiles: str = row(WordList(), "50 99 99.9", "watching",
        "Which percentiles INFO reports.", check=check_percentiles)

    region_id: int = row(Integer(0, 255), "0", "regions",
        "Number of this region in an Active-Active cluster; 0 is a server on its own.",
        immutable=True)
    region_name: str = row(Name(), "", "regions",
        "Name of this region, which no other member has; region and its number unless set.",
        immutable=True)
    cluster_create: bool = row(YesNo(), "no", "regions",
        "Create a new cluster with this region, unless it belongs to one.", immutable=True)
    join: str = row(Addresses(), "", "regions",
        "Gossip addresses (host:port) of members of the cluster to join, unless this region "
        "belongs to one.")
    gossip_port: int = row(Integer(0, 65535), "0", "regions",
        "TCP port for other regions; 0 is the port for clients plus 10000.", immutable=True)
    gossip_bind: str = row(WordList(), "127.0.0.1", "regions",
        "Addresses to listen on for other regions.")
    gossip_announce: str = row(Text(), "", "regions",
        "Host name or address under which other regions find this one; 127.0.0.1 unless set.")
    gossip_secret: str = row(Secret(16), "", "regions",
        "Secret that all regions of the cluster share: they prove it to each other and seal their "
        "frames with it. Without it anybody who reaches the gossip port is let in.", secret=True)
    gossip_window: int = row(Memory(), "8mb", "regions",
        "How much another region may send before this one has applied it; a change holds for later "
        "links.")
    gossip_hold_bytes: int = row(Memory(), "64mb", "regions",
        "How many bytes of effects of another region may wait for their causes.")
    region_cache_bytes: int = row(Memory(), "64mb", "regions",
        "Newest effects kept in memory for other regions; older ones are read from disk.")
    oplog_max_bytes: int = row(Memory(), "1gb", "regions",
        "Keep at most this much of the log for regions that lag; beyond it they get a full sync.")
    oplog_max_age: int = row(Integer(0, 2147483647), "604800", "regions",
        "Keep the log for regions that lag at most this long; beyond it they get a full sync. 0 is "
        "no limit.", unit="seconds")
    max_unstable_marks: int = row(Integer(), "1000000", "regions",
        "Warn when there are more tombstones than this because some member may lack them; 0 never "
        "does.")
    max_held_tags: int = row(Integer(), "1000000", "regions",
        "Hold at most this many tags of idempotent producers that some member may lack; the oldest "
        "are dropped, and conflicts with them are not found. 0 is no limit.")
    mark_retention: str = row(Choice("stable", "forever"), "stable", "regions",
        "How long tombstones are kept: until every member has them on its disk (stable), or "
        "forever.")
    serve_while_joining: bool = row(YesNo(), "yes", "regions",
        "Accept writes during a full sync from another region.")
    min_regions_to_write: int = row(Integer(0, 254), "0", "regions",
        "Refuse writes while fewer other regions than this keep up; 0 never does.")
    min_regions_max_lag: int = row(Integer(0, 2147483647), "10000", "regions",
        "A region keeps up if it is connected and has applied everything older than this.",
        unit="milliseconds")
    availability_api: bool = row(YesNo(), "no", "regions",
        "Answer the HTTP health checks of clients that fail over between regions: on http-port, "
        "or, if that is 0, on port 9443 of the addresses of bind.")
    max_clock_skew_ms: int = row(Integer(0, 86400000), "500", "regions",
        "Warn when another region's clock differs by more than this.", unit="milliseconds")
    digest_interval: int = row(Integer(0, 86400), "60", "regions",
        "Compare digests with every other region this often; 0 compares on request only.",
        unit="seconds")
    clock_skew_action: str = row(Choice("warn", "refuse"), "warn", "regions",
        "Whether a region whose own clock differs from the median of the others by more than "
        "max-clock-skew-ms also refuses to make IDs from it.")
    region_expire_after: int = row(Integer(0, 2147483647), "0", "regions",
        "Remove a member from which no region has received anything for this long; 0 never does, "
        "less than 60 counts as 60.", unit="seconds")
    schedule_takeover: int = row(Integer(0, 2147483647), "0", "regions",
        "Add what another region has scheduled if nothing was heard of that region for this long "
        "(and it is due); 0 waits until the region is there again, or is removed.", unit="seconds")
    xadd_id_uniqueness_mode: str = row(Choice("strict", "semi-strict", "liberal"), "strict",
        "regions",
        "Which IDs XADD accepts in Active-Active mode: only IDs that are unique (strict), full IDs "
        "as well (semi-strict), or Redis's own rules (liberal).",
        aliases=("crdt_xadd_id_uniqueness_mode",))
    replication_oom_threshold_percent: int = row(Integer(0, 90), "5", "regions",
        "This share of maxmemory is reserved for effects of other regions: local commands are "
        "refused that much earlier.", unit="percent")
    idmp_conflict: str = row(Choice("collapse", "keep"), "collapse", "regions",
        "Whether one (collapse) or all (keep) of the entries stay that several regions accepted "
        "for one idempotent ID.")

    http_port: int = row(Integer(0, 65535), "0", "http",
        "TCP port of the page, metrics and health checks; 0 is off. Needs the extra "
        "anabranch[web].")
    http_bind: str = row(WordList(), "127.0.0.1 -::1", "http",
        "Addresses to listen on for HTTP, as in bind.")
    http_hosts: str = row(WordList(64), "", "http",
        "Names of this machine that a browser may use; * is all of them. localhost and IP "
        "addresses always work.")
    http_token: str = row(Secret(16), "", "http",
        "A client that sends this token (Authorization: Bearer) acts as the default user.",
        secret=True)
    metrics_max_streams: int = row(Integer(0, 1000000), "1000", "http",
        "How many streams have series of their own in /metrics: those with the most entries.")
    metrics_per_consumer: bool = row(YesNo(), "no", "http",
        "Whether each consumer has series of its own in /metrics, up to 100 in a group.")
    # fmt: on

    def __init__(self, **values: Any) -> None:
        """The defaults; the given attributes replace some of them."""
        for each in ROWS.values():
            setattr(self, each.attribute, each.copy_default())
        for name, value in values.items():
            assert name in self.__dict__, f"no setting {name}"
            setattr(self, name, value)

    def value(self, name: str) -> Any:
        """The value of a directive by its name."""
        return self.__dict__[ROWS[name].attribute]

    def text(self, name: str) -> str:
        """The value of a setting in the form of CONFIG GET."""
        each = ROWS[name]
        return each.kind.format(self.__dict__[each.attribute])


def _collect() -> dict[str, Directive]:
    """Remove the declarations from the class, so that attributes are the values only."""
    rows: dict[str, Directive] = {}
    for attribute, each in list(vars(Settings).items()):
        if isinstance(each, Directive):
            each.name = attribute.replace("_", "-")
            rows[each.name] = each
            delattr(Settings, attribute)
    for name, each in COMPATIBILITY.items():
        assert name not in rows, f"two rows for {name}"
        each.name = name
        rows[name] = each
    return rows


ROWS: dict[str, Directive] = _collect()
"""Every directive by its name."""

ALIASES: dict[str, str] = {alias: name for name, each in ROWS.items() for alias in each.aliases}
"""Older names, and the directive of each."""
