"""Where keys stand in a request."""

from __future__ import annotations

import pytest

from anabranch.engine.key_extraction import key_places, keys_of
from anabranch.engine.spec import Command, KeySpec

COUNTED = KeySpec("RO access", begin=2, counted=True)
STREAMS = KeySpec("RO access", begin=("STREAMS", 1), last=-1, step=1, limit=2)


def places(line: str, *specs: KeySpec) -> list[int]:
    command = Command("x", None, arity=-1, keys=specs)
    return [index for index, _ in key_places(command, [word.encode() for word in line.split()])]


@pytest.mark.parametrize(
    ("spec", "line", "expected"),
    [
        (KeySpec("RO"), "x k v", [1]),
        (KeySpec("RO", begin=2), "x sub k v", [2]),
        (KeySpec("RO", last=-1), "x a b c", [1, 2, 3]),
        (KeySpec("RO", last=-2), "x a b 0", [1, 2]),
        (KeySpec("RO", last=1), "x a b c", [1, 2]),
        (KeySpec("RO", last=-1, step=2), "x a 1 b 2", [1, 3]),
        (KeySpec("RO", begin=2), "x a", []),
        (COUNTED, "x script 2 a b c", [3, 4]),
        (COUNTED, "x script 3 a b", []),
        (COUNTED, "x script 2 a b", [3, 4]),
        (COUNTED, "x script 0 a", []),
        (KeySpec("not_key"), "x channel", []),
        (COUNTED, "x script -1 a", []),
        (COUNTED, "x script many a", []),
        (COUNTED, "x script", []),
        (STREAMS, "x STREAMS a b 0 0", [2, 3]),
        (STREAMS, "x streams a 0", [2]),
        (STREAMS, "x STREAMS a b 0", [2]),
        (STREAMS, "x STREAMS a", []),
        (STREAMS, "x STREAMS", []),
        (STREAMS, "x COUNT 5 a 0", []),
        (STREAMS, "x COUNT STREAMS STREAMS a 0", [4]),
        (STREAMS, "x WHAT STREAMS a 0", [3]),
        (STREAMS, "x GROUP STREAMS STREAMS STREAMS a >", [5]),
        (STREAMS, "x COUNT 1 BLOCK 0 CLAIM 5 NOACK GROUP g STREAMS STREAMS a b > >", [12, 13]),
    ],
)
def test_places(spec: KeySpec, line: str, expected: list[int]) -> None:
    assert places(line, spec) == expected


def test_several_specifications_keep_their_flags() -> None:
    command = Command("x", None, arity=3, keys=(KeySpec("RO access"), KeySpec("OW update", 2)))
    assert keys_of(command, [b"x", b"a", b"b"]) == [(b"a", "RO access"), (b"b", "OW update")]


def test_a_function_may_find_the_keys() -> None:
    command = Command(
        "x", None, arity=-2, keys=(KeySpec("RW"),), find_keys=lambda args: [(2, "OW insert")]
    )
    assert keys_of(command, [b"x", b"1", b"k"]) == [(b"k", "OW insert")]
