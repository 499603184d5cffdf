"""Syntax texts as trees of arguments."""

from __future__ import annotations

import re

import pytest

from anabranch.commands.server.catalogue import Argument, parse_syntax
from anabranch.commands.table import COMMANDS


def written(argument: Argument) -> str:
    """An argument in the notation again, as a client shows it."""
    if argument.kind == "pure-token":
        text = argument.token
    else:
        if argument.kind == "oneof":
            text = "<" + " | ".join(map(written, argument.parts)) + ">"
        elif argument.kind == "block":
            text = " ".join(map(written, argument.parts))
        else:
            text = argument.name
        if argument.multiple and not argument.multiple_token:
            text = f"{text} [{text} ...]"
        if argument.token:
            text = f"{argument.token} {text}"
        if argument.multiple_token:
            text = f"{text} [{text} ...]"
    return f"[{text}]" if argument.optional else text


def normal(syntax: str) -> str:
    """Without what can be written in two ways: ``[<a | b>]``, ``[a [a ...]]``."""
    syntax = syntax.replace("<", "").replace(">", "")
    return re.sub(r"\[([a-z-]+) \[\1 \.\.\.\]\]", r"[\1 ...]", syntax)


@pytest.mark.parametrize(
    "syntax",
    [each.syntax for row in COMMANDS for each in (row, *row.subcommands.values()) if each.syntax],
)
def test_a_tree_says_what_the_syntax_says(syntax: str) -> None:
    text = " ".join(map(written, parse_syntax(syntax)))
    assert normal(text) == normal(syntax)


def test_a_choice_of_options_in_a_block() -> None:
    (trim,) = parse_syntax("[<MAXLEN | MINID> [= | ~] threshold [LIMIT count]]")
    assert (trim.kind, trim.optional) == ("block", True)
    strategy, operator, threshold, limit = trim.parts
    assert [(each.name, each.kind, each.token) for each in strategy.parts] == [
        ("maxlen", "pure-token", "MAXLEN"),
        ("minid", "pure-token", "MINID"),
    ]
    assert operator == Argument(
        "equal-or-approximately",
        "oneof",
        optional=True,
        parts=(
            Argument("equal", "pure-token", "="),
            Argument("approximately", "pure-token", "~"),
        ),
    )
    assert threshold == Argument("threshold", "string")
    assert limit == Argument("count", "integer", "LIMIT", optional=True)


def test_repetition() -> None:
    keys, pairs = parse_syntax("key [key ...] field value [field value ...]")
    assert keys == Argument("key", "key", multiple=True)
    assert pairs == Argument(
        "field-value",
        "block",
        multiple=True,
        parts=(Argument("field", "string"), Argument("value", "string")),
    )
    (streams,) = parse_syntax("STREAMS key [key ...] id [id ...]")
    assert (streams.name, streams.kind, streams.token) == ("streams", "block", "STREAMS")
    assert [(each.name, each.multiple) for each in streams.parts] == [("key", True), ("id", True)]
    (prefix,) = parse_syntax("[PREFIX prefix [PREFIX prefix ...]]")
    assert (prefix.optional, prefix.multiple, prefix.multiple_token) == (True, True, True)


def test_nothing_and_nonsense() -> None:
    assert parse_syntax("") == []
    for text in ("[a", "a]", "<a | b", "a ..."):
        with pytest.raises(AssertionError):
            parse_syntax(text)
