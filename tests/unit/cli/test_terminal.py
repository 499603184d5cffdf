"""Tables and prose for a terminal of a given width."""

from __future__ import annotations

import pytest

from anabranch.cli import terminal
from anabranch.cli.terminal import cells, folded_table, show, styled, wrapped


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 24 cells and three lines."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("LINES", "3")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def plain(narrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, without colours."""
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("plain")
def test_a_wide_column_is_folded_and_nothing_is_lost() -> None:
    lines = folded_table(["stream", "lag"], [["s", "1"], ["abcdefghijklmnopqrstuvwxyz", "1,234"]])
    assert lines == [
        "stream             lag",
        "s                  1",
        "abcdefghijklmnopq  1,234",
        "rstuvwxyz",
    ]
    assert max(map(cells, lines)) <= 24


@pytest.mark.usefixtures("plain")
def test_columns_are_aligned_by_cells_not_by_characters() -> None:
    rows = [["注文", "1"], ["cafe\N{COMBINING ACUTE ACCENT}", "2"], ["", "3"]]
    lines = folded_table(["key", "n"], rows)
    assert [cells(line) for line in lines] == [7, 7, 7, 7]
    assert [line[-1] for line in lines] == ["n", "1", "2", "3"]


@pytest.mark.usefixtures("plain")
def test_a_wide_character_that_does_not_fit_begins_the_next_line() -> None:
    lines = folded_table(["k"], [["文" * 13]])
    assert lines == ["k", "文" * 12, "文"]


@pytest.mark.usefixtures("plain")
def test_a_table_wider_than_any_terminal_has_all_its_cells() -> None:
    lines = folded_table(["h"] * 5, [["abcdefghij"] * 5])
    assert lines[1:] == ["  ".join(["abcdefgh"] * 5), "  ".join(["ij      "] * 5).rstrip()]


@pytest.mark.usefixtures("narrow")
def test_the_first_cell_of_a_row_has_its_colour() -> None:
    _, first, second = folded_table(["region", "n"], [["eu", "1"], ["us", "2"]], ["green", None])
    assert first == f"{styled('eu', 'green')}      1"
    assert styled("eu", "green") == "\x1b[32meu\x1b[0m"
    assert second == "us      2"


@pytest.mark.usefixtures("plain")
def test_colours_are_left_out_if_the_user_wants_none() -> None:
    assert styled("eu", "green", bold=True) == "eu"


def test_off_a_terminal_text_is_plain_and_in_one_line() -> None:
    assert styled("eu", "green", dim=True) == "eu"
    assert wrapped("word " * 100, indent=2) == "  " + "word " * 100


@pytest.mark.usefixtures("narrow")
def test_prose_is_wrapped_inside_its_margin() -> None:
    assert wrapped("each region has what all-others wrote", indent=2).splitlines() == [
        "  each region has what",
        "  all-others wrote",
    ]


@pytest.mark.usefixtures("narrow")
def test_what_is_below_the_screen_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show(["1", "2", "3", "4"])
    drawn = capsys.readouterr().out
    assert drawn == "\x1b[H1\x1b[K\r\n2\x1b[K\r\n3\x1b[K\x1b[J"


def test_the_screen_is_given_back_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), terminal.screen():
        raise KeyboardInterrupt
    assert capsys.readouterr().out.endswith("\x1b[?25h\x1b[?1049l")
