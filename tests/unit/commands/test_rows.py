"""The rows of the command table as text: what a block of lines means, and what is refused."""

from __future__ import annotations

import pytest

from anabranch.commands.stream import write
from anabranch.commands.table.rows import Deferred, rows
from anabranch.engine.spec import Command, KeySpec

_PACKAGE = "anabranch.commands.stream"
_ROW = """
xlen 2 write.xlen 5.0.0 readonly fast
    key [OPTION
        value]
    does: Counts the entries
        of a stream.
    history: 6.0.0 Is older.
    history: 7.0.0 Is newer.
"""


def _rows(text: str) -> list[Command]:
    return rows("stream", _PACKAGE, text, is_hot=True)


def test_a_block_is_a_command_and_lines_without_a_label_go_on() -> None:
    (xlen,) = _rows(_ROW)
    assert (xlen.name, xlen.function, xlen.arity, xlen.since) == ("xlen", write.xlen, 2, "5.0.0")
    assert xlen.flag_words == ["readonly", "fast"]
    assert xlen.syntax == "key [OPTION value]"
    assert xlen.summary == "Counts the entries of a stream."
    assert xlen.complexity == "O(1)"
    assert xlen.history == (("6.0.0", "Is older."), ("7.0.0", "Is newer."))
    assert xlen.categories == {"read", "fast", "stream"}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("RO", KeySpec("RO")),
        ("@2 RW access delete", KeySpec("RW access delete", begin=2)),
        ("@1..-2 RO", KeySpec("RO", last=-2)),
        ("@1..-1/2 OW update", KeySpec("OW update", last=-1, step=2)),
        ("@2# RO access", KeySpec("RO access", begin=2, counted=True)),
        ("@STREAMS+4..-1%2 RO", KeySpec("RO", begin=("STREAMS", 4), last=-1, limit=2)),
        ("RW update (a note; no (more))", None),
        ("RW update (a note)", KeySpec("RW update", notes="a note")),
    ],
)
def test_places_of_keys(text: str, spec: KeySpec | None) -> None:
    if spec is None:
        with pytest.raises(ValueError, match="place and flags of a key"):
            _rows(f"{_ROW}    keys: {text}")
    else:
        (command,) = _rows(f"{_ROW}    keys: {text}")
        assert command.keys == (spec,)


def test_several_keys_are_separated_by_semicolons() -> None:
    (command,) = _rows(f"{_ROW}    keys: RO; @2 OW update")
    assert command.keys == (KeySpec("RO"), KeySpec("OW update", begin=2))


def test_a_container_has_sub_commands_and_help_but_no_category_of_its_family() -> None:
    text = "xgroup -2 - 5.0.0\n    does: Manages.\n    help: 5.0.0 stream"
    (xgroup,) = _rows(f"{text}\n{_ROW.strip().replace('xlen', 'xgroup|len', 1)}")
    assert xgroup.categories == {"slow"}
    assert list(xgroup.subcommands) == [b"len", b"help"]
    assert xgroup.subcommands[b"len"].full_name == "xgroup|len"


@pytest.mark.parametrize(
    "text",
    [
        _ROW + "    dose: nothing",
        _ROW + "    does: Twice.",
        _ROW.replace("write.xlen", "write.nothing"),
        _ROW.replace("write.xlen", "other.xlen"),
        _ROW.replace("xlen", "nobody|xlen", 1),
        _ROW.replace("does: ", ""),
        _ROW.replace("5.0.0 readonly fast", ""),
    ],
)
def test_a_row_that_says_something_else_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, ImportError, AttributeError)):
        _rows(text)


def test_a_module_that_is_not_hot_is_imported_by_the_first_call() -> None:
    (xlen,) = rows("stream", _PACKAGE, _ROW)
    assert isinstance(xlen.function, Deferred)
    assert xlen.function.load() is write.xlen
