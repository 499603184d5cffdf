"""Directives of Redis that are accepted without effect, and those that are refused.

The first are accepted, checked and stored, so that configuration files can be read and CONFIG GET
returns what CONFIG SET has set; the log names those that a start was given. Of the second, a value
that needs a missing feature is refused with a sentence that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.config.kinds import Choice, Directive, Integer, Kind, Memory, Text, WordList, YesNo

_NUMBER = Integer()
_SIGNED = Integer(-(1 << 63))
_PORT = Integer(0, 65535)
_PERCENT = Integer(0, 100)
_BYTES = Memory()
_SWITCH = YesNo()
_TEXT = Text()
_SHUTDOWN = Choice("default", "save", "nosave", "now", "force", several=True)
_DISKLESS = Choice("disabled", "on-empty-db", "swapdb", "flush-before-load")
_PROPAGATION = Choice("ignore", "panic", "panic-on-replicas")
_ENDPOINT = Choice("ip", "hostname", "unknown-endpoint")

# By reason; a row is (name, kind, default, more): an alias, behind "!" if the directive cannot
# change at run time, behind "%" if that takes enable-protected-configs
_EFFECTLESS: dict[str, list[tuple[str, Kind, str, str]]] = {
    "an encoding threshold of values other than streams": [
        ("hash-max-listpack-entries", _NUMBER, "512", "hash-max-ziplist-entries"),
        ("hash-max-listpack-value", _NUMBER, "64", "hash-max-ziplist-value"),
        ("list-max-listpack-size", _SIGNED, "-2", "list-max-ziplist-size"),
        ("list-compress-depth", _NUMBER, "0", ""),
        ("set-max-intset-entries", _NUMBER, "512", ""),
        ("set-max-listpack-entries", _NUMBER, "128", ""),
        ("set-max-listpack-value", _NUMBER, "64", ""),
        ("zset-max-listpack-entries", _NUMBER, "128", "zset-max-ziplist-entries"),
        ("zset-max-listpack-value", _NUMBER, "64", "zset-max-ziplist-value"),
        ("hll-sparse-max-bytes", _BYTES, "3000", ""),
    ],
    "a detail of Redis's own files; see the persistence settings": [
        ("appendfilename", _TEXT, "appendonly.aof", "!"),
        ("dbfilename", _TEXT, "dump.rdb", "%"),
        ("rdbcompression", _SWITCH, "yes", ""),
        ("rdbchecksum", _SWITCH, "yes", "!"),
        ("rdb-save-incremental-fsync", _SWITCH, "yes", ""),
        ("rdb-del-sync-files", _SWITCH, "no", ""),
        ("sanitize-dump-payload", Choice("no", "yes", "clients"), "no", ""),
        ("stop-writes-on-bgsave-error", _SWITCH, "yes", ""),
        ("no-appendfsync-on-rewrite", _SWITCH, "no", ""),
        ("aof-load-truncated", _SWITCH, "yes", ""),
        ("aof-load-corrupt-tail-max-size", _BYTES, "0", ""),
        ("aof-use-rdb-preamble", _SWITCH, "yes", ""),
        ("aof-timestamp-enabled", _SWITCH, "no", ""),
        ("aof-rewrite-incremental-fsync", _SWITCH, "yes", ""),
        ("aof-disable-auto-gc", _SWITCH, "no", ""),
        ("shutdown-on-sigint", _SHUTDOWN, "default", ""),
        ("shutdown-on-sigterm", _SHUTDOWN, "default", ""),
    ],
    "streams are never evicted": [
        ("maxmemory-samples", Integer(1, 64), "5", ""),
        ("maxmemory-eviction-tenacity", _PERCENT, "10", ""),
        ("lfu-log-factor", _NUMBER, "10", ""),
        ("lfu-decay-time", _NUMBER, "1", ""),
        ("lazyfree-lazy-eviction", _SWITCH, "no", ""),
        ("lazyfree-lazy-expire", _SWITCH, "no", ""),
        ("lazyfree-lazy-server-del", _SWITCH, "no", ""),
        ("lazyfree-lazy-user-del", _SWITCH, "no", ""),
        ("lazyfree-lazy-user-flush", _SWITCH, "no", ""),
        ("tracking-table-max-keys", _NUMBER, "1000000", ""),
        ("active-expire-effort", Integer(1, 10), "1", ""),
        ("lookahead", Integer(1), "16", ""),
    ],
    "there are no read-only replicas": [
        ("masterauth", _TEXT, "", ""),
        ("masteruser", _TEXT, "", ""),
        ("min-replicas-to-write", _NUMBER, "0", "min-slaves-to-write"),
        ("min-replicas-max-lag", _NUMBER, "10", "min-slaves-max-lag"),
        ("repl-backlog-size", Memory(1), "1048576", ""),
        ("repl-backlog-ttl", _NUMBER, "3600", ""),
        ("repl-disable-tcp-nodelay", _SWITCH, "no", ""),
        ("repl-diskless-load", _DISKLESS, "disabled", ""),
        ("repl-diskless-sync", _SWITCH, "yes", ""),
        ("repl-diskless-sync-delay", _NUMBER, "5", ""),
        ("repl-diskless-sync-max-replicas", _NUMBER, "0", ""),
        ("repl-ping-replica-period", Integer(1), "10", "repl-ping-slave-period"),
        ("repl-timeout", Integer(1), "60", ""),
        ("replica-announce-ip", _TEXT, "", "slave-announce-ip"),
        ("replica-announce-port", _PORT, "0", "slave-announce-port"),
        ("replica-announced", _SWITCH, "yes", ""),
        ("replica-full-sync-buffer-limit", _BYTES, "0", ""),
        ("replica-ignore-disk-write-errors", _SWITCH, "no", ""),
        ("replica-ignore-maxmemory", _SWITCH, "yes", "slave-ignore-maxmemory"),
        ("replica-lazy-flush", _SWITCH, "no", "slave-lazy-flush"),
        ("replica-priority", _NUMBER, "100", "slave-priority"),
        ("replica-read-only", _SWITCH, "yes", "slave-read-only"),
        ("replica-serve-stale-data", _SWITCH, "yes", "slave-serve-stale-data"),
        ("propagation-error-behavior", _PROPAGATION, "ignore", ""),
    ],
    "there is no cluster mode": [
        ("cluster-allow-pubsubshard-when-down", _SWITCH, "yes", ""),
        ("cluster-allow-reads-when-down", _SWITCH, "no", ""),
        ("cluster-allow-replica-migration", _SWITCH, "yes", ""),
        ("cluster-announce-bus-port", _PORT, "0", ""),
        ("cluster-announce-hostname", _TEXT, "", ""),
        ("cluster-announce-human-nodename", _TEXT, "", ""),
        ("cluster-announce-ip", _TEXT, "", ""),
        ("cluster-announce-port", _PORT, "0", ""),
        ("cluster-announce-tls-port", _PORT, "0", ""),
        ("cluster-config-file", _TEXT, "nodes.conf", "!"),
        ("cluster-link-sendbuf-limit", _BYTES, "0", ""),
        ("cluster-migration-barrier", _NUMBER, "1", ""),
        ("cluster-node-timeout", _NUMBER, "15000", ""),
        ("cluster-port", _PORT, "0", "!"),
        ("cluster-preferred-endpoint-type", _ENDPOINT, "ip", ""),
        ("cluster-replica-no-failover", _SWITCH, "no", "cluster-slave-no-failover"),
        ("cluster-replica-validity-factor", _NUMBER, "10", "cluster-slave-validity-factor"),
        ("cluster-require-full-coverage", _SWITCH, "yes", ""),
        ("tls-cluster", _SWITCH, "no", ""),
    ],
    "one thread runs all commands": [
        ("io-threads", Integer(1, 128), "1", "!"),
        ("io-threads-do-reads", _SWITCH, "no", "!"),
        ("server-cpulist", _TEXT, "", "!server_cpulist"),
        ("bio-cpulist", _TEXT, "", "!bio_cpulist"),
        ("aof-rewrite-cpulist", _TEXT, "", "!aof_rewrite_cpulist"),
        ("bgsave-cpulist", _TEXT, "", "!bgsave_cpulist"),
    ],
    "a detail of Redis's own process": [
        ("activedefrag", _SWITCH, "no", ""),
        ("active-defrag-cycle-max", Integer(1, 99), "25", ""),
        ("active-defrag-cycle-min", Integer(1, 99), "1", ""),
        ("active-defrag-ignore-bytes", _BYTES, "104857600", ""),
        ("active-defrag-max-scan-fields", Integer(1), "1000", ""),
        ("active-defrag-threshold-lower", Integer(0, 1000), "10", ""),
        ("active-defrag-threshold-upper", Integer(0, 1000), "100", ""),
        ("activerehashing", _SWITCH, "yes", ""),
        ("always-show-logo", _SWITCH, "no", "!"),
        ("bind-source-addr", _TEXT, "", ""),
        ("crash-log-enabled", _SWITCH, "yes", ""),
        ("crash-memcheck-enabled", _SWITCH, "yes", ""),
        ("disable-thp", _SWITCH, "yes", "!"),
        ("dynamic-hz", _SWITCH, "yes", ""),
        ("enable-module-command", Choice("no", "yes", "local"), "no", "!"),
        ("ignore-warnings", _TEXT, "", ""),
        ("jemalloc-bg-thread", _SWITCH, "yes", ""),
        ("key-memory-histograms", _SWITCH, "yes", "!"),
        ("lua-enable-deprecated-api", _SWITCH, "no", "!"),
        ("locale-collate", _TEXT, "", ""),
        ("max-new-connections-per-cycle", Integer(1, 1000), "10", ""),
        ("max-new-tls-connections-per-cycle", Integer(1, 1000), "1", ""),
        ("oom-score-adj", Choice("no", "yes", "relative", "absolute"), "no", ""),
        ("oom-score-adj-values", WordList(3), "0 200 800", ""),
        ("proc-title-template", _TEXT, "{title} {listen-addr} {server-mode}", ""),
        ("set-proc-title", _SWITCH, "yes", ""),
        ("socket-mark-id", _NUMBER, "0", ""),
        ("tls-ciphersuites", _TEXT, "", ""),
        ("tls-dh-params-file", _TEXT, "", ""),
        ("tls-session-cache-size", _NUMBER, "20480", ""),
        ("tls-session-cache-timeout", _NUMBER, "300", ""),
        ("tls-session-caching", _SWITCH, "yes", ""),
    ],
}

# fmt: off
_REFUSED: list[tuple[str, Kind, str, Mapping[str, str], str]] = [
    ("cluster-enabled", _SWITCH, "no",
        {"yes": "there is no cluster mode; run one server and leave cluster-enabled at no"},
        "Only no: there is no cluster mode."),
    ("replicaof", WordList(2), "",
        {"*": "there are no read-only replicas; remove the line and run one server"},
        "Not available: there are no read-only replicas."),
    ("loadmodule", WordList(1 << 10), "",
        {"*": "modules cannot be loaded; remove the line, streams need none"},
        "Not available: modules cannot be loaded."),
    ("sentinel", WordList(1 << 10), "",
        {"*": "there is no sentinel mode; use 'anabranch serve' for a server"},
        "Not available: there is no sentinel mode."),
    ("rename-command", WordList(2), "",
        {"*": "commands cannot be renamed; use ACL rules (user default -flushall) instead"},
        "Not available: use ACL rules."),
]
# fmt: on


def _rows() -> dict[str, Directive]:
    rows: dict[str, Directive] = {}
    for reason, members in _EFFECTLESS.items():
        for name, kind, default, more in members:
            rows[name] = Directive(
                kind, default, f"No effect: {reason}.",
                group="compatibility", effect=False,
                immutable=more.startswith("!"), protected=more == "%",
                secret=name in {"masterauth", "masteruser"},
                aliases=tuple(filter(None, [more.strip("!%")])),
            )  # fmt: skip
    for name, kind, default, refused, sentence in _REFUSED:
        rows[name] = Directive(
            kind, default, sentence, group="refused", effect=False, immutable=True,
            hidden=name not in {"cluster-enabled", "replicaof"}, refused=refused,
            aliases=("slaveof",) if name == "replicaof" else (),
        )  # fmt: skip
    return rows


COMPATIBILITY: dict[str, Directive] = _rows()
"""Those rows by name."""
