"""The pages of the documentation site, collected in one folder for the site's builder.

The repository's pages link to each other across folders, and builders accept one folder only. So
`make docs` copies every page, and every file that a page links to, to `build/pages` under its path
in the repository: links stay as they are. `python -m tests.house.site` is the first half of
`make docs`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from tests.house.markdown import links, pages, path_of
from tests.support.servers import REPOSITORY

PAGES = REPOSITORY / "build" / "pages"
CONFIGURATION = REPOSITORY / "mkdocs.yml"
STYLE = Path("docs") / "pictures" / "site.css"


def files() -> list[Path]:
    """Paths in the repository of all pages, and of what they link to."""
    found = {Path(name) for name in pages()} | {STYLE}
    for name, text in pages().items():
        for target in links(text):
            file = unquote(target.partition("#")[0])
            if file and not re.match(r"[a-z]+:", file):
                found.add((path_of(name).parent / file).resolve().relative_to(REPOSITORY))
    return sorted(found)


def collect(folder: Path) -> None:
    """Copy the files; what the folder contained before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / file, folder / file)


if __name__ == "__main__":
    collect(PAGES)
