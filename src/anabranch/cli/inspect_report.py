"""The results of a survey, as lines for people and as objects for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from anabranch.cli.inspect_values import when
from anabranch.oplog.inspection import Fate, SegmentFacts, SnapshotFacts, Survey
from anabranch.oplog.repair import RepairImpossible, plan_repair, way_out
from anabranch.server.disk import Directory

Facts = SegmentFacts | SnapshotFacts


def report_lines(survey: Survey, directory: Directory, *, running: bool) -> Iterator[str]:
    """The whole report for people; ``running`` is whether a server uses the directory."""
    for facts in survey.read:
        yield from _rows(file_object(facts), _result(facts, survey, running=running))
        yield ""
    if survey.only is None:
        start = "; ".join(_start(survey, running=running))
        yield from _rows(directory_object(survey, directory, running=running), start)


def _rows(found: dict[str, Any], result: str) -> Iterator[str]:
    """The figures of an object line by line, without those that say nothing."""
    name, *rows = found.items()
    yield str(name[1])
    for label, value in rows:
        if (value and label != "problem") or label.endswith("position"):
            yield f"  {label:<15} {_text(value)}"
    yield f"  {'result':<15} {result}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def complaints(survey: Survey, *, running: bool) -> Iterator[str]:
    """One line for each file with which something is wrong."""
    for facts in survey.read:
        if facts.fate is not Fate.SOUND:
            yield f"{facts.shown}: {_result(facts, survey, running=running)}"
    absence = survey.absence
    if absence is not None:
        yield f"{survey.storage.shown(absence.name)}: {absence.what}. A start is refused"


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


def _start(survey: Survey, *, running: bool) -> Iterator[str]:
    """What a start would do with the whole, and what to do about it."""
    if running:
        yield "a server is using this directory: what it writes now may be missing here"
    absence = survey.absence
    if survey.refused is not None:
        yield f"a start is refused because of {survey.refused.name}"
    elif absence is not None:
        yield f"a start is refused because {absence.name} {absence.what}"
        yield f"{_cure(survey)}. For a copy or an older state: anabranch restore"
    elif survey.read:
        base = survey.base
        begin = f"{base.name}, then " if base is not None else ""
        cut = f", and cuts {survey.torn.name}" if survey.torn is not None and not running else ""
        yield f"a start reads {begin}the log up to position {survey.end}{cut}"
    else:
        yield "there is no log and no snapshot"


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
