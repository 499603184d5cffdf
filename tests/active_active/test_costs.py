"""Commands take as long after many changes as after few, and beside many groups as beside few.

The interpreter counts the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from anabranch.version import IS_COMPILED
from tests.support.calls import calls_of
from tests.support.mesh import Mesh, Node

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be seen")

_FEW: Final = 10
_MANY: Final = 300

_Command = tuple[Any, ...]


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


def _remove_entries(count: int) -> tuple[Node, _Command]:
    """Groups exist that have not moved since entries were last removed."""
    node = Mesh(2).nodes[1]
    for _ in range(3):
        node.do("XADD", "s", "*", "f", "v")
    for number in range(count):
        node.do("XGROUP", "CREATE", "s", number, "0")
    node.do("XTRIM", "s", "MAXLEN", 2)
    return node, ("XTRIM", "s", "MAXLEN", 1)


@pytest.mark.parametrize(
    "situation", [_create_a_group, _create_a_group_after_a_removal, _remove_entries]
)
def test_the_past_costs_nothing(situation: Callable[[int], tuple[Node, _Command]]) -> None:
    few, many = (
        calls_of(partial(node.do, *command)) for node, command in map(situation, (_FEW, _MANY))
    )
    assert many < few + 30
