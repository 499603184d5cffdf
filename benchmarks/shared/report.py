"""The result as a value, and its three forms: a terminal table, JSON and a Markdown page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.versus_redis.machine import Machine

from .goals import Verdict
from .lines import to_lines

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Page:
    """What is said of a program's results."""

    name: str
    """Of its files, without suffix."""
    title: str
    about: str
    """One paragraph about how the figures were made."""


@dataclass(frozen=True, slots=True)
class Part:
    """A measurement: what it was called, and its figures or why there are none."""

    name: str
    seconds: float
    verdicts: list[Verdict]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """All figures of one run with what is needed to judge them."""

    made_at: str
    version: str
    machine: Machine
    quick: bool
    seconds: float
    parts: list[Part]


def to_json(result: Result) -> str:
    """Return the result as JSON, field for field, with a line for each measurement."""
    return to_lines({"format": FORMAT, **asdict(result)})


def table(result: Result, page: Page) -> Table:
    """Return the table for a terminal."""
    made = Table(title=page.title, title_justify="left")
    made.add_column("figure")
    for heading in ("measured", "goal"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("")
    made.add_column("note")
    for part in result.parts:
        for verdict in part.verdicts:
            style = {True: "green", False: "bold red", None: ""}[verdict.passed]
            name, measured, goal, word, note = cells(verdict)
            made.add_row(name, measured, goal, Text(word, style=style), note)
        if part.problem:
            made.add_row(part.name, "-", "", Text("not measured", style="bold red"), part.problem)
        made.add_section()
    return made


def to_markdown(result: Result, page: Page) -> str:
    """Return the result as a short Markdown page."""
    machine = result.machine
    lines = [
        f"# {page.title}",
        "",
        f"anabranch {result.version}; {result.made_at}; {result.seconds:.0f} s"
        f"{', quick' if result.quick else ''}.",
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}, "
        f"{machine.python}, load average before the run {machine.load_average}.",
        "",
        f"{page.about} Where rounds were made, the median is shown with the lowest and the "
        "highest. How the figures are made: `benchmarks/README.md`.",
        "",
        "| Figure | Measured | Goal | | |",
        "|---|---:|---:|---|---|",
    ]
    for part in result.parts:
        lines += ["| " + " | ".join(cells(verdict)) + " |" for verdict in part.verdicts]
        if part.problem:
            lines.append(f"| {part.name} | - | | not measured | {part.problem} |")
    return "\n".join(lines) + "\n"


def write(result: Result, page: Page, directory: Path) -> None:
    """Write JSON and Markdown, named as the page is, to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{page.name}.json").write_text(to_json(result))
    (directory / f"{page.name}.md").write_text(to_markdown(result, page))


def cells(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Return name, value, goal, judgement and note, as text."""
    figure, goal = verdict.figure, verdict.goal
    measured = f"{number(figure.value)} {figure.unit}"
    if figure.low is not None and figure.high is not None:
        measured += f" ({number(figure.low)} to {number(figure.high)})"
    limit = "" if goal is None else f"{'≥' if goal.is_lowest else '≤'} {number(goal.limit)}"
    word = {True: "pass", False: "FAIL", None: "" if goal is None else "less than a full run"}
    return figure.name, measured, limit, word[verdict.passed], figure.note


def number(value: float) -> str:
    """Return a number with three digits that say something, more where it is large."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"
