"""The language of worlds and of counterexamples: one step a line.

======================== =======================================================================
``eu> XADD k * f v``      a client sends a command to a region, or several with ``|`` between,
                          which belong to one turn
``eu -> us``              the next effects from a region arrive in another one
``twice eu us``           the next effects of a region are sent to another one a second time
``cut eu us``             the connection ends, and what was on its way is lost; ``heal`` ends all
``silence eu us``         the connection carries nothing more, which neither side notices
``crash us 0/2/0``        the power fails in a region: so many changes of the directory stay, so
                          many writes to each file, and half of the next write, or nothing of it
``kill us``, ``stop us``  the process of a region ends; ``start us`` starts it
``lose-disk us``          the machine of a region gets an empty disk, while no process runs
``snapshot eu``           a region takes a snapshot
``sync eu``               a region syncs its log; where disks are slow, its disk finishes its work
``wait 100``              so many ms pass everywhere
``settle``                everything ends, travels and agrees
======================== =======================================================================

``eu`` is region 1, ``us`` 2 and ``ap`` 3. In a command ``{oldest}`` and ``{newest}`` stand for the
ID of an entry that the region has in the key, ``{pending}`` for all IDs that are pending in the
group, and ``{payload}`` for the newest DUMP there. A client waits until there is something for
which such a word can stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.engine.spec import Command
from anabranch.replication.framing import FrameType
from anabranch.simulator.workload import Workload

if TYPE_CHECKING:
    from anabranch.simulator.machine import Process

REGION_NAMES: Final = ("eu", "us", "ap")
"""Of regions 1, 2 and 3."""

Move = tuple[Any, ...]
"""A step of a script, or an arrival, as a tuple: its word and its arguments."""


class NotPossibleError(Exception):
    """A step is not possible at present."""


@dataclass(frozen=True)
class SmallWorld:
    """A small world: some regions, and scripts whose steps are tried in every order.

    The steps of one script follow each other; those of different scripts do not wait for each
    other, nor for what travels.
    """

    name: str
    covers: str
    """What it shows, for people."""
    scripts: tuple[str, ...]
    """Each a text of steps with ``;`` between them."""
    regions: int = 2
    before: str = ""
    """Steps in this order before anything else, after which everything settles."""
    settings: Mapping[str, object] = field(default_factory=dict)
    own_settings: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """More settings of single regions."""
    holds: frozenset[FrameType] = frozenset({FrameType.BATCH})
    """The frames that may be on their way for any time; all others arrive at once."""
    holds_disk: bool = False
    """Whether a disk may work for any time; otherwise it has done its work at once."""
    copies: bool = False
    """Whether entries may exist twice, as RENAME, COPY or RESTORE is used."""
    is_once: bool = False
    """Whether no two entries of a stream have the same last value in the end."""
    forgets_tags: bool = False
    """Whether idempotent IDs may be forgotten early."""

    @cached_property
    def numbers(self) -> range:
        """The numbers of all regions."""
        return range(1, self.regions + 1)

    @cached_property
    def steps(self) -> tuple[tuple[Move, ...], ...]:
        """The steps of all scripts."""
        return tuple(tuple(map(move_of, _lines(script))) for script in self.scripts)

    @cached_property
    def first_steps(self) -> tuple[Move, ...]:
        """The steps before anything else."""
        return tuple(map(move_of, _lines(self.before)))

    @cached_property
    def settings_of(self) -> dict[int, Settings]:
        """The settings of each region, to be copied."""
        common = {"appendfsync": "always", "databases": 1, **self.settings}
        each: dict[int, dict[str, Any]] = {
            number: {"region_id": number, **common, **self.own_settings.get(number, {})}
            for number in self.numbers
        }
        return {number: Settings(**given) for number, given in each.items()}

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """All keys that commands name: each word of one small letter."""
        words = {word for move in self._all_moves() if move[0] == "do" for word in move[2]}
        return tuple(sorted(word for word in words if word in _KEYS))

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The commands that regions need: a process with few of them is made faster."""
        names = {
            word.decode().lower()
            for move in self._all_moves()
            if move[0] == "do"
            for before, word in pairwise((b"|", *move[2]))
            if before == b"|"
        }
        return tuple(each for each in COMMANDS if each.name in names | _OF_CHECKS)

    @cached_property
    def keeps_order(self) -> bool:
        """Whether it matters in which order unsynced effects are in a log."""
        return any(move[0] == "crash" for move in self._all_moves())

    @cached_property
    def bystanders(self) -> tuple[int, ...]:
        """The regions that no step names: each could stand for another."""
        named = {each for move in self._all_moves() for each in _regions_of(move)}
        return tuple(number for number in self.numbers if number not in named)

    def _all_moves(self) -> list[Move]:
        return [move for steps in (*self.steps, self.first_steps) for move in steps]


_OF_CHECKS: Final = frozenset({"xinfo", "xpending", "xreadgroup"})
"""Commands that the checks use."""

_KEYS: Final = frozenset({b"k", b"l", b"m"})


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\n", ";").split(";") if line.strip()]


def _regions_of(move: Move) -> list[int]:
    name, *rest = move
    return rest[:1] if name == "do" else [] if name == "wait" else rest


def name_of(number: int) -> str:
    """The name of a region."""
    return REGION_NAMES[number - 1]


def _number(name: str) -> int:
    if name not in REGION_NAMES:
        raise ValueError(f"{name!r} is no region; regions are {', '.join(REGION_NAMES)}")
    return REGION_NAMES.index(name) + 1


_WITH_ONE_REGION: Final = frozenset(
    {"kill", "stop", "start", "lose-disk", "snapshot", "sync"}
)  # fmt: skip
_WITH_TWO_REGIONS: Final = frozenset({"cut", "silence", "twice"})

_PAGE: Final = "docs/testing.md has all steps"


def move_of(line: str) -> Move:
    """A step as a tuple; ValueError if the line is none."""
    region, is_command, command = line.partition("> ")
    if is_command and region in REGION_NAMES:
        return "do", _number(region), tuple(command.partition("  #")[0].encode().split())
    words = line.partition("#")[0].split()
    if not all(each.isdecimal() for each in _numbers_of(words)):
        raise ValueError(f"{line!r} has something else where whole numbers belong; {_PAGE}")
    match words:
        case [source, "->", target]:
            return "arrive", _number(source), _number(target)
        case [word, one] if word in _WITH_ONE_REGION:
            return word, _number(one)
        case [word, one, other] if word in _WITH_TWO_REGIONS:
            return word, _number(one), _number(other)
        case ["crash", one]:
            return "crash", _number(one)
        case ["crash", one, _]:
            return "crash", _number(one), *map(int, _numbers_of(words))
        case ["wait", ms]:
            return "wait", int(ms)
        case ["heal" | "settle" as word]:
            return (word,)
    raise ValueError(f"{line!r} is no step; {_PAGE}")


def _numbers_of(words: Sequence[str]) -> list[str]:
    match words:
        case ["crash", _, kept]:
            return kept.split("/")
        case ["wait", ms]:
            return [ms]
    return []


def line_of(move: Move) -> str:
    """The reverse of :func:`move_of`."""
    name, *rest = move
    if name == "do":
        return f"{name_of(rest[0])}> " + b" ".join(rest[1]).decode("utf-8", "backslashreplace")
    if name == "arrive":
        return f"{name_of(rest[0])} -> {name_of(rest[1])}"
    if name == "crash":
        return " ".join(["crash", name_of(rest[0]), "/".join(map(str, rest[1:]))]).rstrip()
    if name == "wait":
        return f"wait {rest[0]}"
    return " ".join([name, *map(name_of, rest)])


def commands_of(words: Sequence[bytes], process: Process, work: Workload) -> list[list[bytes]]:
    """Commands with IDs instead of places; NotPossibleError if a place stands for nothing."""
    is_end = [at for at, word in enumerate(words) if word == b"|"]
    found = []
    for low, high in zip([0, *(at + 1 for at in is_end)], [*is_end, len(words)], strict=True):
        command = work.fill(words[low:high], process, work.keys)
        if command is None:
            raise NotPossibleError
        found.append(command)
    return found
