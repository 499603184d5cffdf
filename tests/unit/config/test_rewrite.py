"""CONFIG REWRITE keeps what a person wrote and changes what changed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from anabranch.config.load import load
from anabranch.config.runtime import SIGNATURE, quoted, rewritten
from anabranch.config.settings import Settings
from anabranch.resp.inline import split_words

FILE = """\
# my server
port 7000

# twice, for no reason
hz 20
hz 30
include other.conf
unknown-to-us yes
"""


def test_comments_order_and_foreign_lines_stay() -> None:
    settings = Settings(port=7001, hz=30)
    assert rewritten(FILE, settings).splitlines() == [
        "# my server",
        "port 7001",
        "",
        "# twice, for no reason",
        "hz 30",
        "include other.conf",
        "unknown-to-us yes",
    ]


def test_what_is_new_goes_to_the_end_once() -> None:
    settings = Settings(port=7000, hz=30, maxclients=5, requirepass='a "b"')
    once = rewritten(FILE, settings)
    assert once.count(SIGNATURE) == 1
    assert 'requirepass "a \\"b\\""' in once
    assert "maxclients 5" in once
    assert rewritten(once, settings) == once


def test_a_value_back_at_its_default_is_written_where_it_stands() -> None:
    assert "port 6379" in rewritten("port 7000\n", Settings())
    assert "hz" not in rewritten("port 7000\n", Settings())


def test_repeated_directives_are_written_line_by_line() -> None:
    settings = load(["--save", "3600 1 300 10"]).settings
    text = rewritten("save 1 1\nsave 2 2\nhz 10\n", settings, [[b"user", b"alice", b"on", b"~*"]])
    assert text.splitlines()[:3] == ["save 3600 1", "save 300 10", "hz 10"]
    assert "user alice on ~*" in text


def test_the_rewritten_file_gives_the_same_settings(tmp_path: Path) -> None:
    before = load(
        [
            *("--port", "7000", "--save", "", "--bind", "127.0.0.1", "::1", "--maxmemory", "1gb"),
            *("--notify-keyspace-events", "KEAn", "--logfile", "/tmp/a b.log"),
            *("--client-output-buffer-limit", "pubsub", "1", "2", "3"),
        ]
    ).settings
    path = tmp_path / "my.conf"
    path.write_text(rewritten("", before))
    assert vars(load([str(path)]).settings) == vars(before)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_word_survives_quoting(word: str) -> None:
    assert split_words(quoted(word).encode()) == [word.encode()]
