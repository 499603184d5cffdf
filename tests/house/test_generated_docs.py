"""The pages made from tables are current and complete."""

from __future__ import annotations

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import ALIASES, ROWS
from tests.house.generate_docs import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    written = (DOCS / name).read_text("utf-8")
    assert written == PAGES[name](), "run: python -m tests.house.generate_docs"


def test_every_command_and_sub_command_is_on_its_page() -> None:
    page = (DOCS / "commands.md").read_text("utf-8")
    for command in COMMANDS:
        assert f"### {command.name.upper()}\n" in page
        assert command.summary in page, f"{command.name} has no summary"
        for sub in command.subcommands.values():
            assert f"| `{command.name} {sub.name}".upper() in page.upper()


def test_every_directive_is_on_its_page() -> None:
    page = (DOCS / "settings.md").read_text("utf-8")
    for name in (*ROWS, *ALIASES):
        assert f"`{name}`" in page
    assert all(row.sentence for row in ROWS.values())
