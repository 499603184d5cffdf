"""The goals: for some workloads, how much CPU or memory is allowed, as a ratio to Redis.

They are goals of the compiled form; the interpreted form misses most of those of short commands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import old_entries
from .restart import LOG

if TYPE_CHECKING:
    from .measure import Row
    from .memory import MemoryRow
    from .restart import RestartRow


@dataclass(frozen=True, slots=True)
class Target:
    """A workload and the highest ratio of CPU or memory that counts as reached."""

    workload: str
    at_most: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target with what was measured; `passed` is None where nothing was.

    ``interpreted`` is the ratio of the interpreted form, which has no goal; None where only one
    form was measured. ``age`` is that of :class:`Row`.
    """

    workload: str
    at_most: float
    measured: float | None
    passed: bool | None
    interpreted: float | None
    age: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one form. ``memory`` is empty if there were fewer entries."""

    rows: list[Row] = field(default_factory=list)
    restarts: list[RestartRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)

    def ratios(self) -> dict[str, float]:
        """Return the median ratios by the name of their target."""
        found = {row.name: row.outcome.cpu_ratio.median for row in self.rows if row.outcome}
        for weight in self.memory:
            for name, ratio in ((HIGHEST, weight.highest_ratio), (RESIDENT, weight.rss_ratio)):
                if ratio is not None:
                    found[name.format(weight.name)] = ratio
        for restart in self.restarts:
            # A quick run recovers less, and proves nothing.
            if (restart.entries, restart.source) == (RESTART_ENTRIES, LOG):
                found[RESTART] = restart.wall_ratio.median
        return found

    def ages(self) -> dict[str, str]:
        """Return how old the entries are, by the name of the target."""
        found = {row.name: row.age for row in self.rows}
        for weight in self.memory:
            found[HIGHEST.format(weight.name)] = "up to seconds old"
            found[RESIDENT.format(weight.name)] = "a minute old"
        return found


RESTART_ENTRIES = 1_000_000
RESTART = f"restart with {RESTART_ENTRIES:,} entries in the log"
"""Time, not CPU: how long until the server answers."""
RESTART_LOG = "everysec"

HIGHEST = "highest memory while entries are added: {}"
RESIDENT = "memory a minute later: {}"

_WEIGHTS = {
    ("hot", "1-byte value"): 1.0,
    ("hot", "three sensor fields"): 1.0,
    ("hot", "150-byte JSON"): 1.4,
    ("compressed", "1-byte value"): 0.5,
    ("compressed", "three sensor fields"): 0.5,
    ("compressed", "150-byte JSON"): 0.4,
}
"""Of the memory of an entry a minute later, by the form of old nodes and the shape."""


def weighed_name(form: str, shape: str) -> str:
    """Return the name of a row of memory."""
    return f"{shape}, {form}"


_OLD = {
    ("hot", "three sensor fields"): (0.8, 0.7, 0.35, 0.35, 0.9),
    ("hot", "150-byte JSON"): (1.0, 0.8, 0.4, 0.5, 1.0),
    ("compressed", "three sensor fields"): (1.2, 1.0, 0.6, 0.5, 1.1),
    ("compressed", "150-byte JSON"): (2.0, 1.5, 1.0, 1.0, 1.3),
}
"""Of old nodes, by form and shape: a goal for each of :data:`old_entries.READS_OF`."""

_RANGES = {1: 0.7, 10: 0.5, 100: 0.2, 1000: 0.12}
"""Of entries just written, by COUNT."""

_LOGGED = {"everysec": {1: 1.25, 16: 1.1, 256: 0.85}, "always": {1: 1.3, 256: 1.1}}
"""Of XADD beside Redis with the same log, by depth."""

TARGETS = (
    Target("PING, depth 256", 1.3),
    Target("XADD, 1 field, depth 1", 1.1),
    Target("XADD, 3 fields, depth 1", 1.1),
    Target("XADD, 1 field, depth 16", 1.2),
    Target("XADD, 3 fields, depth 16", 1.2),
    Target("XADD, 1 field, depth 256", 1.0),
    Target("XADD, 3 fields, depth 256", 1.0),
    Target("XADD MAXLEN ~ 1000, 3 fields, depth 256", 1.2),
    Target("XADD IDMP, 3 fields, depth 256", 1.6),
    Target("XADD IDMPAUTO, 3 fields, depth 256", 2.0),
    *(
        Target(f"{command} COUNT {count}, depth 16", at_most)
        for command in ("XRANGE", "XREAD")
        for count, at_most in _RANGES.items()
    ),
    Target("XREVRANGE COUNT 100, depth 16", 0.3),
    *(
        Target(old_entries.name_of(what, *which), at_most)
        for which, goals in _OLD.items()
        for what, at_most in zip(old_entries.READS_OF, goals, strict=True)
    ),
    Target("XREADGROUP+XACK COUNT 1, depth 16", 1.2),
    Target("XREADGROUP+XACK COUNT 10, depth 16", 1.0),
    Target("XREADGROUP+XACK COUNT 100, depth 16", 0.6),
    Target("XDEL random, depth 16", 1.2),
    Target("100 readers: XREAD BLOCK goes to sleep", 1.5),
    Target("100 readers: XADD wakes all of them", 1.0),
    *(
        Target(f"appendfsync {policy}: XADD, {fields}, depth {depth}", at_most)
        for policy, goals in _LOGGED.items()
        for fields in ("1 field", "3 fields")
        for depth, at_most in goals.items()
    ),
    Target("appendfsync everysec: XREADGROUP+XACK COUNT 1, depth 16", 1.2),
    Target(RESTART, 1.0),
    *(Target(HIGHEST.format(weighed_name(*which)), 1.5) for which in _WEIGHTS),
    *(Target(RESIDENT.format(weighed_name(*which)), goal) for which, goal in _WEIGHTS.items()),
)


_NAMES = frozenset(target.workload for target in TARGETS)


def has_goal(workload: str) -> bool:
    """Whether a workload has a goal."""
    return workload in _NAMES


def log_of(name: str) -> str:
    """Return what ``appendfsync`` is on both servers in a row of this name; ``no``: no log."""
    if name == RESTART:
        return RESTART_LOG
    words = name.partition(": ")[0].split()
    return words[1] if words[0] == "appendfsync" else "no"


def judge(subject: Measured, interpreted: Measured) -> list[Verdict]:
    """Compare the median ratios with the targets; show those of the interpreted form beside."""
    ratios, slow, ages = subject.ratios(), interpreted.ratios(), subject.ages()
    verdicts = []
    for target in TARGETS:
        name = target.workload
        measured = ratios.get(name)
        passed = None if measured is None else measured <= target.at_most
        shown = slow.get(name), ages.get(name, "")
        verdicts.append(Verdict(name, target.at_most, measured, passed, *shown))
    return verdicts
