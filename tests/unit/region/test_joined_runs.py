"""Additions that arrive in several batches are applied as if they came one by one."""

from __future__ import annotations

import pytest

from anabranch.effects.codec import EffectFormatError
from anabranch.oplog.batch import Batch, decode_batch
from anabranch.region.merging import joined_runs
from tests.support.mesh import Mesh, Node

ENTRIES = 250


def written() -> tuple[Mesh, list[Batch]]:
    """Batches of a region that wrote entries one by one, and some commands between them."""
    mesh = Mesh(2)
    one = mesh.nodes[1]
    for number in range(ENTRIES):
        one.do("XADD", "other" if number % 50 == 7 else "s", "*", f"f{number % 3}", number)
        if number % 60 == 9:
            one.do("XDEL", "s", one.do("XRANGE", "s", "-", "+", "COUNT", 1)[0][0])
    units = one.missing({}) or []
    raw = [raw for unit in units for raw in unit.batches]
    return mesh, [decode_batch(data) for data in raw]


def state(node: Node) -> object:
    """What is to be the same: contents, vector, last effects of keys, blocks."""
    keyspace = node.region.keyspace
    streams = keyspace.databases[0].values
    last_effects = keyspace.replica.last_effects
    return (
        dict(node.vector),
        {key: last_effects.of_key((0, key)) for key in streams},
        {
            key: [
                (log.next_position, [(block.first_id, block.weight) for block in log.blocks])
                for log in stream.logs.values()
            ]
            for key, stream in streams.items()
        },
        {key: node.do("XRANGE", key, "-", "+") for key in streams},
    )


def test_what_is_joined_is_applied_as_one_by_one() -> None:
    mesh, batches = written()
    joined = joined_runs(batches)
    assert len(joined) < len(batches) / 5
    assert [batch.first for batch in joined] == [
        batch.first for batch in batches if batch.first in {each.first for each in joined}
    ]
    assert sum(batch.numbered for batch in joined) == sum(batch.numbered for batch in batches)
    others = [Mesh(2).nodes[2] for _ in range(2)]
    for batch in batches:
        others[0].region.merging.apply([batch])
    others[1].region.merging.apply(batches)
    assert state(others[0]) == state(others[1])
    mesh.settle()
    assert state(mesh.nodes[2])[3] == state(others[1])[3]  # type: ignore[index]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (2, 7),
        (3, [5, 0, 2]),
        (3, [5, 0]),
        (3, "abc"),
        (4, b""),
        (5, [1]),
        (5, ["a"]),
        (6, []),
        (7, [1]),
        (7, [-1]),
        (7, [None]),
        (8, None),
    ],
)
def test_only_sound_columns_are_joined(column: int, value: object) -> None:
    _, batches = written()
    pair = batches[20:22]
    assert len(joined_runs(pair)) == 1
    for at in range(2):
        changed = [batch._replace(effects=[list(batch.effects[0])]) for batch in pair]
        changed[at].effects[0][column] = value
        assert joined_runs(changed) == changed


def test_batches_with_another_context_are_not_joined() -> None:
    _, batches = written()
    one, two = batches[20:22]
    assert len(joined_runs([one, two])) == 1
    assert len(joined_runs([one, two._replace(dependencies={9: 1})])) == 2


def test_a_malformed_batch_among_others_changes_nothing() -> None:
    _, batches = written()
    node = Mesh(2).nodes[2]
    node.region.merging.apply(batches[:10])
    before = state(node)
    for column, value in ((4, batches[15].effects[0][4][:-2] + b"xx"), (6, [-1]), (5, [3])):
        bad = batches[15]._replace(effects=[list(batches[15].effects[0])])
        bad.effects[0][column] = value
        with pytest.raises(EffectFormatError):
            node.region.merging.apply([*batches[10:15], bad, *batches[16:20]])
        assert state(node) == before
    node.region.merging.apply(batches[10:])
    other = Mesh(2).nodes[2]
    other.region.merging.apply(batches)
    assert state(node) == state(other)
