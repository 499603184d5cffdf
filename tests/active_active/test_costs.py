"""Commands take as long after many changes as after few. The interpreter counts the calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

from anabranch.version import IS_COMPILED
from tests.support.mesh import Mesh, Node

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be seen")

_FEW: Final = 10
_MANY: Final = 300

_Command = tuple[Any, ...]


def _calls(node: Node, command: _Command) -> int:
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        node.do(*command)
    finally:
        sys.setprofile(None)
    return count


def _create_a_group(count: int) -> tuple[Node, _Command]:
    """A member is away, and groups were destroyed."""
    node = Mesh(2).nodes[1]
    node.do("XADD", "s", "*", "f", "v")
    for number in range(count):
        node.ask(("XGROUP", "CREATE", "s", number, "0"), ("XGROUP", "DESTROY", "s", number))
    node.do("XGROUP", "CREATE", "s", "g", "0")
    return node, ("XGROUP", "CREATE", "s", "h", "0")


def _create_a_group_after_a_removal(count: int) -> tuple[Node, _Command]:
    """Do the same; what was looked up before is not looked up again."""
    node, create = _create_a_group(count)
    node.do("XGROUP", "DESTROY", "s", "g")
    return node, create


@pytest.mark.parametrize("situation", [_create_a_group, _create_a_group_after_a_removal])
def test_the_past_costs_nothing(situation: Callable[[int], tuple[Node, _Command]]) -> None:
    few, many = (_calls(*situation(count)) for count in (_FEW, _MANY))
    assert many < few + 30
