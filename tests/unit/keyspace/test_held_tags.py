"""Held tags, packed or not, are found and dropped by their numbers as in a plain list."""

from __future__ import annotations

import random

import pytest

from anabranch.keyspace import held_tags
from anabranch.keyspace.held_tags import HeldTag, HeldTags

REPLICA_ID = 1 << 8 | 1
OTHER = 2 << 8 | 2


def tag_of(rng: random.Random, number: int) -> HeldTag:
    """A tag of one of few idempotent IDs."""
    iid = b"i%d" % rng.randrange(12)
    entry = REPLICA_ID, number - 1
    context = {OTHER: number // 7}
    return HeldTag(
        REPLICA_ID, number, 0, b"k", b"p", iid, number << 64 | 9, entry, 5, True, context
    )


@pytest.mark.parametrize("seed", range(6))
def test_tags_agree_with_a_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_tags, "CHUNK_TAGS", 64)
    rng = random.Random(seed)
    tags, model, number = HeldTags(REPLICA_ID), list[HeldTag](), 1
    for _ in range(60):
        for _ in range(rng.randrange(40)):
            number += rng.randrange(1, 4)
            model.append(tag_of(rng, number))
            tags.add(model[-1])
        tags.pack(keep=rng.choice((0, 64)))
        if rng.random() < 0.2:
            upto = rng.randrange(number)
            tags.drop_upto(upto)
            kept = {each.number for each in tags}
            assert kept >= {each.number for each in model if each.number > upto}
            model = [each for each in model if each.number in kept]
        if rng.random() < 0.1:
            before = len(tags)
            gone = tags.drop_oldest()
            assert gone == before - len(tags)
            model = model[gone:]
        if rng.random() < 0.2:
            copy = HeldTags(REPLICA_ID)
            for chunk in tags.chunks():
                copy.read(chunk)
            assert list(copy) == model
            assert copy.newest == (model[-1].number if model else 0)
            tags = copy if model else tags
        if rng.random() < 0.2:
            tags.rest()
        assert list(tags) == model
        assert len(tags) == len(model)
        assert tags.oldest == (model[0].number if model else 0)
        after, wanted = rng.randrange(number + 1), tag_of(rng, number)
        assert list(tags.after(after)) == [each for each in model if each.number > after]
        found = [each for each in model if each.number > after and each[2:6] == wanted[2:6]]
        assert sorted(tags.find(wanted, after), key=lambda each: each.number) == found
        assert tags.of_number(after) == next((e for e in model if e.number == after), None)
