"""Whether each version of constraints.txt can be installed on the oldest Python.

``python -m tests.house.pins`` asks the package index what each pinned file requires; it needs
nothing but Python. It exits with 1, and names the pins, if one of them has no file for the oldest
supported Python on one of the supported platforms.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
OLDEST = (3, 11, 0)
MACHINES = ("x86_64", "aarch64")
INDEX = "https://pypi.org/simple/{}/"
_JSON = "application/vnd.pypi.simple.v1+json"
_TRIES = 3

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;#]+)")
_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>|~=)\s*(\d+(?:\.\d+)*)(\.\*)?")


def pins(text: str) -> list[tuple[str, str]]:
    """The names and versions that a file of constraints pins."""
    return [match.groups() for match in map(_PIN.match, text.splitlines()) if match]  # type: ignore[misc]


def admits(requires: str | None, python: tuple[int, int, int] = OLDEST) -> bool:
    """Whether a ``requires-python`` admits a Python; ValueError if it cannot be read."""
    for clause in filter(None, map(str.strip, (requires or "").split(","))):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(f"requires-python has {clause!r}")
        sign, number, any_of = match.groups()
        parts = tuple(map(int, number.split(".")))
        here = python[: len(parts)] if any_of else python
        wanted = parts if any_of else (*parts, 0, 0)[:3]
        if not {
            ">=": here >= wanted,
            "<=": here <= wanted,
            ">": here > wanted,
            "<": here < wanted,
            "==": here == wanted,
            "!=": here != wanted,
            "~=": here >= wanted and here[: len(parts) - 1] == wanted[: len(parts) - 1],
        }[sign]:
            return False
    return True


def fits(filename: str, machine: str, python: tuple[int, int, int] = OLDEST) -> bool:
    """Whether a file is a source archive, or a wheel for this Python on Linux."""
    if filename.endswith((".tar.gz", ".zip")):
        return True
    if not filename.endswith(".whl"):
        return False
    tags, abi, platforms = filename.removesuffix(".whl").split("-")[-3:]
    minor = python[1]
    is_ours = (
        "py3" in tags.split(".")
        or f"cp3{minor}" in tags.split(".")
        or (abi == "abi3" and any(f"cp3{each}" in tags.split(".") for each in range(2, minor + 1)))
    )
    return is_ours and (
        platforms == "any"
        or f"linux_{machine}" in platforms
        or ("manylinux" in platforms and machine in platforms)
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def problem(
    pin: tuple[str, str], listing: Callable[[str], Iterable[dict[str, str | None]]]
) -> str | None:
    """Why a pin cannot be installed; None if it can."""
    name, version = pin
    begin = f"{_plain(name)}-{_plain(version)}"
    files = [
        (str(each["filename"]), each.get("requires-python"))
        for each in listing(name)
        if re.match(re.escape(begin) + r"(-|$)", _plain(str(each["filename"]).split(".tar")[0]))
    ]
    if not files:
        return f"{name}=={version}: the package index has no such file"
    for machine in MACHINES:
        if not any(admits(requires) and fits(filename, machine) for filename, requires in files):
            wanted = sorted({str(requires) for _, requires in files})
            oldest = ".".join(map(str, OLDEST))
            return (
                f"{name}=={version}: nothing for Python {oldest} on {machine} "
                f"(requires-python {', '.join(wanted)})"
            )
    return None


def ask(name: str) -> list[dict[str, str | None]]:
    """The files of a project on the package index."""
    request = urllib.request.Request(INDEX.format(_plain(name)), headers={"Accept": _JSON})
    for left in reversed(range(_TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                files: list[dict[str, str | None]] = json.load(reply)["files"]
                return files
        except OSError:
            if not left:
                raise
            time.sleep(1)
    raise AssertionError("unreachable")


def main() -> int:
    """Ask for all of them; the exit code."""
    text = (REPOSITORY / "constraints.txt").read_text("utf-8")
    pinned = pins(text)
    with ThreadPoolExecutor(8) as threads:
        problems = [
            each for each in threads.map(partial(problem, listing=ask), pinned) if each is not None
        ]
    oldest = ".".join(map(str, OLDEST))
    sys.stdout.write(
        "\n".join([*problems, f"{len(pinned)} pins, {len(problems)} not for Python {oldest}\n"])
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
