"""Transcripts: what users of several regions type, and what they must see.

A scenario begins with ``NAME title | mode MODE, regions N``; then one step a line:

======================  ===========================================================================
``eu> COMMAND -> WHAT``  a command in a region; ``all>``: in every region, one after the other
``settle [REGION ...]``  everything travels, over links that are up, until nothing changes
``cut A B`` / ``heal``   a link goes down; all are up again
``clock R MS``           what a region's wall clock shows from now on
``forget R``             a region keeps its data but no effects to send: others need a full sync
``effects R KIND -> N``  how many effects of a kind the region has issued
======================  ===========================================================================

``WHAT`` is ``error`` (of whatever text), ``ids ...`` (of the entries, in order of the reply),
``names ...`` (of groups or consumers), ``items ...`` (of a list, or members of a set),
``lag GROUP N``, ``read GROUP N lag N`` (entries-read, too), or the whole reply. ``ids ... cursor
C`` also keeps the cursor of an AB.READ, to be written ``C`` in commands from then on, and
``payload P`` the payload of a DUMP.

A cluster of real processes has no clock to set. There, an ID made from the clock only has to
carry the same region as the one that is shown; from then on it stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import hiredis

__all__ = ["REGION_NAMES", "Cluster", "Scenario", "Step", "read_scenarios", "run_scenario"]

REGION_NAMES: Final = ("eu", "us", "ap")
"""Of regions 1, 2 and 3."""

_HEADING: Final = re.compile(r"([A-Z]+-\d+[a-z]?) (.+) \| mode (\S+), regions (\d+)")
_IS_HEADING: Final = re.compile(r"[A-Z]+-\d")
_ID: Final = re.compile(r"\d+-\d+")
_SEQUENCE_MODULUS: Final = 256


class Cluster(Protocol):
    """Regions that can be asked, cut off from each other, and brought together again."""

    has_clock: bool
    """Whether :meth:`clock` can be obeyed."""

    def do(self, region: str, *args: str | bytes) -> Any:
        """A command's reply as hiredis decodes RESP2; an error reply is raised."""

    def settle(self, regions: Sequence[str]) -> None:
        """Exchange everything between these regions."""

    def clock(self, region: str, ms: int) -> None:
        """Set a region's wall clock."""

    def cut(self, one: str, other: str) -> None:
        """Take down the link between two regions."""

    def heal(self) -> None:
        """Bring all links up."""

    def forget(self, region: str) -> None:
        """Drop the effects that a region could send, not its data."""

    def count_effects(self, region: str, kind: str) -> int:
        """How many effects of a kind (``ack``) a region has issued."""


@dataclass(frozen=True)
class Step:
    """One line; ``expected`` is None where nothing is answered."""

    line: str
    region: str
    """Who is asked, ``""`` for what concerns the cluster."""
    words: tuple[str, ...]
    expected: tuple[str, ...] | None


@dataclass(frozen=True)
class Scenario:
    """A heading and its steps."""

    name: str
    title: str
    mode: str
    """Of ``xadd-id-uniqueness-mode``."""
    regions: tuple[str, ...]
    steps: tuple[Step, ...]


def read_scenarios(text: str) -> list[Scenario]:
    """All scenarios of a text, in order."""
    blocks = [block.strip().splitlines() for block in text.split("\n\n")]
    return [_scenario(block) for block in blocks if block and _IS_HEADING.match(block[0])]


def _scenario(lines: Sequence[str]) -> Scenario:
    heading = _HEADING.fullmatch(lines[0])
    assert heading is not None, lines[0]
    name, title, mode, count = heading.groups()
    return Scenario(
        name, title, mode, REGION_NAMES[: int(count)], tuple(_step(line) for line in lines[1:])
    )


def _step(line: str) -> Step:
    said, arrow, shown = f"{line} ".rpartition(" -> ")
    expected = tuple(shown.split()) if arrow else None
    region, asked, command = (said if arrow else line).partition("> ")
    if not asked:
        region, command = "", said if arrow else line
    return Step(line, region, tuple(command.split()), expected)


def run_scenario(scenario: Scenario, cluster: Cluster) -> None:
    """Do all steps; AssertionError for the first that shows something else."""
    _Run(scenario, cluster).all_steps()


@dataclass
class _Run:
    scenario: Scenario
    cluster: Cluster
    kept: dict[str, str | bytes] = field(default_factory=dict)
    """Cursors and payloads."""
    stands_for: dict[str, str] = field(default_factory=dict)
    """The IDs that came instead of those of the transcript."""

    def all_steps(self) -> None:
        for number, step in enumerate(self.scenario.steps, 1):
            for region, got, wanted in self._outcomes(step):
                place = f"{self.scenario.name} step {number}, {region or 'cluster'}: {step.line}"
                assert got == wanted, f"{place}\n  got {got!r}\n  instead of {wanted!r}"

    def _outcomes(self, step: Step) -> Iterator[tuple[str, Any, Any]]:
        """Per region that is asked: what it answered, and what it should have."""
        if not step.region:
            verb, *args = step.words
            if verb == "effects":
                assert step.expected is not None
                yield args[0], self.cluster.count_effects(*args), int(step.expected[0])
            else:
                self._arrange(verb, args)
            return
        assert step.expected is not None, step.line
        regions = self.scenario.regions if step.region == "all" else (step.region,)
        for region in regions:
            yield region, *self._ask(region, step.words, step.expected)

    def _arrange(self, verb: str, args: Sequence[str]) -> None:
        cluster = self.cluster
        if verb == "settle":
            cluster.settle(args or self.scenario.regions)
        elif verb == "clock":
            if cluster.has_clock:
                cluster.clock(args[0], int(args[1]))
        elif verb == "cut":
            cluster.cut(*args)
        elif verb == "heal":
            cluster.heal()
        elif verb == "forget":
            cluster.forget(*args)
        else:
            raise AssertionError(f"unknown step: {verb}")

    def _ask(
        self, region: str, words: Sequence[str], expected: Sequence[str]
    ) -> tuple[object, object]:
        command = [self.kept.get(word, self._real(word)) for word in words]
        try:
            reply = self.cluster.do(region, *command)
        except hiredis.ReplyError as problem:
            return ("error" if expected == ("error",) else f"error: {problem}"), " ".join(expected)
        if words[0] == "XADD" and "*" in words and expected != ("error",):
            self._bind(expected[0], reply.decode())
        shown = [self._real(word) for word in expected]
        match shown:
            case ["ids", *ids]:
                if "cursor" in ids:
                    at = ids.index("cursor")
                    self.kept[ids[at + 1]] = reply[0][1].decode()
                    ids = ids[:at]
                return [entry.decode() for entry in _ids(words[0].upper(), reply)], ids
            case ["payload", name]:
                self.kept[name] = reply
                return isinstance(reply, bytes), True
            case ["items", *items]:
                return [item.decode() for item in reply], items
            case ["names", *names]:
                return [row[b"name"].decode() for row in map(_pairs, reply)], names
            case ["lag", group, lag]:
                lags = {row[b"name"].decode(): row[b"lag"] for row in map(_pairs, reply)}
                return lags.get(group), int(lag)
            case ["read", group, read, "lag", lag]:
                rows = {row[b"name"].decode(): row for row in map(_pairs, reply)}
                row = rows.get(group, {})
                return (row.get(b"entries-read"), row.get(b"lag")), (int(read), int(lag))
        return _plain(reply), " ".join(shown)

    def _real(self, word: str) -> str:
        return self.stands_for.get(word, word)

    def _bind(self, shown: str, got: str) -> None:
        """Where the clock is the machine's own, take the ID that came for the one shown."""
        if self.cluster.has_clock or shown in self.stands_for:
            return
        sequences = [int(each.partition("-")[2]) for each in (shown, got)]
        if _ID.fullmatch(got) and sequences[0] % _SEQUENCE_MODULUS == (
            sequences[1] % _SEQUENCE_MODULUS
        ):
            self.stands_for[shown] = got


def _ids(command: str, reply: Any) -> list[bytes]:
    """IDs of entries, wherever in the reply they are."""
    if command in ("XRANGE", "XREVRANGE", "XPENDING"):
        return [row[0] for row in reply]
    streams = reply or []  # nil: nothing to read
    return [entry[0] for stream in streams for entry in stream[-1]]


def _pairs(row: Sequence[Any]) -> dict[bytes, Any]:
    """A flat list of names and values as a dictionary."""
    return dict(zip(row[::2], row[1::2], strict=True))


def _plain(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)
