"""The results of a survey, as lines for people and as objects for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from anabranch.cli.inspect_values import when
from anabranch.oplog.inspection import Fate, SegmentFacts, SnapshotFacts, Survey
from anabranch.oplog.repair import RepairImpossible, plan_repair, way_out
from anabranch.server.disk import Directory

Facts = SegmentFacts | SnapshotFacts


# -- for people -------------------------------------------------------------------------------


def report_lines(survey: Survey, directory: Directory, *, running: bool) -> Iterator[str]:
    """The whole report; ``running`` is whether a server uses the directory."""
    for facts in survey.read:
        yield facts.shown
        rows = _segment_rows(facts) if isinstance(facts, SegmentFacts) else _snapshot_rows(facts)
        for label, text in (*rows, ("result", _result(facts, survey, running=running))):
            yield f"  {label:<9} {text}"
        yield ""
    if survey.only is None:
        yield str(directory.path)
        for label, text in _directory_rows(survey, running=running):
            yield f"  {label:<9} {text}"


def complaints(survey: Survey, *, running: bool) -> Iterator[str]:
    """One line for each file with which something is wrong."""
    for facts in survey.read:
        if facts.fate is not Fate.SOUND:
            yield f"{facts.shown}: {_result(facts, survey, running=running)}"
    absence = survey.absence
    if absence is not None:
        yield f"{survey.storage.shown(absence.name)}: {absence.what}. A start is refused"


def _segment_rows(facts: SegmentFacts) -> Iterator[tuple[str, str]]:
    yield "file", f"log, format {facts.version}, {facts.size:,} bytes"
    yield "positions", f"{facts.first} to {facts.end}"
    yield "turns", f"{facts.turns:,} in {facts.batches:,} batches"
    numbered = facts.effects - facts.local
    numbers = ""
    if numbered and facts.first_number is not None and facts.next_number is not None:
        numbers = f" ({facts.first_number} to {facts.next_number - 1})"
    yield "effects", f"{facts.effects:,}: {numbered:,} numbered{numbers}, {facts.local:,} local"
    yield "kinds", _counted(facts.kinds)
    if facts.earliest_ms is not None:
        yield "times", f"{when(facts.earliest_ms)} to {when(facts.latest_ms)}"
    yield "keys", f"{len(facts.keys):,}"


def _snapshot_rows(facts: SnapshotFacts) -> Iterator[tuple[str, str]]:
    yield "file", f"snapshot, format {facts.version}, {facts.size:,} bytes"
    yield "position", f"{facts.position}, next effect {facts.next_number}"
    if facts.wall_ms is not None:
        yield "taken", f"{when(facts.wall_ms)}"
    databases = len(facts.databases)
    yield (
        "keys",
        (
            f"{facts.keys:,} in {databases:,} database{'' if databases == 1 else 's'}, "
            f"{facts.deadlines:,} with a deadline"
        ),
    )
    yield "kinds", _counted(facts.kinds)
    yield (
        "streams",
        (
            f"{facts.entries:,} entries, {facts.groups:,} groups, {facts.consumers:,} consumers, "
            f"{facts.pending:,} pending, {facts.idempotent_ids:,} idempotent IDs"
        ),
    )
    yield "users", f"{facts.users:,}"
    if facts.libraries:
        yield "function libraries", f"{facts.libraries:,}"
    if facts.policies:
        yield "policies", f"{facts.policies:,}"
    if facts.scheduled:
        yield "scheduled entries", f"{facts.scheduled:,}"


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in names.most_common()) or "none"


def _result(facts: Facts, survey: Survey, *, running: bool) -> str:
    """One sentence or two: what is wrong, what follows, what to do."""
    problem = facts.problem
    if problem is None:
        return "sound"
    offset, what = problem
    if facts.is_newer:
        return what
    if facts.fate is Fate.CUT:
        if running:
            return f"unfinished from byte {offset} on: a server is writing it"
        return (
            f"torn at byte {offset}: {what}. A start cuts off the {facts.size - offset:,} bytes "
            "from there on"
        )
    damage = f"damaged at byte {offset}: {what}"
    if facts.fate is Fate.UNREAD:
        return f"{damage}. No start reads this file"
    if isinstance(facts, SnapshotFacts):
        return f"{damage}. A start is refused. {way_out(survey)}"
    behind = (
        f" Behind it are {facts.turns_behind:,} sound turns with {facts.effects_behind:,} effects."
        if facts.turns_behind
        else ""
    )
    return f"{damage}. A start is refused.{behind} {_cure(survey)}"


def _cure(survey: Survey) -> str:
    if survey.only is not None:
        return "With --write everything from the damage on is cut off and kept beside the file"
    try:
        repair = plan_repair(survey)
    except RepairImpossible as problem:
        return str(problem)
    assert repair is not None
    if repair.absence is not None:
        return f"With --write a start takes what is here, up to position {repair.position}"
    return f"With --write the log ends at position {repair.position}: what comes later is put aside"


def _directory_rows(survey: Survey, *, running: bool) -> Iterator[tuple[str, str]]:
    base = survey.base
    if running:
        yield "server", "a server is using this directory: what it writes now may be missing here"
    if not survey.read:
        yield "holds", "no log and no snapshot"
    else:
        yield "holds", f"{len(survey.snapshots):,} snapshots, {len(survey.segments):,} log files"
    absence = survey.absence
    if survey.refused is not None:
        yield "start", f"is refused because of {survey.refused.name}"
    elif absence is not None:
        yield "start", f"is refused because {absence.name} {absence.what}"
        yield "way out", f"{_cure(survey)}. For a copy or an older state: anabranch restore"
    elif survey.read:
        begin = f"reads {base.name}, then" if base is not None else "reads"
        cut = f", and cuts {survey.torn.name}" if survey.torn is not None and not running else ""
        yield "start", f"{begin} the log up to position {survey.end}{cut}"
    if survey.superseded:
        yield "unneeded", ", ".join(survey.superseded)
    if survey.unfinished:
        yield "removed", f"by a start: {', '.join(survey.unfinished)} (never finished)"
    if survey.strangers:
        yield "others", ", ".join(survey.strangers)


# -- for programs -----------------------------------------------------------------------------


_OF_SEGMENT: Final = "turns batches effects local first_number next_number region epoch".split()
_OF_SNAPSHOT: Final = (
    "records region epoch next_number keys deadlines entries groups consumers pending "
    "idempotent_ids users libraries policies scheduled"
).split()


def file_object(facts: Facts) -> dict[str, Any]:
    """Everything about one file."""
    problem = facts.problem
    found: dict[str, Any] = {
        "file": facts.shown,
        "type": "log" if isinstance(facts, SegmentFacts) else "snapshot",
        "version": facts.version,
        "size": facts.size,
    }
    if isinstance(facts, SegmentFacts):
        found |= {"first_position": facts.first, "end_position": facts.end}
        found |= {name: getattr(facts, name) for name in _OF_SEGMENT}
        found |= {"earliest": when(facts.earliest_ms), "latest": when(facts.latest_ms)}
        found |= {"kinds": dict(facts.kinds), "keys": len(facts.keys)}
    else:
        found |= {"position": facts.position, "taken": when(facts.wall_ms)}
        found |= {name: getattr(facts, name) for name in _OF_SNAPSHOT}
        found |= {"kinds": dict(facts.kinds), "databases": sorted(facts.databases)}
    found |= {"fate": facts.fate.value, "superseded": facts.is_superseded, "problem": None}
    if problem is not None:
        found["problem"] = {"offset": problem[0], "reason": problem[1], "newer": facts.is_newer}
        if isinstance(facts, SegmentFacts):
            found["problem"] |= {
                "sound_bytes": facts.sound,
                "turns_behind": facts.turns_behind,
                "effects_behind": facts.effects_behind,
            }
    return found


def directory_object(survey: Survey, directory: Directory, *, running: bool) -> dict[str, Any]:
    """What a start would do with the whole."""
    fate = Fate.SOUND
    absence = survey.absence
    if survey.refused is not None or absence is not None:
        fate = Fate.REFUSED
    elif survey.torn is not None:
        fate = Fate.CUT
    return {
        "directory": str(directory.path),
        "type": "directory",
        "fate": fate.value,
        "sound": survey.is_sound,
        "absent": {"file": absence.name, "reason": absence.what} if absence is not None else None,
        "end_position": survey.end,
        "snapshot": survey.base.name if survey.base is not None else None,
        "superseded": survey.superseded,
        "unfinished": survey.unfinished,
        "others": survey.strangers,
        "running": running,
    }
