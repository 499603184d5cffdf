"""Every directive with an effect, each once: type, default, bounds, meaning.

``Settings`` declares an attribute per directive, and the declaration *is* the row: the file
reader, ``--help``, CONFIG GET and SET, the documentation and the tests are made from ``ROWS``.
Directives of Redis that are accepted without effect, or refused, are in ``compatibility``. To add a
directive, add one declaration here.

Reading a setting is reading a plain attribute: ``settings.stream_node_max_entries``.
"""

from __future__ import annotations

from typing import Any

from anabranch.config.compatibility import COMPATIBILITY
from anabranch.config.http_settings import HttpSettings
from anabranch.config.kinds import (
    Choice,
    EventClasses,
    FolderName,
    Integer,
    Limits,
    Lines,
    Memory,
    Octal,
    OutputLimits,
    SavePoints,
    Text,
    WordList,
    YesNo,
)
from anabranch.config.region_settings import RegionSettings
from anabranch.config.rows import Directive, row
from anabranch.config.words import split_blanks

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


class Settings(RegionSettings, HttpSettings):
    """The values of all directives, as attributes."""

    # A row is a paragraph here, not a column.
    # fmt: off
    # -- network ------------------------------------------------------------------------------
    bind: str = row(
        WordList(), "127.0.0.1 -::1", group="network",
        sentence="Addresses to listen on; * is all of them, a leading - allows an address to be "
        "missing.",
    )
    port: int = row(
        Integer(0, 65535), "6379", group="network",
        sentence="TCP port for clients; 0 is off, or a free port if there is no other listener.",
    )
    unixsocket: str = row(
        Text(), "", group="network", immutable=True,
        sentence="Path of a Unix socket to listen on as well.",
    )
    unixsocketperm: int = row(
        Octal(), "0", group="network", immutable=True,
        sentence="Permissions of the Unix socket; 0 leaves them to the umask.",
    )
    timeout: int = row(
        Integer(0, 2147483647), "0", group="network", unit="seconds",
        sentence="Close a client that has been idle this long; 0 never does.",
    )
    auth_timeout: int = row(
        Integer(0, 2147483647), "60", group="network", unit="seconds",
        sentence="Close a client that must log in and has not done so for this long; 0 never does.",
    )
    handshake_timeout: int = row(
        Integer(1, 3600), "5", group="network", unit="seconds",
        sentence="How long a TLS handshake or the handshake of a region may take, and an HTTP "
        "request to arrive.",
    )
    tcp_keepalive: int = row(
        Integer(0, 2147483647), "300", group="network", unit="seconds",
        sentence="Probe silent connections this often, to notice dead ones; 0 is off.",
    )
    tcp_backlog: int = row(
        Integer(0, 2147483647), "511", group="network", immutable=True,
        sentence="How many connections may wait to be accepted.",
    )
    protected_mode: bool = row(
        YesNo(), "yes", group="network",
        sentence="Refuse clients of other machines while the default user has no password.",
    )

    # -- TLS ----------------------------------------------------------------------------------
    tls_port: int = row(
        Integer(0, 65535), "0", group="tls",
        sentence="Port for clients with TLS; 0 is off.",
    )
    tls_cert_file: str = row(
        Text(), "", group="tls", volatile=True,
        sentence="The server's certificate (PEM, with its chain).",
    )
    tls_key_file: str = row(
        Text(), "", group="tls", volatile=True,
        sentence="The private key of the certificate (PEM).",
    )
    tls_key_file_pass: str = row(
        Text(), "", group="tls", secret=True,
        sentence="The password of the private key.",
    )
    tls_ca_cert_file: str = row(
        Text(), "", group="tls", volatile=True,
        sentence="Authorities that sign the certificates of clients and other regions (PEM).",
    )
    tls_ca_cert_dir: str = row(
        Text(), "", group="tls", volatile=True,
        sentence="The same as a directory with hashed names.",
    )
    tls_auth_clients: str = row(
        Choice("no", "yes", "optional"), "yes", group="tls",
        sentence="Whether a client must present a certificate.",
    )
    tls_protocols: str = row(
        WordList(), "", group="tls",
        sentence="Allowed versions, TLSv1.2 and TLSv1.3; empty means both.",
    )
    tls_ciphers: str = row(
        Text(), "", group="tls",
        sentence="Cipher suites of TLS 1.2 in OpenSSL's notation.",
    )
    tls_prefer_server_ciphers: bool = row(
        YesNo(), "no", group="tls",
        sentence="Choose the cipher by the server's order of preference.",
    )
    tls_replication: bool = row(
        YesNo(), "no", group="tls", immutable=True,
        sentence="TLS between regions; both sides present certificates with their region names.",
    )
    tls_client_cert_file: str = row(
        Text(), "", group="tls", volatile=True,
        sentence="The certificate for outgoing links to other regions, if it differs from "
        "tls-cert-file.",
    )
    tls_client_key_file: str = row(
        Text(), "", group="tls", volatile=True,
        sentence="Its private key (PEM).",
    )
    tls_client_key_file_pass: str = row(
        Text(), "", group="tls", secret=True,
        sentence="The password of that key.",
    )

    # -- process and logs ---------------------------------------------------------------------
    dir: str = row(
        Text(), ".", group="process", protected=True,
        sentence="Working directory; relative paths of other directives start here.",
    )
    databases: int = row(
        Integer(1, 100_000), "16", group="process", immutable=True,
        sentence="How many numbered databases there are.",
    )
    hz: int = row(
        Integer(0, 2147483647), "10", group="process", unit="per second",
        sentence="How often background work runs (kept between 1 and 500).",
    )
    shutdown_timeout: int = row(
        Integer(0, 2147483647), "10", group="process", unit="seconds",
        sentence="How long a stop waits for linked regions to take the last effects, and for "
        "clients to read their last replies.",
    )
    supervised: str = row(
        Choice("no", "systemd", "auto", "upstart"), "no", group="process", immutable=True,
        refused={"upstart": "upstart is not supported, use supervised no"},
        sentence="Notify systemd when the server is ready; auto does so if systemd asks for it.",
    )
    daemonize: bool = row(
        YesNo(), "no", group="process", immutable=True,
        refused={"yes": "the server stays in the foreground; let systemd, a container or "
                 "'nohup anabranch serve &' keep it running"},
        sentence="Only no: the server stays in the foreground.",
    )
    pidfile: str = row(
        Text(), "", group="process", immutable=True,
        sentence="Write the process ID to this file while running.",
    )
    logfile: str = row(
        Text(), "", group="process", immutable=True,
        sentence="Write the log to this file; empty means standard output.",
    )
    loglevel: str = row(
        Choice("debug", "verbose", "notice", "warning", "nothing"), "notice", group="process",
        sentence="The lowest level that is logged.",
    )
    log_format: str = row(
        Choice("auto", "legacy", "logfmt", "json"), "auto", group="process",
        sentence="Format of log lines; auto is readable text on a terminal and JSON elsewhere.",
    )
    log_timestamp_format: str = row(
        Choice("legacy", "iso8601", "milliseconds"), "legacy", group="process",
        sentence="Format of times in log lines; legacy means ISO 8601 in logfmt and JSON lines.",
    )
    syslog_enabled: bool = row(
        YesNo(), "no", group="process", immutable=True,
        sentence="Log to syslog as well.",
    )
    syslog_ident: str = row(
        Text(), "anabranch", group="process", immutable=True,
        sentence="The name used in syslog.",
    )
    syslog_facility: str = row(
        Choice("user", *(f"local{n}" for n in range(8))), "local0", group="process", immutable=True,
        sentence="The facility used in syslog.",
    )
    hide_user_data_from_log: bool = row(
        YesNo(), "no", group="process",
        sentence="Keep keys and values out of log lines and out of the slow log.",
    )

    # -- access -------------------------------------------------------------------------------
    requirepass: str = row(
        Text(), "", group="access", secret=True,
        sentence="Password of the default user.",
    )
    user: list[list[str]] = row(
        Lines(), "", group="access", hidden=True, immutable=True, secret=True,
        sentence="An ACL user and its rules; one line for each user.",
    )
    aclfile: str = row(
        Text(), "", group="access", immutable=True,
        sentence="File with the ACL users, instead of user lines.",
    )
    acl_pubsub_default: str = row(
        Choice("allchannels", "resetchannels"), "resetchannels", group="access",
        sentence="Whether a new ACL user may use all channels or none.",
    )
    acllog_max_len: int = row(
        Integer(), "128", group="access",
        sentence="How many denials ACL LOG remembers.",
    )
    enable_debug_command: str = row(
        Choice("no", "yes", "local"), "no", group="access", immutable=True,
        sentence="Who may use DEBUG; local means clients of this machine.",
    )
    enable_protected_configs: str = row(
        Choice("no", "yes", "local"), "no", group="access", immutable=True,
        sentence="Who may change protected directives such as dir at run time.",
    )

    # -- clients and memory -------------------------------------------------------------------
    maxclients: int = row(
        Integer(1, 4294967295), "10000", group="clients",
        sentence="How many clients may be connected at once.",
    )
    client_output_buffer_limit: Limits = row(
        OutputLimits(), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        group="clients",
        sentence="Close clients that do not read: hard limit, soft limit, seconds above it.",
    )
    client_query_buffer_limit: int = row(
        Memory(1 << 20), "1073741824", group="clients",
        sentence="Close a client whose unfinished request or transaction is larger than this.",
    )
    proto_max_bulk_len: int = row(
        Memory(1 << 20), "536870912", group="clients",
        sentence="The largest single argument of a request.",
    )
    maxmemory: int = row(
        Memory(), "0", group="clients",
        sentence="Refuse commands that add data while data and buffers hold more; 0 is no limit.",
    )
    maxmemory_clients: int = row(
        Memory(percent=True), "0", group="clients",
        sentence="Close the clients that hold most while all together hold more; a percentage is "
        "one of maxmemory; 0 is no limit.",
    )
    maxmemory_policy: str = row(
        Choice("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-lrm",
        "allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm", "noeviction"), "noeviction",
        group="clients",
        sentence="Streams are never evicted: every policy acts as noeviction.",
    )

    # -- streams ------------------------------------------------------------------------------
    stream_node_max_entries: int = row(
        Integer(), "100", group="streams",
        sentence="Entries per node as approximate trimming counts them; 0 is no limit.",
    )
    stream_node_max_bytes: int = row(
        Memory(), "4096", group="streams",
        sentence="Bytes per node as approximate trimming counts them; 0 is no limit.",
    )
    stream_compression: bool = row(
        YesNo(), "yes", group="streams",
        sentence="Hold the entries of full nodes as columns, or compressed, in memory. With no, "
        "nodes that are packed stay so until they change.",
    )
    stream_compression_age: int = row(
        Integer(0, 86400), "10", group="streams", unit="seconds",
        sentence="Pack a node when it has been full for this long, at most twice as long; earlier "
        "while much is added.",
    )
    stream_compression_level: int = row(
        Integer(1, 19), "1", group="streams",
        sentence="The zstd level of compressed nodes; a higher one takes longer and saves little.",
    )
    stream_memory_hot: int = row(
        Memory(), "0", group="streams",
        sentence="While all data take less than this, nodes are not compressed, only written as "
        "columns where that is smaller; 0 is a quarter of maxmemory, or without one an eighth of "
        "the machine's memory, at least 128 MB.",
    )
    stream_compression_cache: int = row(
        Memory(), "16mb", group="streams",
        sentence="What compressed nodes that were opened for readers may hold beside.",
    )
    stream_tiering: bool = row(
        YesNo(), "no", group="streams",
        sentence="Move the oldest nodes of streams to a temporary file in dir when data and "
        "buffers hold three quarters of maxmemory. With no, nodes stay where they are.",
    )
    stream_idmp_duration: int = row(
        Integer(1, 86400), "100", group="streams", unit="seconds",
        sentence="How long new streams remember idempotent IDs.",
    )
    stream_idmp_maxsize: int = row(
        Integer(1, 10000), "100", group="streams",
        sentence="How many idempotent IDs new streams remember per producer.",
    )
    ledger_retention: int = row(
        Integer(0, 2147483647), "2592000", group="streams", unit="seconds",
        sentence="Forget a bulk producer that has sent nothing, and where a deleted stream ended, "
        "after this long; 0 never does. With several regions the shortest of their settings counts "
        "for producers.",
    )

    # -- persistence --------------------------------------------------------------------------
    appendonly: bool = row(
        YesNo(), "yes", group="persistence",
        sentence="Write a log of all changes, so that a restart loses nothing.",
    )
    appendfsync: str = row(
        Choice("everysec", "always", "no"), "everysec", group="persistence",
        sentence="When a reply is sent: always waits for the disk; otherwise a power failure costs "
                 "a second (everysec) or what the system had not written (no).",
    )
    appenddirname: str = row(
        FolderName(), "appendonlydir", group="persistence", immutable=True,
        sentence="The directory of log and snapshots, in dir.",
    )
    save: str = row(
        SavePoints(), "", group="persistence",
        sentence="Take a snapshot after a number of seconds with a number of changes; for use "
        "without log.",
    )
    auto_aof_rewrite_percentage: int = row(
        Integer(), "100", group="persistence",
        sentence="Take a snapshot when the log has grown to this share of the last; 0 never does.",
    )
    auto_aof_rewrite_min_size: int = row(
        Memory(), "67108864", group="persistence",
        sentence="Take no such snapshot while the log is smaller than this.",
    )
    oplog_segment_bytes: int = row(
        Memory(1 << 12), "67108864", group="persistence",
        sentence="Begin the next file of the log at this size.",
    )
    serve_unsafe_reads: bool = row(
        YesNo(), "no", group="persistence",
        sentence="During disk errors also serve reads of changes that a crash would undo: to copy "
        "data that is only in memory.",
    )
    oplog_compression: bool = row(
        YesNo(), "yes", group="persistence",
        sentence="Compress log and snapshots with zstd if that makes them smaller; other regions "
        "get effects as they stand in the log.",
    )

    # -- scripts ------------------------------------------------------------------------------
    busy_reply_threshold: int = row(
        Integer(), "5000", group="scripts", unit="milliseconds", aliases=("lua-time-limit",),
        sentence="While a script runs for longer than this, other clients are answered BUSY; "
        "SCRIPT KILL ends it.",
    )
    script_memory_limit: int = row(
        Memory(1 << 20), "67108864", group="scripts", immutable=True,
        sentence="Memory that all scripts may take together.",
    )

    # -- events and slow log ------------------------------------------------------------------
    notify_keyspace_events: str = row(
        EventClasses(), "", group="watching",
        sentence="Which keyspace events are published; empty is none, KEA nearly all.",
    )
    notify_remote_effects: bool = row(
        YesNo(), "yes", group="watching",
        sentence="Also publish keyspace events for effects of other regions.",
    )
    slowlog_log_slower_than: int = row(
        Integer(-1), "10000", group="watching", unit="microseconds",
        sentence="Commands slower than this enter the slow log; -1 is none, 0 all.",
    )
    slowlog_max_len: int = row(
        Integer(), "128", group="watching",
        sentence="How many commands the slow log keeps.",
    )
    slowlog_max_argc: int = row(
        Integer(1), "32", group="watching",
        sentence="How many arguments of a command the slow log keeps.",
    )
    latency_monitor_threshold: int = row(
        Integer(), "0", group="watching", unit="milliseconds",
        sentence="Remember latency events above this; 0 is off.",
    )
    latency_tracking: bool = row(
        YesNo(), "yes", group="watching",
        sentence="Report percentiles in INFO latencystats.",
    )
    latency_tracking_info_percentiles: str = row(
        WordList(), "50 99 99.9", group="watching", check=check_percentiles,
        sentence="Which percentiles INFO reports.",
    )

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
    for declared in (Settings, RegionSettings, HttpSettings):
        for attribute, each in list(vars(declared).items()):
            if isinstance(each, Directive):
                each.name = attribute.replace("_", "-")
                rows[each.name] = each
                delattr(declared, attribute)
    for name, each in COMPATIBILITY.items():
        assert name not in rows, f"two rows for {name}"
        each.name = name
        rows[name] = each
    return rows


ROWS: dict[str, Directive] = _collect()
"""Every directive by its name."""

ALIASES: dict[str, str] = {alias: name for name, each in ROWS.items() for alias in each.aliases}
"""Older names, and the directive of each."""
