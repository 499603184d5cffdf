"""The result as a value, and its three forms: a terminal table, JSON and a Markdown page.

The chart is drawn from the JSON by `benchmarks/plot.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from benchmarks.shared.lines import to_lines

from .longest import FLOOR_MS
from .measure import NEW
from .profile import PARTS
from .targets import log_of

if TYPE_CHECKING:
    from pathlib import Path

    from .longest import LongRow, Waits
    from .machine import Machine
    from .measure import Row, Spread
    from .memory import MemoryRow
    from .profile import Profile
    from .restart import RestartRow
    from .targets import Verdict

FORMAT = 1
MOVED = "†"
"""Marks rows that depend on the form in which old nodes are kept."""
DEAR = 2.5
"""A CPU ratio from which on the terminal shows it in red."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server as the report names it."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Result:
    """All figures of one run with what is needed to judge them."""

    made_at: str
    machine: Machine
    baseline: Contestant
    subject: Contestant
    rounds: int
    interpreted_rounds: int
    """Of the interpreted form; 0 if it was not measured beside the compiled one."""
    quick: bool
    seconds: float
    workloads: list[Row]
    memory: list[MemoryRow]
    memory_entries: int
    restarts: list[RestartRow]
    waits: list[LongRow]
    waits_entries: int
    """Entries of the stream that the long commands work on."""
    targets: list[Verdict]
    profiles: list[Profile]
    """Only if they were asked for."""


def to_json(result: Result) -> str:
    """Return the result as JSON, field for field, with a line for each measurement."""
    return to_lines({"format": FORMAT, **asdict(result)})


def tables(result: Result) -> list[Table]:
    """Return the tables for a terminal: workloads, memory, targets."""
    made = [_workload_table(result)] if result.workloads else []
    if result.profiles:
        made.append(_profile_table(result))
    if result.memory:
        made.append(_memory_table(result))
    if result.restarts:
        made.append(_restart_table(result))
    if result.waits:
        made.append(_wait_table(result))
    measured = [verdict for verdict in result.targets if verdict.passed is not None]
    if measured:
        made.append(_target_table(measured))
    return made


def notes(result: Result) -> list[str]:
    """Return what a terminal shows below the tables, one line each."""
    found = row_notes(result)
    for profile in result.profiles:
        hottest = ", ".join(f"{name} {share:.1%}" for name, share in profile.hottest.items())
        found.append(f"{profile.workload}: hottest in {profile.server}: {hottest}")
    return found


def row_notes(result: Result) -> list[str]:
    """Return what has to be said about single workloads, one line each."""
    found = []
    for row in result.workloads:
        if row.problem:
            found.append(f"{row.name}: not measured; {row.problem}")
        elif row.note:
            found.append(f"{row.name}: {row.note}")
        elif row.outcome and row.units_per_command > 1:
            theirs, ours = (
                figures.cpu_us.median * row.units_per_command
                for figures in (row.outcome.baseline, row.outcome.subject)
            )
            found.append(
                f"{row.name}: CPU per round of {row.units_per_command} entries "
                f"{theirs:.1f} µs ({result.baseline.name}), {ours:.1f} µs ({result.subject.name})"
            )
    return found


def to_markdown(result: Result) -> str:
    """Return the result as a short Markdown page."""
    machine, theirs, ours = result.machine, result.baseline, result.subject
    lines = [
        f"# {ours.name} beside {theirs.name}",
        "",
        f"{ours.name} {ours.version}, {theirs.name} {theirs.version}; {result.made_at}; "
        f"{result.rounds} rounds{', quick' if result.quick else ''}.",
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}, "
        f"{machine.python}, hiredis {machine.hiredis}, load average before the run "
        f"{machine.load_average}.",
        "",
        "CPU is server time on a CPU per unit, in microseconds. The floor is a process that "
        "receives the same requests and sends ready replies of the same sizes. Ratios are "
        f"{ours.name} / {theirs.name}: medians of paired rounds, (lowest to highest). Below 1, a "
        f"CPU ratio says that {ours.name} is cheaper; above 1, a throughput ratio that it is "
        "faster. `--only` and the name of a row measure that row. How the figures are made: "
        "`benchmarks/README.md`.",
        "",
        "Log is `appendfsync` of both servers, or *no*. Entries is how old those are that a row "
        "reads or weighs; *new* are those that the round itself has added. The form in which old "
        f"entries are kept decides the rows with {MOVED}: a change of that form, or of "
        "`stream-memory-hot`, moves them. Interpreted is the same ratio of the interpreted form, "
        f"{_interpreted(result)}.",
        "",
        "![CPU and memory ratios](latest.png)",
        "",
        "## Targets",
        "",
        "| Workload | Log | Entries | Ratio at most | Measured | | Interpreted |",
        "|---|---|---|---:|---:|---|---:|",
    ]
    lines += ["| " + " | ".join(target_cells(verdict)) + " |" for verdict in result.targets]
    lines += [
        "",
        "## Workloads",
        "",
        f"| Workload | Log | Entries | Per | CPU floor | CPU {theirs.name} | CPU {ours.name} "
        f"| CPU ratio | Per second {theirs.name} | Per second {ours.name} | Ratio |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        "| " + " | ".join([row.name, *circumstances(row.name, row.age), *_cells(row)]) + " |"
        for row in result.workloads
    ]
    lines += ["", *(f"- {note}" for note in row_notes(result))]
    if result.profiles:
        lines += [
            "",
            "## Where the CPU goes",
            "",
            "Microseconds per unit, from samples of perf. *Itself* is redis-server, or the "
            "compiled modules of anabranch; libraries are uvloop, hiredis and zstd. `latest.json` "
            "names the functions with most samples.",
            "",
            f"| Workload | Server | {' | '.join(PARTS)} | Together |",
            f"|---|---|{'---:|' * (len(PARTS) + 1)}",
        ]
        lines += ["| " + " | ".join(_profile_cells(one)) + " |" for one in result.profiles]
    lines += [
        "",
        "## Bytes per entry",
        "",
        "Growth of the resident size (RSS): its highest value while the entries are added as fast "
        f"as one client can, and a minute later. Entries: {result.memory_entries:,}.",
        "",
        f"| Entry | Highest RSS {theirs.name} | Highest RSS {ours.name} | Ratio "
        f"| RSS {theirs.name} | RSS {ours.name} | Ratio "
        f"| MEMORY USAGE {theirs.name} | MEMORY USAGE {ours.name} | Ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join([row.name, *_memory_cells(row)]) + " |" for row in result.memory]
    lines += [
        "",
        "## Starting again",
        "",
        "Seconds until the server answers, in brackets those of an empty start. Both servers have "
        "a log, `appendfsync everysec`.",
        "",
        f"| What there is | {theirs.name} | {ours.name} | Ratio | CPU s {theirs.name} "
        f"| CPU s {ours.name} | Ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join([row.name, *_restart_cells(row)]) + " |" for row in result.restarts]
    lines += [
        "",
        "## Longest waits",
        "",
        f"What a client that pings each millisecond waited longest, in milliseconds, while one "
        f"command of another client ran on a stream of {result.waits_entries:,} entries, all of "
        f"them pending in one group; in brackets the server's CPU in milliseconds. Goal: no more "
        f"than twice {theirs.name}'s wait, or {FLOOR_MS:.0f} ms. In the rows of floods others send "
        f"much at once, to an empty server; there the goal is {theirs.name}'s wait, or "
        f"{FLOOR_MS:.0f} ms. Only in the rows of large values both servers have a log; the goal is "
        f"twice {theirs.name}'s wait, or {FLOOR_MS:.0f} ms. "
        f"In the rows of crowds many wait, or many are listed; there the CPU "
        f"counts as well: twice {theirs.name}'s, or {FLOOR_MS:.0f} ms.",
        "",
        f"| While | {theirs.name} | {ours.name} | At most | |",
        "|---|---:|---:|---:|---|",
    ]
    lines += ["| " + " | ".join([row.name, *_wait_cells(row)]) + " |" for row in result.waits]
    return "\n".join(lines) + "\n"


def write(result: Result, directory: Path) -> Path:
    """Write `latest.json` and `latest.md` to a directory; return the path of the JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "latest.json"
    path.write_text(to_json(result))
    (directory / "latest.md").write_text(to_markdown(result))
    return path


def _workload_table(result: Result) -> Table:
    theirs, ours = result.baseline.name, result.subject.name
    table = Table(title=f"Server CPU per unit: {ours} beside {theirs}", title_justify="left")
    table.add_column("workload", no_wrap=True)
    table.add_column("per", no_wrap=True)
    for heading in (
        *("CPU µs\nfloor", f"CPU µs\n{theirs}", f"CPU µs\n{ours}", "CPU ratio\n(low to high)"),
        *(f"per second\n{theirs}", f"per second\n{ours}", "ratio"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    family = ""
    for row in result.workloads:
        if family and row.family != family:
            table.add_section()
        family = row.family
        style = "" if row.outcome is None else _style(row.outcome.cpu_ratio.median)
        *cells, ratio, their_rate, our_rate, rates = _cells(row)
        table.add_row(row.name, *cells, Text(ratio, style=style), their_rate, our_rate, rates)
    return table


def _profile_table(result: Result) -> Table:
    table = Table(title="Where the CPU goes: µs per unit", title_justify="left")
    table.add_column("workload", no_wrap=True)
    table.add_column("server")
    for part in (*PARTS, "together"):
        table.add_column(part, justify="right")
    for profile in result.profiles:
        table.add_row(*_profile_cells(profile))
    return table


def _profile_cells(profile: Profile) -> list[str]:
    times = [profile.cpu_us[part] for part in PARTS]
    return [profile.workload, profile.server, *(f"{one:.2f}" for one in (*times, sum(times)))]


def _memory_table(result: Result) -> Table:
    theirs, ours = result.baseline.name, result.subject.name
    table = Table(title="Bytes per entry", title_justify="left")
    table.add_column("entry")
    for what in ("highest RSS", "RSS", "MEMORY USAGE"):
        for heading in (f"{what}\n{theirs}", f"{what}\n{ours}", "ratio"):
            table.add_column(heading, justify="right")
    for row in result.memory:
        table.add_row(row.name, *_memory_cells(row))
    return table


def _restart_table(result: Result) -> Table:
    theirs, ours = result.baseline.name, result.subject.name
    table = Table(title="Starting again (in brackets: an empty start)", title_justify="left")
    table.add_column("what there is")
    for what in ("seconds", "CPU seconds"):
        for heading in (f"{what}\n{theirs}", f"{what}\n{ours}", "ratio"):
            table.add_column(heading, justify="right")
    for row in result.restarts:
        table.add_row(row.name, *_restart_cells(row))
    return table


def _wait_table(result: Result) -> Table:
    title = f"Longest wait of others in ms (CPU), {result.waits_entries:,} entries"
    table = Table(title=title, title_justify="left")
    table.add_column("while")
    for heading in (result.baseline.name, result.subject.name, "at most", ""):
        table.add_column(heading, justify="right")
    for row in result.waits:
        *cells, word = _wait_cells(row)
        table.add_row(row.name, *cells, Text(word, style="green" if row.passed else "bold red"))
    return table


def _target_table(verdicts: list[Verdict]) -> Table:
    table = Table(title="Targets (ratio)", title_justify="left")
    table.add_column("workload")
    for heading in ("log", "entries"):
        table.add_column(heading)
    for heading in ("at most", "measured", "", "interpreted"):
        table.add_column(heading, justify="right")
    for verdict in verdicts:
        style = "green" if verdict.passed else "bold red"
        *cells, word, interpreted = target_cells(verdict)
        table.add_row(*cells, Text(word, style=style), interpreted)
    return table


def _cells(row: Row) -> list[str]:
    """Return the cells of a workload that follow its name."""
    if row.outcome is None:
        return [row.unit, *["-"] * 7]
    theirs, ours = row.outcome.baseline, row.outcome.subject
    floor = row.outcome.floor
    return [
        row.unit,
        _number(floor and floor.cpu_us.median, 2),
        f"{theirs.cpu_us.median:.2f}",
        f"{ours.cpu_us.median:.2f}",
        _ratio(row.outcome.cpu_ratio),
        f"{theirs.per_second.median:,.0f}",
        f"{ours.per_second.median:,.0f}",
        f"{row.outcome.throughput_ratio.median:.2f}",
    ]


def target_cells(verdict: Verdict) -> list[str]:
    """Return the cells of a goal: its row, both forms, and whether it is reached."""
    return [
        verdict.workload,
        *circumstances(verdict.workload, verdict.age),
        f"{verdict.at_most:.2f}",
        _number(verdict.measured, 2),
        _word(verdict),
        _number(verdict.interpreted, 2),
    ]


def circumstances(name: str, age: str) -> list[str]:
    """Return the log and the age of the entries, marked where the form of old nodes decides."""
    return [log_of(name), f"{age} {MOVED}" if age not in {"", NEW} else age or "-"]


def _interpreted(result: Result) -> str:
    rounds = result.interpreted_rounds
    return f"without goals, {rounds} rounds" if rounds else "not measured in this run"


def _memory_cells(row: MemoryRow) -> list[str]:
    cells = []
    for theirs, ours, ratio in (
        (row.baseline.highest, row.subject.highest, row.highest_ratio),
        (row.baseline.rss, row.subject.rss, row.rss_ratio),
        (row.baseline.usage, row.subject.usage, row.usage_ratio),
    ):
        cells += [_number(theirs, 1), _number(ours, 1), _number(ratio, 2)]
    return cells


def _restart_cells(row: RestartRow) -> list[str]:
    theirs, ours = row.baseline, row.subject
    return [
        f"{theirs.wall_s.median:.2f} ({theirs.empty_wall_s.median:.2f})",
        f"{ours.wall_s.median:.2f} ({ours.empty_wall_s.median:.2f})",
        _ratio(row.wall_ratio),
        f"{theirs.cpu_s.median:.2f}",
        f"{ours.cpu_s.median:.2f}",
        _ratio(row.cpu_ratio),
    ]


def _wait_cells(row: LongRow) -> list[str]:
    if row.problem:
        return [row.problem, "-", "-", "not measured"]
    word = "pass" if row.passed else "FAIL"
    at_most = f"{row.at_most_ms:.0f}"
    if row.at_most_cpu_ms is not None:
        at_most += f" ({row.at_most_cpu_ms:.0f})"
    return [_waits(row.baseline), _waits(row.subject), at_most, word]


def _waits(waits: Waits | None) -> str:
    return "-" if waits is None else f"{waits.worst_ms.median:.1f} ({waits.cpu_ms.median:.0f})"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _ratio(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _style(ratio: float) -> str:
    return "green" if ratio < 1 else "yellow" if ratio < DEAR else "bold red"


def _word(verdict: Verdict) -> str:
    return {True: "pass", False: "FAIL", None: "not measured"}[verdict.passed]
