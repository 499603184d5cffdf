"""A release is refused unless all files agree on it."""

from __future__ import annotations

import pytest

from tests.house import release

CODE = '__version__ = "1.2.3"\n'
LOG = (
    "# Changelog\n\n## [Unreleased]\n\n"
    "## [1.2.3] - 2026-12-01\n\n- New.\n\n## [1.2.2] - 2026-11-01\n\n- Old.\n"
)
CITATION = "title: x\nversion: 1.2.3\n"
DOCKERFILE = "ARG VERSION=1.2.3\n"


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes("v1.2.3", CODE, LOG, CITATION, DOCKERFILE) == "- New.\n"


@pytest.mark.parametrize(
    ("tag", "code", "log", "citation", "dockerfile"),
    [
        ("1.2.3", CODE, LOG, CITATION, DOCKERFILE),
        ("v1.2.4", CODE, LOG, CITATION, DOCKERFILE),
        ("v1.2.3", '__version__ = "1.2.2"\n', LOG, CITATION, DOCKERFILE),
        ("v1.2.3", CODE, LOG.replace("2026-12-01", "unreleased"), CITATION, DOCKERFILE),
        ("v1.2.3", CODE, LOG.replace("- New.", ""), CITATION, DOCKERFILE),
        ("v1.2.3", CODE, LOG.replace("[1.2.3]", "[1.2.5]"), CITATION, DOCKERFILE),
        ("v1.2.3", CODE, LOG, "version: 1.2.2\n", DOCKERFILE),
        ("v1.2.3", CODE, LOG, CITATION, "ARG VERSION=1.2.2\n"),
    ],
)
def test_what_does_not_agree_is_refused(
    tag: str, code: str, log: str, citation: str, dockerfile: str
) -> None:
    with pytest.raises(release.NotReadyError):
        release.notes(tag, code, log, citation, dockerfile)


def test_the_version_that_is_under_way_is_not_released_by_mistake(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert release.main("v0.0.0") == 1
    assert "version.py must contain" in capsys.readouterr().err
