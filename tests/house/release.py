"""Whether the repository is ready for the release that a tag names, and its notes.

`python -m tests.house.release v1.2.3` prints the section of the changelog, or says what is missing
and exits with 1. It needs the standard library alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_TAG = re.compile(r"v(\d+\.\d+\.\d+)")
_SECTION = re.compile(
    r"^## \[(?P<version>[^\]]+)\](?: - (?P<when>\S+))?\n(?P<body>.*?)(?=^## \[|\Z)",
    re.MULTILINE | re.DOTALL,
)


class NotReadyError(Exception):
    """What must be done before the release."""


def notes(tag: str, code: str, changelog: str, citation: str, dockerfile: str) -> str:
    """The section of the changelog on a version.

    Raises:
        NotReadyError: a file names another version, or the section has no date.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise NotReadyError(f"{tag} is no tag of a release: v1.2.3")
    version = match[1]
    for name, text, shown in (
        ("src/anabranch/version.py", code, f'__version__ = "{version}"'),
        ("CITATION.cff", citation, f"version: {version}\n"),
        ("docker/Dockerfile", dockerfile, f"ARG VERSION={version}\n"),
    ):
        if shown not in text:
            raise NotReadyError(f"{name} must contain: {shown.strip()}")
    for section in _SECTION.finditer(changelog):
        if section["version"] == version:
            if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", section["when"] or ""):
                raise NotReadyError(f"CHANGELOG.md must have a date: ## [{version}] - YYYY-MM-DD")
            if not section["body"].strip():
                raise NotReadyError(f"CHANGELOG.md says nothing about {version}")
            return section["body"].strip() + "\n"
    raise NotReadyError(f"CHANGELOG.md has no section ## [{version}] - YYYY-MM-DD")


def main(tag: str) -> int:
    """Print the notes; 1 if the repository is not ready."""
    texts = [
        (REPOSITORY / name).read_text("utf-8")
        for name in (
            "src/anabranch/version.py",
            "CHANGELOG.md",
            "CITATION.cff",
            "docker/Dockerfile",
        )
    ]
    try:
        sys.stdout.write(notes(tag, *texts))
    except NotReadyError as reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
