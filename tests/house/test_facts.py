"""Lists on the pages that the code could outgrow: events, error codes, limits, differences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from anabranch.commands.stream import add as stream_add
from anabranch.commands.stream import pending as stream_pending
from anabranch.config.settings import ROWS
from anabranch.effects import codec
from anabranch.oplog import snapshot
from anabranch.region import turn
from anabranch.resp import limits
from anabranch.server import connection
from anabranch.stream import entry_id
from anabranch.version import __version__
from tests.differential.exceptions import DIFFERENCES
from tests.house.markdown import pages
from tests.support.servers import REPOSITORY

CODE = REPOSITORY / "src" / "anabranch"
_EVENT = re.compile(
    r'(?:announce\(|(?:emit|emit_sparingly|_record|host\.log|self\._log|LOGGER\.log)\(\s*"\w+",)'
    r'\s*"([a-z_]+\.[a-z_]+)"'
)


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(CODE.rglob("*.py")):
        yield path, path.read_text("utf-8")


def test_every_event_of_the_log_is_explained() -> None:
    page = pages()["docs/operations.md"]
    events = {event for _, text in modules() for event in _EVENT.findall(text)}
    assert len(events) > 10
    assert [event for event in sorted(events) if f"`{event}`" not in page] == []
    explained = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", page.partition("| Event |")[2]))
    assert explained - events == set(), "explained, but never logged"


def first_words(text: str) -> Iterator[str]:
    """The first words of what is raised as a CommandError, constants looked up in the module."""
    if "CommandError(" not in text and "RequestRefused(" not in text:  # parsing takes long
        return
    tree = ast.parse(text)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id not in {"CommandError", "RequestRefused"}:
                continue
            value: ast.expr = node.args[0]
            if isinstance(value, ast.Name):
                value = constants.get(value.id, value)
            while isinstance(value, ast.BinOp):
                value = value.left
            if isinstance(value, ast.JoinedStr):
                value = value.values[0]
            if isinstance(value, ast.Constant) and isinstance(value.value, str | bytes):
                raw = value.value
                yield (raw.decode() if isinstance(raw, bytes) else raw).split(" ")[0]


def test_every_error_code_is_explained() -> None:
    page = pages()["docs/operations.md"].partition("## Errors that clients see")[2]
    codes = {word for _, text in modules() for word in first_words(text)}
    assert {"ERR", "NOGROUP", "EXECABORT"} <= codes
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []


def test_the_limits_are_what_the_page_says() -> None:
    page = pages()["docs/limits.md"]
    assert limits.INLINE_MAX == 64 * 1024
    assert f"{limits.AUTHENTICATED.arguments_max:,}" in page
    assert f"{limits.UNAUTHENTICATED.bulk_bytes_max:,}" in page
    assert limits.UNAUTHENTICATED.arguments_max == 10
    assert f"{connection.BACKLOG_MAX:,}" in page
    assert stream_add.ENTRY_BYTES_MAX == 1 << 30
    assert f"{codec.SENT_IDS_MAX:,}" in page
    assert codec.SENT_ARGUMENT_BYTES_MAX == turn.BATCH_BYTES_MAX == 32 << 20
    assert codec.BODY_BYTES_MAX == (4 << 30) - (4 << 10)
    assert snapshot.RECORD_BYTES_MAX == (4 << 30) - 1
    assert stream_pending.AUTOCLAIM_COUNT_MAX == 1 << 40
    assert entry_id.text(entry_id.MAX_ID).decode() in page
    for name in re.findall(r"\[`([a-z-]+)`", page):
        assert name in ROWS, name


def test_every_listed_difference_is_on_the_page() -> None:
    page = pages()["docs/compatibility.md"]
    listed = {difference.name for difference in DIFFERENCES}
    shown = set(re.findall(r"`([a-z0-9-]+)`", page.partition("| Name |")[2]))
    assert listed - shown == set()
    assert {name for name in shown - listed if "-" in name and not name.startswith("ms-")} == set()


def test_the_version_is_the_same_everywhere() -> None:
    log = pages()["CHANGELOG.md"]
    versions = re.findall(r"^## \[(.+?)\]", log, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1] == __version__
    dockerfile = (REPOSITORY / "docker" / "Dockerfile").read_text("utf-8")
    assert f"ARG VERSION={__version__}\n" in dockerfile
