"""The result of a transfer, for people as a table and for programs as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from anabranch.cli.terminal import shown
from anabranch.cli.transfer.record import Item

_EXAMPLES_MAX = 3
_LISTED_MAX = 20
_SHOWN_MAX = 60
_NOTES = {
    "late": ("late (pending; XAUTOCLAIM hands them out, another region may have, too):", "groups"),
    "renumbered": ("renumbered (regions had several entries with one ID):", "streams"),
    "ledgers_left": (
        "left behind (ledger: a batch that is repeated there is written again):",
        "streams",
    ),
}
"""What may be to know of streams that were moved: the line above them, and what they are."""


def shown_key(db: int, key: bytes) -> str:
    """A key for people: its database and its name."""
    text = shown(key)
    if len(text) > _SHOWN_MAX:
        text = text[: _SHOWN_MAX - 1] + "…"
    return f"db{db} {text}"


class _NamedKeys:
    """A count of keys, and the names of the first ones."""

    def __init__(self) -> None:
        self.keys = 0
        self.examples: list[str] = []

    def add(self, example: str) -> None:
        self.keys += 1
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(example)

    def as_json(self) -> dict[str, Any]:
        return {"keys": self.keys, "examples": self.examples}


class Summary:
    """Counted while the transfer runs."""

    def __init__(self, verb: str, source: str, target: str, *, dry_run: bool) -> None:
        """``verb``: "imported" or "exported"."""
        self.verb = verb
        self.source = source
        self.target = target
        self.dry_run = dry_run
        self.seconds = 0.0
        self.expired = 0
        self.error: str | None = None
        self.passed_over: dict[str, int] = {}
        self._written: dict[str, Counter[str]] = {}
        self._unsupported: dict[str, _NamedKeys] = {}
        self._refused: dict[str, _NamedKeys] = {}
        self._lost: list[tuple[str, list[str]]] = []
        self._lossy = False
        self._notes: dict[str, list[dict[str, Any]]] = {name: [] for name in _NOTES}

    @property
    def succeeded(self) -> bool:
        """Whether everything has arrived that can be stored here."""
        return self.error is None and not self._refused

    @property
    def anything(self) -> bool:
        """Whether there is more to report than the failure."""
        return bool(self._written or self._unsupported or self._refused or self.expired)

    @property
    def keys(self) -> int:
        """How many keys have arrived."""
        return sum(counts["keys"] for counts in self._written.values())

    def arrived(self, item: Item) -> None:
        """Count a key that the target has."""
        self._written.setdefault(item.kind, Counter()).update(item.counts)

    def withdraw(self) -> None:
        """The keys that had arrived were removed again."""
        self._written.clear()

    def unsupported(self, kind: str, db: int, key: bytes) -> None:
        """A value of a kind that cannot be stored."""
        self._unsupported.setdefault(shown(kind), _NamedKeys()).add(shown_key(db, key))

    def refused(self, reason: str, db: int, key: bytes, note: str = "") -> None:
        """A key that should have arrived; ``note`` is shown beside its name."""
        example = shown_key(db, key) + (f" ({note})" if note else "")
        self._refused.setdefault(shown(reason), _NamedKeys()).add(example)

    def loses(self, db: int, key: bytes, lost: list[str], *, lossy: bool) -> None:
        """A stream that the version of the target cannot store whole; it is moved if ``lossy``."""
        self._lossy = lossy
        self._lost.append((shown_key(db, key), lost))
        if not lossy:
            self.refused("the target has no place for a part of it, see below", db, key)

    @property
    def would_lose(self) -> bool:
        """Whether a stream was refused because the target cannot store it whole."""
        return bool(self._lost) and not self._lossy

    def note(self, what: str, db: int, key: bytes, **facts: int | str) -> None:
        """Something to know of a stream that was moved: a row of the notes, and its fields."""
        plain = {
            name: shown(each) if isinstance(each, str) else each for name, each in facts.items()
        }
        self._notes[what].append({"key": shown_key(db, key), **plain})

    # -- reports ------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "ok": self.succeeded,
            "error": self.error,
            "source": self.source,
            "target": self.target,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            self.verb: {kind: dict(counts) for kind, counts in self._written.items()},
            f"not_{self.verb}": {kind: n.as_json() for kind, n in self._unsupported.items()},
            "refused": [{"reason": reason, **n.as_json()} for reason, n in self._refused.items()],
            "expired": self.expired,
            "passed_over": self.passed_over,
            "lost" if self._lossy else "would_lose": [
                {"key": key, "what": lost} for key, lost in self._lost
            ],
            **self._notes,
        }

    def as_text(self) -> str:
        """The table with the lines around it, without the error."""
        verb = f"would be {self.verb}" if self.dry_run else self.verb
        keys = f"{self.keys:,} {'key' if self.keys == 1 else 'keys'}"
        head = f"{self.source} -> {self.target}: {keys} {verb} in {self.seconds:.1f} s"
        rows: list[tuple[object, ...]] = [("", "keys", "entries", "groups", "pending", "")]
        for kind in ("stream", "string", "list", "set"):
            counts = self._written.get(kind, Counter())
            if kind == "stream":
                numbers = [counts[name] for name in ("keys", "entries", "groups", "pending")]
                rows.append((verb, *numbers, "streams"))
            elif counts:
                rows.append((verb, counts["keys"], "", "", "", f"{kind}s"))
        for kind, named in self._unsupported.items():
            rows.append((f"not {self.verb}", named.keys, "", "", "", _told(f"type {kind}", named)))
        if self.expired:
            rows.append(("expired", self.expired, "", "", "", "their time has passed"))
        for reason, named in self._refused.items():
            rows.append(("refused", named.keys, "", "", "", _told(reason, named)))
        for name, number in self.passed_over.items():
            rows.append(("left out", number, "", "", "", name))
        lines = [head, *_table(rows)]
        if self._lost:
            lines.append("lost:" if self._lossy else "would be lost:")
            lines += _listed([f"{key}: {', '.join(lost)}" for key, lost in self._lost], "streams")
        for name, (head, what) in _NOTES.items():
            if self._notes[name]:
                lines += [head, *_listed(list(map(_noted, self._notes[name])), what)]
        return "\n".join(lines)


def _listed(lines: list[str], what: str) -> list[str]:
    """The first names, and how many more there are."""
    more = len(lines) - _LISTED_MAX
    return [f"  {line}" for line in lines[:_LISTED_MAX]] + (
        [f"  and {more:,} more {what}"] if more > 0 else []
    )


def _noted(facts: dict[str, Any]) -> str:
    """A note on a stream in words."""
    if "records" in facts:
        count, words = facts["records"], ("record", "records")
    else:
        count, words = facts["entries"], ("entry", "entries")
    of_group = f" of group {facts['group']}" if "group" in facts else ""
    return f"{facts['key']}: {count:,} {words[count != 1]}{of_group}"


def _told(what: str, named: _NamedKeys) -> str:
    more = "" if named.keys == len(named.examples) else ", ..."
    return f"{what}: {', '.join(named.examples)}{more}"


def _table(rows: Iterable[tuple[object, ...]]) -> list[str]:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *numbers, last in cells:
        right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False)]
        lines.append("  ".join(["", first.ljust(widths[0]), *right, last]).rstrip())
    return lines
