"""The part of `docs/policies.md` that is made from the code: the table of policies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from anabranch.config.policies import POLICIES
from tests.support.servers import REPOSITORY

_PAGE = REPOSITORY / "docs" / "policies.md"
_TABLE = re.compile(r"(?<=<!-- policies begin -->\n).*?(?=<!-- policies end -->)", re.DOTALL)


def policies_page() -> str:
    """The page as it is, with a table that is up to date."""
    table = "".join(_rows())
    page, count = _TABLE.subn(lambda _: table, _PAGE.read_text("utf-8"))
    assert count == 1, "the marks around the table are gone"
    return page


def _rows() -> Iterator[str]:
    yield "| Policy | Values | Default | | Over regions |\n|---|---|---|---|---|\n"
    for name, row in POLICIES.items():
        cells = (f"`{name}`", row.kind.allowed, row.default, row.sentence, row.regions)
        yield f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |\n"
