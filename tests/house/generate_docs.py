"""`docs/commands.md`, `docs/settings.md` and a table of `docs/formats.md`, made from the code.

`python -m tests.house.generate_docs` writes them; `test_generated_docs.py` says when that has
been forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.commands.request.spec import Command
from anabranch.commands.table import COMMANDS
from anabranch.config.rows import Row
from anabranch.config.settings import GROUPS, ROWS
from tests.house.formats import formats_page
from tests.support.servers import REPOSITORY

DOCS = REPOSITORY / "docs"

_NOTICE = "<!-- Made by `python -m tests.house.generate_docs` from {source}. Do not edit. -->\n\n"

COMMAND_GROUPS = {
    "stream": "Streams",
    "transactions": "Transactions",
    "generic": "Keyspace",
    "connection": "Connections",
    "pubsub": "Publish and subscribe",
    "server": "Server",
    "string": "Strings",
    "list": "Lists",
    "set": "Sets",
    "scripting": "Scripts and functions",
    "cluster": "Cluster mode",
}
"""Headings of the groups of the command table, in the order of the page."""

_SMALL = "Small helpers beside the streams. A server of several regions refuses what changes them."
_GROUP_NOTES = {
    "string": _SMALL,
    "list": _SMALL,
    "set": _SMALL,
    "scripting": "There is no scripting. These answer what clients and test suites ask anyway.",
    "cluster": "There is no cluster mode. These give the error that clients expect then.",
}


def commands_page() -> str:
    """Every command and sub-command of the table."""
    parts = [
        _NOTICE.format(source="the command table (`src/anabranch/commands/table/`)"),
        "# Commands\n\n",
        "Every command this server knows. What it answers follows Redis 8.10; exceptions are in\n"
        "[compatibility.md](compatibility.md). *Since* is the Redis version that brought the\n"
        "command (XIDMP is ours alone). The same facts come from `COMMAND INFO` and\n"
        "`COMMAND DOCS`.\n\n",
    ]
    groups: dict[str, list[Command]] = {}
    for command in COMMANDS:
        groups.setdefault(command.group, []).append(command)
    assert groups.keys() == COMMAND_GROUPS.keys(), "name the new group in COMMAND_GROUPS"
    for group, heading in COMMAND_GROUPS.items():
        names = [_link(each) for each in sorted(groups[group], key=lambda each: each.name)]
        parts.append(f"- [{heading}](#{_anchor(heading)}): {', '.join(names)}\n")
    for group, heading in COMMAND_GROUPS.items():
        parts.append(f"\n## {heading}\n")
        if group in _GROUP_NOTES:
            parts.append(f"\n{_GROUP_NOTES[group]}\n")
        parts += map(_command, sorted(groups[group], key=lambda each: each.name))
    return "".join(parts)


def _title(command: Command) -> str:
    return command.full_name.replace("|", " ").upper()


def _anchor(heading: str) -> str:
    return heading.lower().replace(".", "").replace(" ", "-")


def _link(command: Command) -> str:
    return f"[{_title(command)}](#{_anchor(_title(command))})"


def _command(command: Command) -> str:
    lines = [f"\n### {_title(command)}\n\n"]
    if not command.subcommands:
        lines.append(f"    {f'{_title(command)} {command.syntax}'.rstrip()}\n\n")
    lines.append(f"{command.summary}\n\n")
    facts = [f"Since {command.since}"]
    if command.complexity and not command.subcommands:
        facts.append(f"cost: {command.complexity.rstrip('.')}")
    if command.flag_words:
        facts.append(f"flags: {' '.join(sorted(command.flag_words))}")
    if command.category_words:
        facts.append("ACL: " + " ".join(f"@{word}" for word in sorted(command.category_words)))
    lines.append(f"*{'; '.join(facts)}.*\n")
    if command.history:
        lines.append("\n")
        lines.extend(f"- {version}: {change}\n" for version, change in command.history)
    if command.subcommands:
        lines.append("\n| Sub-command | | Since | ACL |\n|---|---|---|---|\n")
        for _, sub in sorted(command.subcommands.items()):
            form = f"{_title(sub)} {sub.syntax}".rstrip()
            acl = " ".join(f"@{word}" for word in sorted(sub.category_words))
            lines.append(f"| `{_cell(form)}` | {_cell(sub.summary)} | {sub.since} | {acl} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def settings_page() -> str:
    """Every directive of the settings table."""
    parts = [
        _NOTICE.format(source="the settings table (`src/anabranch/config/settings.py`)"),
        "# Settings\n\n",
        "Each directive may stand in a configuration file, in the environment (`timeout` as\n"
        "`ANABRANCH_TIMEOUT`, dashes as underscores) and on the command line (`--timeout 60`; a\n"
        "switch may stand alone there: `--cluster-create`).\n"
        "Default < file < environment < command line < `CONFIG SET`. How to start with them is in\n"
        "[operations.md](operations.md); `anabranch config` prints what is in force and where it\n"
        "comes from.\n\n"
        "*Changes*: `running` by `CONFIG SET` at any time; `start` only before the start;\n"
        "`protected` by `CONFIG SET` if `enable-protected-configs` allows it.\n",
    ]
    for group, heading in GROUPS.items():
        rows = [row for row in ROWS.values() if row.group == group]
        parts.append(f"\n## {heading}\n\n")
        parts.extend(_rows(rows))
    return "".join(parts)


def _rows(rows: Iterable[Row]) -> Iterator[str]:
    yield "| Directive | Default | Allowed | Changes | |\n|---|---|---|---|---|\n"
    for row in rows:
        changes = "start" if row.immutable else "protected" if row.protected else "running"
        also = "".join(f" Also `{alias}`." for alias in row.aliases)
        default = f"`{row.default_text}`" if row.default_text else "empty"
        yield (
            f"| `{row.name}` | {_cell(default)} | {_cell(row.allowed)} | {changes} | "
            f"{_cell(row.sentence)}{also} |\n"
        )


PAGES = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "formats.md": formats_page,
}
"""File below docs/ and what belongs in it."""


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
