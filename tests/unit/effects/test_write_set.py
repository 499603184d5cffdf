"""A set of changes names what its effects change, and nothing else."""

from __future__ import annotations

import pytest

from anabranch.effects import kinds
from anabranch.effects.codec import plain
from anabranch.effects.write_set import WriteSet

SET = kinds.SetString(0, b"k", b"v")


def test_nothing_has_changed_before_the_first_effect() -> None:
    changes = WriteSet()
    assert not changes.everything
    assert not changes.subjects
    assert not changes.any_key
    assert not changes.includes(0, b"k")


def test_a_key_has_changed_and_nothing_else() -> None:
    decided, logged = WriteSet(), WriteSet()
    decided.add(SET, numbered=False)
    logged.add_plain([plain(SET)], numbered=False)
    for changes in (decided, logged):
        assert not changes.everything
        assert not changes.subjects
        assert changes.includes(0, b"k")
        assert not changes.includes(0, b"l")
        assert not changes.includes(1, b"k")
        assert not changes.includes_all_of(0)


@pytest.mark.parametrize(
    ("effect", "changed"),
    [
        (kinds.Flush(None), {0, 1, 2}),
        (kinds.Flush(1), {1}),
        (kinds.Swap(0, 2), {0, 2}),
        (kinds.JoinFullSync("state"), {0, 1, 2}),
    ],
)
def test_whole_databases_have_changed(effect: kinds.Effect, changed: set[int]) -> None:
    changes = WriteSet()
    changes.add(effect, numbered=False)
    assert {db for db in range(3) if changes.includes_all_of(db)} == changed
    assert {db for db in range(3) if changes.includes(db, b"k")} == changed
    assert changes.any_key
    assert changes.everything == (len(changed) == 3)


def test_an_effect_with_a_number_changes_the_numbers() -> None:
    changes = WriteSet()
    changes.add_plain([plain(SET)], numbered=True)
    assert changes.subjects == {"numbers"}
    assert not changes.everything
