"""Replies and commands are converted in short steps, and whole."""

from __future__ import annotations

import pytest

from anabranch.scheduling import in_one_go
from anabranch.web.answers import plain, words_of


def test_a_reply_becomes_json() -> None:
    reply = {b"a": [b"1", 2, {b"\xff"}], b"e": ValueError("no")}
    assert in_one_go(plain(reply)) == [["a", ["1", 2, [{"b64": "/w=="}]]], ["e", {"error": "no"}]]


def test_long_replies_and_commands_take_many_steps() -> None:
    assert len(list(plain([{b"k": [[b"v"]] * 1_000}]))) > 1_000
    assert len(list(words_of([""] * 1_000))) == 1_000


@pytest.mark.parametrize("command", [[], "PING", [None], [True], [{"b64": "é"}]])
def test_what_is_no_command_is_refused(command: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        in_one_go(words_of(command))
