"""Where settings come from, which source wins, and what a mistake is told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from anabranch.config.load import Loaded, load
from anabranch.errors import ConfigError


def file(tmp_path: Path, text: str, name: str = "my.conf") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def complaint(arguments: list[str], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(arguments, environment)
    return str(caught.value)


def test_each_source_beats_the_one_before(tmp_path: Path) -> None:
    conf = file(tmp_path, "port 1001\nhz 11\nmaxclients 12\n")
    loaded = load([conf, "--port", "1003"], {"ANABRANCH_PORT": "1002", "ANABRANCH_HZ": "22"})
    assert loaded.settings.port == 1003
    assert loaded.settings.hz == 22
    assert loaded.settings.maxclients == 12
    assert loaded.settings.timeout == 0
    assert loaded.source("port") == "command line"
    assert loaded.source("hz") == "environment ANABRANCH_HZ"
    assert loaded.source("maxclients") == f"{conf}:3"
    assert loaded.source("timeout") == "default"
    assert loaded.file == Path(conf)


def test_a_file_has_comments_quotes_units_and_any_case(tmp_path: Path) -> None:
    conf = file(
        tmp_path,
        '# a comment\n\n  \nMaxMemory 1gb\nrequirepass "a b\\x41\\""\n'
        "unixsocket '/tmp/a b'\nproto-max-bulk-len 2m\n",
    )
    settings = load([conf]).settings
    assert settings.maxmemory == 1 << 30
    assert settings.requirepass == 'a bA"'
    assert settings.unixsocket == "/tmp/a b"
    assert settings.proto_max_bulk_len == 2_000_000


def test_a_mark_of_byte_order_is_not_part_of_the_first_word(tmp_path: Path) -> None:
    assert load([file(tmp_path, "\ufeffport 7000\n")]).settings.port == 7000


def test_lines_that_repeat_add_up_within_a_source_only(tmp_path: Path) -> None:
    conf = file(
        tmp_path,
        "save 3600 1\nsave 300 100\nuser alice on\nuser bob off\n"
        "client-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\n",
    )
    settings = load([conf]).settings
    assert settings.user == [["alice", "on"], ["bob", "off"]]
    assert settings.client_output_buffer_limit == {
        "normal": (1, 2, 3),
        "slave": (268435456, 67108864, 60),
        "pubsub": (4, 5, 6),
    }
    assert load([conf]).settings.text("save") == "3600 1 300 100"
    assert load([conf, "--save", "60", "1"]).settings.text("save") == "60 1"
    assert load([conf, "--save", ""]).settings.text("save") == ""
    assert load([conf, "--save"]).settings.text("save") == ""


def test_a_file_may_include_others(tmp_path: Path) -> None:
    file(tmp_path, "hz 30\n", "one.conf")
    file(tmp_path, "timeout 5\n", "two.conf")
    conf = file(tmp_path, f"include {tmp_path}/one.conf\ninclude two.conf\nhz 31\n")
    settings = load([conf]).settings
    assert (settings.hz, settings.timeout) == (31, 5)


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    conf = file(tmp_path, f"include {tmp_path}/my.conf\n")
    assert "too deeply" in complaint([conf])


@pytest.mark.parametrize("arguments", [["-", "--hz", "12"], ["--hz", "12", "-"]])
def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"port 1001\nhz 11\n")))
    loaded = load(arguments)
    assert (loaded.settings.port, loaded.settings.hz) == (1001, 12)
    assert loaded.file is None


def test_command_line_values_go_on_until_the_next_directive() -> None:
    settings = load(
        ["--bind", "127.0.0.1", "::1", "--port=1001", "--slowlog-log-slower-than", "-1"]
    ).settings
    assert settings.bind == "127.0.0.1 ::1"
    assert settings.port == 1001
    assert settings.slowlog_log_slower_than == -1


def test_an_unknown_directive_names_place_line_and_neighbour(tmp_path: Path) -> None:
    conf = file(tmp_path, "# first\nmaxclient 5\n")
    text = complaint([conf])
    assert f'{conf}, line 2: "maxclient 5"' in text
    assert "unknown directive 'maxclient'" in text
    assert "did you mean 'maxclients'?" in text


def test_a_bad_value_names_what_is_allowed(tmp_path: Path) -> None:
    conf = file(tmp_path, "stream-idmp-duration 86401\n")
    text = complaint([conf])
    assert f'{conf}, line 1: "stream-idmp-duration 86401"' in text
    assert "between 1 and 86400" in text
    assert "allowed: a whole number from 1 to 86400" in text


def test_mistakes_on_the_command_line_and_in_the_environment_name_themselves() -> None:
    assert 'command line: "--hz often"' in complaint(["--hz", "often"])
    assert "a value is missing" in complaint(["--hz"])
    text = complaint([], {"ANABRANCH_HZ": "often"})
    assert 'environment: "ANABRANCH_HZ=often"' in text


def test_a_switch_may_stand_alone() -> None:
    loaded = load(
        ["--cluster-create", "--region-id", "1", "--appendonly", "no", "--tls-replication"]
    )
    settings = loaded.settings
    assert (settings.cluster_create, settings.tls_replication) == (True, True)
    assert settings.appendonly is False
    assert "yes" in complaint(["--cluster-create", "perhaps"])


def test_a_quote_that_is_not_closed_is_found(tmp_path: Path) -> None:
    assert "a quote is not closed" in complaint([file(tmp_path, 'requirepass "x\n')])


def test_a_password_is_never_repeated_in_a_message(tmp_path: Path) -> None:
    text = complaint([file(tmp_path, "requirepass hush hush\n")])
    assert "hush" not in text
    assert "requirepass ..." in text


def test_a_missing_file_is_named() -> None:
    assert "/nowhere/my.conf: No such file" in complaint(["/nowhere/my.conf"])


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--cluster-enabled", "yes"], "there is no cluster mode"),
        (["--daemonize", "yes"], "stays in the foreground"),
        (["--replicaof", "10.0.0.1", "6379"], "there are no read-only replicas"),
        (["--slaveof", "10.0.0.1", "6379"], "there are no read-only replicas"),
        (["--loadmodule", "/x.so"], "modules cannot be loaded"),
        (["--sentinel", "monitor", "m"], "no sentinel mode"),
        (["--rename-command", "FLUSHALL", ""], "ACL rules"),
        (["--tls-port", "7000"], "tls-port needs tls-cert-file"),
    ],
)
def test_what_cannot_be_had_is_refused_with_advice(arguments: list[str], advice: str) -> None:
    assert advice in complaint(arguments)


@pytest.mark.parametrize(
    "arguments", [["--cluster-enabled", "no"], ["--daemonize", "no"], ["--slave-priority", "5"]]
)
def test_harmless_values_and_old_names_are_taken(arguments: list[str]) -> None:
    assert isinstance(load(arguments), Loaded)


def test_directives_without_effect_are_counted_when_they_differ_from_the_default() -> None:
    loaded = load(
        ["--io-threads", "4", "--rdbcompression", "no", "--hz", "11", "--rdbchecksum", "yes"]
    )
    assert loaded.without_effect == ["io-threads", "rdbcompression"]


def test_a_stray_variable_is_noted_and_not_fatal() -> None:
    loaded = load([], {"ANABRANCH_PROT": "1", "ANABRANCH_AUTH": "x", "OTHER": "y"})
    assert len(loaded.notes) == 1
    assert "ANABRANCH_PROT names no directive; did you mean 'port'?" in loaded.notes[0]


def test_the_port_variable_of_kubernetes_is_not_taken_for_ours() -> None:
    loaded = load([], {"ANABRANCH_PORT": "tcp://10.0.0.1:6379"})
    assert loaded.settings.port == 6379
    assert "ignored" in loaded.notes[0]


def test_a_variable_may_hold_several_words() -> None:
    settings = load([], {"ANABRANCH_BIND": "* -::*", "ANABRANCH_USER": "app on +ping"}).settings
    assert settings.bind == "* -::*"
    assert settings.user == [["app", "on", "+ping"]]
