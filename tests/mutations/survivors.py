"""Mutations that no test can notice, because nothing changes that anybody may rely on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("equivalent.tsv")


def reasons() -> dict[str, str]:
    """From the name of a mutation to the reason why it is equivalent."""
    found = {}
    for line in LIST.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split("\t")
            found[name] = reason
    return found
