"""What is long: it is said to other regions in pieces that they take, or refused at once."""

from __future__ import annotations

import pytest

from anabranch.effects.codec import SENT_ARGUMENT_BYTES_MAX
from anabranch.oplog.batch import decode_batch
from anabranch.region import turn
from tests.support.mesh import Mesh


def test_a_transaction_travels_in_batches_of_bounded_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn, "BATCH_BYTES_MAX", 1000)
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    adds = [("XADD", "s", "*", "f", "v" * 90)] * 20
    one.ask(*adds, ("XADD", "s", "*", "f", "w" * 5000))
    mesh.settle()
    assert two.do("XRANGE", "s", "-", "+") == one.do("XRANGE", "s", "-", "+")
    (unit,) = one.missing({})
    assert len(unit.batches) > 2
    assert all(len(decode_batch(data).effects[0][4]) <= 5100 for data in unit.batches)


def test_an_entry_that_other_regions_would_not_take_is_refused() -> None:
    one = Mesh(2).nodes[1]
    one.do("XADD", "s", "*", "f", b"v" * (SENT_ARGUMENT_BYTES_MAX - 100))
    with pytest.raises(Exception, match="too large to be stored"):
        one.do("XADD", "new", "*", "f", b"v" * SENT_ARGUMENT_BYTES_MAX)
    assert one.do("EXISTS", "new") == 0
