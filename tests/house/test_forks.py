"""How many lines ask whether there are several regions, and why. One server is a region alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import REPOSITORY

FORKS = {
    "engine/context.py": (1, "chooses the rules of entry IDs"),
    "commands/extensions/regional_info.py": (1, "XSETID moves the last ID of a stream alone"),
    "commands/extensions/reading.py": (1, "tokens of the other mode mean nothing here"),
    "effects/apply_keys.py": (2, "nothing is concurrent to DEL and FLUSHALL in a region alone"),
    "effects/apply_producers.py": (1, "tags are held for conflicts with other regions"),
    "effects/prepare.py": (1, "chooses what decisions come to"),
    "keyspace/replica.py": (2, "the definition; only effects of several regions have numbers"),
    "oplog/errors.py": (1, "files of the other mode are refused"),
    "oplog/snapshot.py": (1, "among several regions a deleted stream changes, and is not replaced"),
    "server/app.py": (1, "only a region among several has links to others"),
    "stream/frozen.py": (1, "a file tells of which mode its streams are"),
    "stream/stream.py": (1, "a key alone exists until it is deleted"),
}
"""Lines of each file and what for. They may only become fewer: what only one mode may do belongs
into the row of the command, setting or effect, into a ``Mode`` of ``effects/prepare.py``, or into
an object that is chosen when it is made: ``Shared`` of a stream, its groups, ``IdRules``."""

_FORK = re.compile(
    r"\breplica is (not )?None"
    r"|\b(if|and|or|not) (\w+\.)*_?replica\b(?![.(])"
    r"|\bshared is (not )?(None|NOTHING_SHARED)"
    r"|\bisinstance\([^()]*\b(Shared\w*|RegionalIdRules)\)"
    r"|\bnew_group is\b|\bmode is (not )?_"
    r"|\b(if|and|or|not) (\w+\.)*creations\b(?![.(])"
    r"|\bbool\((\w+\.)*creations\)"
    r"|\bis_alone\b|\.is_regional\b|\.keeps_key\b"
)


def forks(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if _FORK.search(line.partition("#")[0]):
                yield f"{path.relative_to(folder)}:{number}: {line.strip()}"


def test_no_line_more_asks_whether_there_are_several_regions() -> None:
    found = list(forks(REPOSITORY / "src" / "anabranch"))
    counts = Counter(line.partition(":")[0] for line in found)
    assert counts == {path: count for path, (count, _) in FORKS.items()}, "\n".join(found)
