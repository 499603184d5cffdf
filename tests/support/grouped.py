"""Random streams with consumer groups, as commands that Redis 7.0 takes."""

from __future__ import annotations

import random

__all__ = ["GROUPS", "grouped"]

GROUPS = ("g", "h")

Words = tuple[object, ...]


def grouped(chance: random.Random, key: str, *, nacks: bool = False) -> list[Words]:
    """What makes a stream with two groups at ``key``; every command succeeds.

    ``nacks``: with entries that were given back, which Redis has from 8.8 on.
    """
    size = chance.randint(1, 30)
    ids = [f"{100 + number * chance.choice([1, 1, 2])}-{number + 1}" for number in range(size)]
    ids.sort(key=lambda each: tuple(map(int, each.split("-"))))
    made: list[Words] = [("XADD", key, each, "f", each) for each in ids]
    made += [
        ("XGROUP", "CREATE", key, group, chance.choice(["0", "0", "0", "$", chance.choice(ids)]))
        for group in GROUPS
    ]
    for _ in range(chance.randint(0, 25)):
        some = chance.sample(ids, chance.randint(1, min(size, 4)))
        group, consumer = chance.choice(GROUPS), chance.choice("abc")
        read = ("XREADGROUP", "GROUP", group, consumer, "COUNT", chance.randint(1, 6))
        claim = ("XCLAIM", key, group, consumer, 0, *some, "TIME", chance.randint(1, 9_999_999))
        nack = ("XNACK", key, group, chance.choice(["SILENT", "FAIL"]), "IDS", len(some), *some)
        choices: list[tuple[float, Words]] = [
            (8, (*read, "STREAMS", key, ">")),
            (1, (*read, "NOACK", "STREAMS", key, ">")),
            (4, ("XACK", key, group, *some)),
            (2, ("XDEL", key, *some)),
            (2, (*claim, "RETRYCOUNT", chance.randint(0, 5))),
            (1, (*claim, "FORCE")),
            (0.5, ("XTRIM", key, "MAXLEN", "=", chance.randint(0, size))),
            (0.5, ("XGROUP", "SETID", key, group, chance.choice([*some, "0", "$"]))),
            (0.5, ("XGROUP", "DELCONSUMER", key, group, consumer)),
            (0.5, ("XGROUP", "CREATECONSUMER", key, group, consumer)),
            (3 if nacks else 0, nack),
        ]
        weights, words = zip(*choices, strict=True)
        made.append(chance.choices(words, weights)[0])
    if chance.random() < 0.2:
        made.append(("XSETID", key, "900-0", "ENTRIESADDED", 77, "MAXDELETEDID", "50-0"))
    return made
