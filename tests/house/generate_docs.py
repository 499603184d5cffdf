"""`docs/commands.md`, `settings.md`, `clients.md`, and tables of other pages, made from code.

`python -m tests.house.generate_docs` writes them; `test_generated_docs.py` says when that has
been forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.commands.table import COMMANDS
from anabranch.config.kinds import Directive
from anabranch.config.settings import GROUPS, ROWS
from anabranch.engine.absent import ABSENT
from anabranch.engine.spec import Command
from tests.house.clients import clients_page
from tests.house.formats import formats_page
from tests.house.policies import policies_page
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

_SMALL = "Small values beside streams. With several regions writes to them are refused."
_GROUP_NOTES = {
    "string": _SMALL,
    "list": _SMALL,
    "set": _SMALL,
    "scripting": "Scripts need `pip install 'anabranch[lua]'`; see [scripting.md](scripting.md).",
    "cluster": "There is no cluster mode. These commands answer the error that clients expect.",
}


def commands_page() -> str:
    """Every command and sub-command of the table."""
    parts = [
        _NOTICE.format(source="the command table (`src/anabranch/commands/table/`)"),
        "# Commands\n\n",
        "After this page you know every command of this server. Replies follow Redis 8.10;\n"
        "differences are in [compatibility.md](compatibility.md). *Since* is the Redis version\n"
        "that introduced the command (XIDMP and `AB.*` exist only here). `COMMAND INFO` and\n"
        "`COMMAND DOCS` return the same facts.\n\n",
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
    parts += _absent()
    return "".join(parts)


def _absent() -> Iterator[str]:
    """What Redis has and this server does not."""
    yield (
        "\n## Not here\n\n"
        "These commands of Redis do not exist here. The error begins with the words of Redis, and\n"
        "then names this page. [clients.md](clients.md#what-does-not-work) says which libraries\n"
        "need these commands.\n\n"
        "| For | Commands |\n|---|---|\n"
    )
    families: dict[str, list[str]] = {}
    for name, family in ABSENT.items():
        families.setdefault(family, []).append(name.upper())
    for family, names in families.items():
        yield f"| {family or 'other uses'} | {', '.join(sorted(names))} |\n"


def _title(command: Command) -> str:
    return command.full_name.replace("|", " ").upper()


def _anchor(heading: str) -> str:
    return heading.lower().replace(".", "").replace(" ", "-")


def _link(command: Command) -> str:
    return f"[{_title(command)}](#{_anchor(_title(command))})"


def _command(command: Command) -> str:
    lines = [f"\n### {_title(command)}\n\n"]
    if not command.is_container:
        lines.append(f"    {f'{_title(command)} {command.syntax}'.rstrip()}\n\n")
    lines.append(f"{command.summary}\n\n")
    facts = [f"Since {command.since}"]
    if command.complexity and not command.is_container:
        facts.append(f"cost: {command.complexity.rstrip('.')}")
    if command.flags:
        facts.append(f"flags: {' '.join(sorted(command.flags))}")
    if command.categories:
        facts.append("ACL: " + " ".join(f"@{word}" for word in sorted(command.categories)))
    lines.append(f"*{'; '.join(facts)}.*\n")
    if command.history:
        lines.append("\n")
        lines.extend(f"- {version}: {change}\n" for version, change in command.history)
    if command.subcommands:
        lines.append("\n| Sub-command | | Since | ACL |\n|---|---|---|---|\n")
        for _, sub in sorted(command.subcommands.items()):
            form = f"{_title(sub)} {sub.syntax}".rstrip()
            acl = " ".join(f"@{word}" for word in sorted(sub.categories))
            lines.append(f"| `{_cell(form)}` | {_cell(sub.summary)} | {sub.since} | {acl} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def settings_page() -> str:
    """Every directive of the settings table."""
    parts = [
        _NOTICE.format(source="the settings table (`src/anabranch/config/settings.py`)"),
        "# Settings\n\n",
        "After this page you can set every directive, and know what it allows.\n\n"
        "Each directive may be in a configuration file, in the environment (`timeout` as\n"
        "`ANABRANCH_TIMEOUT`, dashes as underscores) and on the command line (`--timeout 60`; a\n"
        "switch needs no value there: `--cluster-create`).\n"
        "Default < file < environment < command line < `CONFIG SET`.\n"
        "[operations.md](operations.md) describes a start with directives; `anabranch config`\n"
        "prints the settings in force and their sources.\n\n"
        "*Changes*: `running` by `CONFIG SET` at any time; `start` only before the start;\n"
        "`protected` by `CONFIG SET` if `enable-protected-configs` allows it.\n",
    ]
    for group, heading in GROUPS.items():
        rows = [row for row in ROWS.values() if row.group == group]
        parts.append(f"\n## {heading}\n\n")
        parts.extend(_rows(rows))
    return "".join(parts)


def _rows(rows: Iterable[Directive]) -> Iterator[str]:
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
    "clients.md": clients_page,
    "commands.md": commands_page,
    "settings.md": settings_page,
    "formats.md": formats_page,
    "policies.md": policies_page,
}
"""File below docs/ and what belongs in it."""


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
