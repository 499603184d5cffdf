"""Which rule counts for a name: against a list of all rules that is searched from the front."""

from __future__ import annotations

import random
from itertools import product

import pytest

from anabranch.keyspace.policies import Policies, PolicySetting, Subject, literal_prefix
from anabranch.pattern import compile_glob

KEYS = [b"a", b"ab", b"abc", b"b"]
GROUPS = [b"g", b"gh", b"h"]
GLOBS = [b"*", b"a*", b"ab*", b"?", b"[ab]*", b"abc", b"a?c"]


def random_subject(rng: random.Random) -> Subject:
    is_pattern = rng.random() < 0.6
    names, groups = (GLOBS, [b"g*", b"*", b"gh"]) if is_pattern else (KEYS, GROUPS)
    return Subject(is_pattern, rng.choice(names), rng.choice([None, *groups]))


def fits(subject: Subject, key: bytes, group: bytes) -> bool:
    if not subject.is_pattern:
        return subject.name == key and subject.group in (None, group)
    matches = compile_glob(subject.name)(key)
    return matches and (subject.group is None or compile_glob(subject.group)(group))


def beats(one: tuple[Subject, int], other: tuple[Subject, int]) -> bool:
    """The rules of docs/policies.md, one after the other."""
    (mine, stamp), (theirs, their_stamp) = one, other
    if mine.is_pattern != theirs.is_pattern:
        return not mine.is_pattern
    if not mine.is_pattern:
        return mine.group is not None
    lengths = literal_prefix(mine.name), literal_prefix(theirs.name)
    if lengths[0] != lengths[1]:
        return lengths[0] > lengths[1]
    groups = [-1 if each.group is None else literal_prefix(each.group) for each in (mine, theirs)]
    if groups[0] != groups[1]:
        return groups[0] > groups[1]
    return stamp > their_stamp


@pytest.mark.parametrize("seed", range(60))
def test_the_most_particular_rule_counts_and_of_equals_the_later_one(seed: int) -> None:
    rng = random.Random(seed)
    policies = Policies()
    known: dict[Subject, tuple[int, bytes | None]] = {}
    for stamp in range(1, 40):
        subject = random_subject(rng)
        text = rng.choice([b"claim", b"first", None])
        setting = PolicySetting(stamp, 1, stamp, text)
        policies.set(subject, b"redeliver", setting, keeps=rng.random() < 0.5)
        known[subject] = stamp, text
        policies.check()
        for key, group in product(KEYS, GROUPS):
            best: tuple[Subject, int] | None = None
            for each, (when, value) in known.items():
                if value is None or not fits(each, key, group):
                    continue
                if best is None or beats((each, when), best):
                    best = each, when
            found = policies.in_force(key, group).get(b"redeliver")
            expected = None if best is None else (known[best[0]][1], best[0])
            assert (None if found is None else tuple(found)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_greatest_stamp_counts_whatever_the_order(seed: int) -> None:
    rng = random.Random(seed)
    subject = Subject(False, b"s", None)
    settings = [
        PolicySetting(rng.randrange(4), region, number, rng.choice([b"first", b"claim", None]))
        for number in range(1, 6)
        for region in (1, 2, 3)
    ]
    tables = []
    for _ in range(3):
        rng.shuffle(settings)
        policies = Policies()
        for setting in settings:
            known = policies.rules.get(subject, {}).get(b"x")
            if known is None or known[:2] != setting[:2]:  # a region gives each stamp once
                policies.set(subject, b"x", setting, keeps=True)
        tables.append(policies.rules[subject][b"x"][:2])
    assert len(set(tables)) == 1
    assert tables[0] == max(each[:2] for each in settings)


def test_a_tombstone_stays_until_every_member_has_it() -> None:
    policies = Policies()
    subject = Subject(False, b"s", None)
    policies.set(subject, b"redeliver", PolicySetting(5, 1, 7, None), keeps=True)
    policies.set(subject, b"redeliver", PolicySetting(4, 2, 1, b"first"), keeps=True)
    assert policies.in_force(b"s", None) == {}
    policies.prune({1: 6})
    assert policies.tombstones == 1
    policies.prune({1: 7})
    policies.check()
    assert (policies.tombstones, policies.rules) == (0, {})


def test_rules_are_read_as_they_were_written() -> None:
    policies = Policies()
    for stamp, subject in enumerate(
        [Subject(False, b"s", None), Subject(True, b"o*", b"g*"), Subject(True, b"o*", None)]
    ):
        policies.set(subject, b"x", PolicySetting(stamp, 3, 4, b"v"), keeps=True)
        policies.set(subject, b"y", PolicySetting(stamp, 3, 4, None), keeps=True)
    copy = Policies()
    assert copy.restore(policies.written()) == 2
    assert copy.written() == policies.written()
    assert copy.tombstones == 3
    assert policies.used_bytes > Policies().used_bytes
