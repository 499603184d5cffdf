"""Random command lines over a few keys, for tests that compare two ways to the same state."""

from __future__ import annotations

import random

__all__ = ["STREAM_LINES", "random_lines"]

# {k} {l} keys, {i} {j} from 1 to 9, {n} from 0 to 3, {g} group, {c} consumer, {p} producer
STREAM_LINES = """
XADD {k} {i}-{n} f {j}
XADD {k} * f {j} g {i}
XADD {k} {i}-* f v
XADD {k} MAXLEN {n} * f v
XADD {k} MAXLEN ~ {n} * f v
XADD {k} MINID {i} ACKED * f v
XADD {k} DELREF MAXLEN {n} * f v
XADD {k} IDMP {p} {n} * f v
XADD {k} IDMPAUTO {p} * f {n}
XTRIM {k} MAXLEN {j}
XTRIM {k} MAXLEN ~ {j}
XTRIM {k} MINID {i} DELREF
XTRIM {k} MAXLEN {n} ACKED
XDEL {k} {i}-{n} {j}-{n}
XDELEX {k} DELREF IDS 2 {i}-{n} {j}-{n}
XDELEX {k} ACKED IDS 2 {i}-{n} {j}-{n}
XACKDEL {k} {g} KEEPREF IDS 2 {i}-{n} {j}-{n}
XSETID {k} {i}-0 ENTRIESADDED {i}{j} MAXDELETEDID {n}
XCFGSET {k} IDMP-DURATION {i} IDMP-MAXSIZE {i}
XIDMPRECORD {k} {p} {j} {i}-{n}
XGROUP CREATE {k} {g} {i} MKSTREAM
XGROUP CREATE {k} {g} 0 MKSTREAM
XGROUP CREATE {k} {g} 0 ENTRIESREAD {n}
XGROUP SETID {k} {g} {i}-0
XGROUP DESTROY {k} {g}
XGROUP CREATECONSUMER {k} {g} {c}
XGROUP DELCONSUMER {k} {g} {c}
XREADGROUP GROUP {g} {c} COUNT {i} STREAMS {k} >
XREADGROUP GROUP {g} {c} COUNT {i} STREAMS {k} >
XREADGROUP GROUP {g} {c} NOACK COUNT {n} STREAMS {k} >
XREADGROUP GROUP {g} {c} STREAMS {k} {l} 0 >
XREADGROUP GROUP {g} {c} CLAIM 5 COUNT {i} STREAMS {k} >
XREADGROUP GROUP {g} {c} BLOCK 30 STREAMS {k} >
XREADGROUP GROUP {g} {c} BLOCK 0 CLAIM 20 STREAMS {k} >
XREAD BLOCK 0 STREAMS {k} $
XACK {k} {g} 1-0 1-{i} {j}-{n}
XNACK {k} {g} FAIL IDS 2 1-{i} {j}-{n} FORCE
XCLAIM {k} {g} {c} 0 {i}-{n} {j}-{n} FORCE
XCLAIM {k} {g} {c} 0 {i}-{n} {j}-0 LASTID {n}
XAUTOCLAIM {k} {g} {c} 0 - COUNT {i}
ADVANCE {n}
""".strip().splitlines()
"""Everything that changes a stream; ``ADVANCE`` lets so many milliseconds pass."""


def random_lines(chance: random.Random, *others: str, count: int = 100) -> list[str]:
    """A few entries and groups, then random lines: a quarter of them of ``others``, if given."""
    lines = [f"XADD {key} * f {number}" for key in "st" for number in range(8)]
    lines += [f"XGROUP CREATE {key} {group} 0" for key in "st" for group in "gh"]
    for _ in range(count):
        template = chance.choice(others if others and chance.random() < 0.25 else STREAM_LINES)
        line = template.format(
            k=chance.choice("sst"), l=chance.choice("stu"), i=chance.randint(1, 9),
            j=chance.randint(1, 9), n=chance.randint(0, 3), g=chance.choice("gh"),
            c=chance.choice("cd"), p=chance.choice("pq"),
        )  # fmt: skip
        lines += ["MULTI", line, line, "EXEC"] if chance.random() < 0.1 else [line]
    return lines
