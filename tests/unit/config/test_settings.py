"""The table of directives holds together."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.config.settings import ALIASES, GROUPS, ROWS, Settings


def test_attributes_have_the_defaults_of_redis() -> None:
    settings = Settings()
    assert settings.port == 6379
    assert settings.databases == 16
    assert settings.stream_node_max_entries == 100
    assert settings.stream_node_max_bytes == 4096
    assert settings.stream_idmp_duration == 100
    assert settings.slowlog_log_slower_than == 10000
    assert settings.maxclients == 10000
    assert settings.proto_max_bulk_len == 512 << 20
    assert settings.enable_debug_command == "no"


def test_only_this_machine_is_listened_to_by_default() -> None:
    settings = Settings()
    assert settings.bind == "127.0.0.1 -::1"
    assert settings.protected_mode is True


def test_reading_an_attribute_finds_a_plain_value() -> None:
    assert "stream_node_max_entries" in vars(Settings())
    assert not hasattr(Settings, "stream_node_max_entries")


def test_two_settings_share_nothing() -> None:
    one, other = Settings(), Settings()
    one.client_output_buffer_limit["normal"] = (1, 2, 3)
    one.user.append(["alice", "on"])
    assert other.client_output_buffer_limit["normal"] == (0, 0, 0)
    assert other.user == []


def test_values_may_be_given_by_attribute() -> None:
    assert Settings(port=7000, stream_idmp_maxsize=5).port == 7000


@pytest.mark.parametrize("name", list(ROWS))
def test_each_row_is_complete(name: str) -> None:
    row = ROWS[name]
    assert row.name == name
    assert row.group in GROUPS
    assert row.sentence.endswith(".")
    assert row.allowed
    assert row.kind.format(row.default) == Settings().text(name)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "user"])
def test_what_is_shown_can_be_set_again(name: str) -> None:
    row = ROWS[name]
    text = Settings().text(name)
    if not text and row.kind.many_words and row.refused:
        return  # replicaof and its like have no value that could be given
    parsed: Any = row.parse([text])
    assert parsed == row.default


def test_aliases_stand_for_known_directives() -> None:
    assert ALIASES["slave-priority"] == "replica-priority"
    assert ALIASES["crdt_xadd_id_uniqueness_mode"] == "xadd-id-uniqueness-mode"
    assert set(ALIASES.values()) <= ROWS.keys()
