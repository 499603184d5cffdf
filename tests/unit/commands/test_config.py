"""CONFIG: replies and errors as recorded from Redis, and what changes bring about."""

from __future__ import annotations

import pytest

from anabranch.config.settings import ROWS
from anabranch.errors import ConfigError
from tests.support.region_harness import Harness


def failed(name: str, reason: str) -> str:
    return f"ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"


def get(server: Harness, *patterns: str) -> dict[bytes, bytes]:
    reply = server.do("CONFIG", "GET", *patterns)
    return dict(zip(reply[::2], reply[1::2], strict=True))


@pytest.fixture
def server() -> Harness:
    return Harness()


def test_get_takes_patterns_and_exact_names_as_typed(server: Harness) -> None:
    assert get(server, "stream-idmp-*") == {
        b"stream-idmp-maxsize": b"100",
        b"stream-idmp-duration": b"100",
    }
    assert get(server, "STREAM-NODE-MAX-ENTRIES") == {b"STREAM-NODE-MAX-ENTRIES": b"100"}
    assert get(server, "nosuch") == {}
    assert get(server, "hz", "*hz*", "Hz") == {b"hz": b"10", b"dynamic-hz": b"yes"}


def test_get_is_a_map_in_resp3() -> None:
    assert Harness(resp3=True).do("CONFIG", "GET", "port") == {b"port": b"6379"}


def test_older_names_are_listed_and_can_be_set(server: Harness) -> None:
    assert get(server, "slave-pri*") == {b"slave-priority": b"100"}
    server.do("CONFIG", "SET", "crdt_xadd_id_uniqueness_mode", "liberal")
    assert get(server, "xadd-id-uniqueness-mode") == {b"xadd-id-uniqueness-mode": b"liberal"}


def test_set_changes_settings(server: Harness) -> None:
    server.do("CONFIG", "SET", "stream-node-max-entries", "7", "stream-node-max-bytes", "1kb")
    assert server.settings.stream_node_max_entries == 7
    assert get(server, "stream-node-max-bytes") == {b"stream-node-max-bytes": b"1024"}
    assert server.host.applied == ["stream-node-max-entries", "stream-node-max-bytes"]


def test_setting_a_value_again_does_nothing(server: Harness) -> None:
    server.do("CONFIG", "SET", "port", "6379")
    assert server.host.applied == []


def test_a_file_that_is_named_again_is_read_again(server: Harness) -> None:
    server.do("CONFIG", "SET", "tls-cert-file", "", "tls-ca-cert-dir", "")
    assert server.host.applied == ["tls-cert-file", "tls-ca-cert-dir"]


def test_every_value_can_be_set_back(server: Harness) -> None:
    for name, value in get(server, "*").items():
        reply = server.raw("CONFIG", "SET", name, value)
        assert reply == b"+OK\r\n" or b"immutable" in reply or b"protected" in reply, name
    assert server.host.applied == [name for name, row in ROWS.items() if row.volatile]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "stream-node-max-entries",
            "-1",
            "argument must be between 0 and 9223372036854775807 inclusive",
        ),
        ("stream-node-max-entries", "bad", "argument couldn't be parsed into an integer"),
        ("stream-node-max-entries", "", "argument couldn't be parsed into an integer"),
        ("stream-node-max-bytes", "-1", "argument must be a memory value"),
        ("stream-idmp-duration", "0", "argument must be between 1 and 86400 inclusive"),
        ("STREAM-idmp-maxsize", "10001", "argument must be between 1 and 10000 inclusive"),
        ("databases", "5", "can't set immutable config"),
        ("dir", "/", "can't set protected config"),
        (
            "notify-keyspace-events",
            "KEA!",
            "Invalid event class character. Use 'Ag$lshzxeKEtmdnocaSTIV'.",
        ),
        ("appendfsync", "x", "argument(s) must be one of the following: everysec, always, no"),
        (
            "latency-tracking-info-percentiles",
            "101",
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        ),
    ],
)
def test_a_refused_value_gets_redis_text(
    server: Harness, name: str, value: str, reason: str
) -> None:
    assert server.error("CONFIG", "SET", name, value) == failed(name, reason)


def test_set_is_all_or_none(server: Harness) -> None:
    error = server.error("CONFIG", "SET", "stream-idmp-maxsize", "5", "stream-idmp-duration", "0")
    assert error == failed("stream-idmp-duration", "argument must be between 1 and 86400 inclusive")
    error = server.error("CONFIG", "SET", "stream-idmp-maxsize", "5", "nosuch", "6")
    assert error == "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"
    error = server.error("CONFIG", "SET", "stream-idmp-maxsize", "5", "stream-idmp-maxsize", "6")
    assert error == failed("stream-idmp-maxsize", "duplicate parameter")
    assert server.error("CONFIG", "SET", "hz", "5", "timeout") == "ERR syntax error"
    assert server.settings.stream_idmp_maxsize == 100
    assert server.settings.hz == 10


def test_a_change_the_process_cannot_make_is_taken_back(
    server: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[tuple[str, int]] = []

    def apply_setting(name: str) -> None:
        applied.append((name, server.settings.port))
        if server.settings.port == 1:
            raise ConfigError("Unable to listen on this port. Check server logs.")

    monkeypatch.setattr(server.host, "apply_setting", apply_setting)
    error = server.error("CONFIG", "SET", "port", "1", "stream-idmp-maxsize", "5")
    assert error == failed("port", "Unable to listen on this port. Check server logs.")
    assert server.settings.port == 6379
    assert server.settings.stream_idmp_maxsize == 100
    assert applied == [("port", 1), ("port", 6379)]


def test_taking_back_goes_on_after_a_failure(
    server: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[str] = []

    def apply_setting(name: str) -> None:
        applied.append(name)
        if len(applied) > 1:
            raise ConfigError("no")

    monkeypatch.setattr(server.host, "apply_setting", apply_setting)
    assert server.error("CONFIG", "SET", "hz", "5", "port", "1") == failed("port", "no")
    assert applied == ["hz", "port", "hz", "port"]
    assert (server.settings.hz, server.settings.port) == (10, 6379)


def test_a_password_closes_the_door_for_new_clients(server: Harness) -> None:
    server.do("CONFIG", "SET", "requirepass", "secret")
    stranger = server.connect()
    assert server.error("XLEN", "s", session=stranger) == "NOAUTH Authentication required."
    assert server.do("AUTH", "secret", session=stranger) == b"OK"
    server.do("CONFIG", "SET", "requirepass", "")
    assert server.do("XLEN", "s", session=server.connect()) == 0


def test_slow_log_and_events_follow_their_settings(server: Harness) -> None:
    server.do("CONFIG", "SET", "slowlog-log-slower-than", "5", "slowlog-max-len", "3")
    assert server.region.slowlog.threshold_ns == 5000
    assert server.region.slowlog.max_len == 3
    server.do("CONFIG", "SET", "latency-monitor-threshold", "7")
    assert server.region.latency.threshold_ns == 7_000_000
    server.do("CONFIG", "SET", "notify-keyspace-events", "KEAnS")
    assert server.region.events.flags != 0
    server.do("CONFIG", "SET", "notify-keyspace-events", "")
    assert server.region.events.flags == 0


def test_a_memory_limit_guards_commands_that_add(server: Harness) -> None:
    server.region.dispatcher.used_memory = lambda: 2 << 20
    server.do("XADD", "s", "*", "a", "1")
    server.do("CONFIG", "SET", "maxmemory", "1mb")
    assert server.error("XADD", "s", "*", "a", "1") == (
        "OOM command not allowed when used memory > 'maxmemory'."
    )
    assert server.do("XLEN", "s") == 1
    server.do("CONFIG", "SET", "maxmemory", "0")
    server.do("XADD", "s", "*", "a", "1")


def test_a_region_keeps_some_of_its_memory_for_what_others_add() -> None:
    for settings, share in (({}, 100), ({"region_id": 1}, 95)):
        server = Harness(**settings)
        server.do("CONFIG", "SET", "maxmemory", "1000000")
        server.region.dispatcher.used_memory = lambda share=share: 10_000 * share
        server.do("XADD", "s", "*", "a", "1")
        server.region.dispatcher.used_memory = lambda share=share: 10_000 * share + 1
        assert server.error("XADD", "s", "*", "a", "1").startswith("OOM ")
    server.do("CONFIG", "SET", "replication-oom-threshold-percent", "0")
    server.do("XADD", "s", "*", "a", "1")


def test_protected_settings_open_with_their_own_setting() -> None:
    server = Harness()
    server.settings.enable_protected_configs = "local"
    server.do("CONFIG", "SET", "dbfilename", "x.rdb")
    server.session.address = "10.0.0.1:5000"
    assert "protected" in server.error("CONFIG", "SET", "dbfilename", "y.rdb")


def test_resetstat_zeroes_figures(server: Harness) -> None:
    server.do("XADD", "s", "*", "a", "1")
    server.error("XADD", "s")
    server.do("CONFIG", "RESETSTAT")
    assert server.region.stats.errors == {}
    assert all(
        entry.calls == 0
        for entry in server.region.dispatcher.all_entries()
        if entry.command.name != "resetstat"
    )


def test_rewrite_hands_over_the_users(server: Harness) -> None:
    server.do("CONFIG", "SET", "requirepass", "secret")
    server.region.acl.setuser(b"alice", [b"on", b"nopass", b"~x", b"+get"])
    server.do("CONFIG", "REWRITE")
    assert server.host.rewritten is not None
    (words,) = server.host.rewritten
    assert words[:4] == [b"user", b"alice", b"on", b"nopass"]


def test_rewrite_says_why_it_cannot(server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def rewrite_config(users: list[list[bytes]]) -> None:
        raise ConfigError("The server is running without a config file")

    monkeypatch.setattr(server.host, "rewrite_config", rewrite_config)
    assert server.error("CONFIG", "REWRITE") == "ERR The server is running without a config file"


def test_arity_is_checked_by_sub_command(server: Harness) -> None:
    for arguments in (["GET"], ["SET", "port"], ["RESETSTAT", "x"]):
        assert server.error("CONFIG", *arguments) == (
            f"ERR wrong number of arguments for 'config|{arguments[0].lower()}' command"
        )
