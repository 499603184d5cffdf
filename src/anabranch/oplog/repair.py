"""Make a damaged log readable again: keep what is sound, move aside what is not.

A log is read from its beginning, so what can be kept is what comes before the first damage. Nothing
is deleted: the part that is cut off, and later files, get names that a start ignores. After every
step the same repair can be tried again.
"""

from __future__ import annotations

from contextlib import closing

from msgspec import Struct

from anabranch.errors import AnabranchError
from anabranch.oplog.inspection import SegmentFacts, Survey
from anabranch.oplog.manifest import Absence, ManifestFile
from anabranch.oplog.storage import Storage


class RepairImpossible(AnabranchError):
    """A cut would not help; the text says what to do instead."""


class RepairPlan(Struct, frozen=True):
    """What a repair would change, and what would be lost by it."""

    position: int
    """The new end of the log: everything before it is kept."""
    cut: SegmentFacts | None
    """The file that loses its end, from :attr:`SegmentFacts.sound` on."""
    aside: tuple[SegmentFacts, ...]
    """Files that are moved aside, so that a start ignores them."""
    absence: Absence | None = None
    """The missing file that the manifest will not require any more."""

    @property
    def lost_bytes(self) -> int:
        """Bytes that are cut off or moved aside."""
        cut = self.cut.size - self.cut.sound if self.cut is not None else 0
        return cut + sum(facts.size for facts in self.aside)

    @property
    def lost_turns(self) -> int:
        """How many sound turns would be cut off."""
        cut = self.cut.turns_behind if self.cut is not None else 0
        return cut + sum(facts.turns + facts.turns_behind for facts in self.aside)

    @property
    def lost_effects(self) -> int:
        """How many sound effects would be cut off."""
        cut = self.cut.effects_behind if self.cut is not None else 0
        return cut + sum(facts.effects + facts.effects_behind for facts in self.aside)


def plan_repair(survey: Survey) -> RepairPlan | None:
    """Plan how to make a surveyed directory readable; None if a start would accept it.

    A torn end is cut, too, although a start would do that. Raises :class:`RepairImpossible`.
    """
    base = survey.base
    if base is not None and base.problem is not None:
        raise RepairImpossible(
            f"{base.shown} is damaged, and nothing can be cut from a snapshot. {way_out(survey)}"
        )
    live = [facts for facts in survey.segments if not facts.is_superseded]
    broken = next((facts for facts in live if facts.problem is not None), None)
    if broken is None:
        absence = survey.absence
        return None if absence is None else RepairPlan(survey.end, None, (), absence)
    if broken.is_newer:
        raise RepairImpossible(
            f"{broken.shown} was written by a newer server and is not damaged. "
            "Start the newer version again, or export the data with it"
        )
    assert broken.problem is not None
    offset, what = broken.problem
    if not offset and broken.sound and base is None and broken is live[0]:
        raise RepairImpossible(
            f"{broken.shown}: {what}, and nothing comes before it. "
            "Put the missing files back, or a whole backup of the directory"
        )
    behind = live[live.index(broken) + 1 :]
    if offset:
        return RepairPlan(broken.end, broken, tuple(behind))
    aside = [broken, *behind]
    if broken is live[0]:
        # The file before the snapshot becomes the newest, and is read again.
        for older in reversed([facts for facts in survey.segments if facts.is_superseded]):
            if older.problem is None:
                break
            aside.insert(0, older)
    return RepairPlan(survey.end, None, tuple(aside))


def carry_out(storage: Storage, repair: RepairPlan) -> dict[str, str]:
    """Carry out a repair; returns the old names and the names under which the parts are kept.

    Raises :class:`OSError`. The caller holds the directory's lock.
    """
    kept: dict[str, str] = {}
    # The newest first: after an error the remaining files still follow one another.
    for facts in reversed(repair.aside):
        kept[facts.name] = _free_name(storage, facts.name, facts.first)
        storage.rename(facts.name, kept[facts.name])
    storage.sync()
    cut = repair.cut
    if cut is not None:
        with closing(storage.open(cut.name)) as file:
            data = file.read()
        kept[cut.name] = _free_name(storage, cut.name, cut.end)
        with closing(storage.create(kept[cut.name])) as copy:
            copy.write(data[cut.sound :])
            copy.sync()
        storage.sync()
        with closing(storage.append(cut.name)) as tail:
            tail.truncate(cut.sound)
            tail.sync()
    ManifestFile(storage).clear()
    return kept


def _free_name(storage: Storage, name: str, position: int) -> str:
    """An unused name that contains the old one."""
    names = set(storage.names())
    wanted = target = f"{name}.cut-{position}"
    count = 1
    while target in names:
        count += 1
        target = f"{wanted}.{count}"
    return target


def way_out(survey: Survey) -> str:
    """Advice about the damaged newest snapshot: a sentence without its full stop.

    Reads the other files if the survey is of one file only; raises :class:`OSError`.
    """
    if survey.only is not None:
        survey = Survey(survey.storage)
        for _ in survey.walk():
            pass
    base = survey.base
    assert base is not None
    if base.is_newer:
        return "Start the newer version again, or export the data with it"
    older = next(
        (facts for facts in reversed(survey.snapshots[:-1]) if facts.problem is None), None
    )
    reached = older.position if older is not None else 0
    for facts in survey.segments:
        if facts.first <= reached and facts.problem is None:
            reached = max(reached, facts.end)
    if reached < base.position:
        return "Restore a backup of the directory"
    instead = f"{older.name} and the log behind it hold" if older is not None else "the log holds"
    return f"Move it out of the directory: {instead} all it held, and a start reads that instead"
