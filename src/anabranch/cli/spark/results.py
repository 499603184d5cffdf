"""The one form of all results: a line for each finding, group or part, then one for each figure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import Any


def tell(result: Any, *, began: float, as_json: bool) -> None:
    """Print a result, and how long the job took; `began` is of the monotonic clock."""
    if as_json:
        print(json.dumps(asdict(result)), flush=True)
        return
    figures = (f"{name}: {value}" for name, value in figures_of(result))
    print(
        *lines_of(result), *figures, f"took: {time.monotonic() - began:.1f} s", sep="\n", flush=True
    )


def lines_of(result: Any) -> list[str]:
    """What a result lists: its parts and its findings, each in a line."""
    found = [value for _, value in _named(result) if _is_list(value)]
    lines = list(dict.fromkeys(str(each) for some in found for each in some))
    return lines + [str(each) for each in findings_of(result) if str(each) not in lines]


def findings_of(result: Any) -> tuple[Any, ...]:
    """What makes the exit code 1."""
    return tuple(getattr(result, "findings", ()))


def figures_of(result: Any) -> Iterator[tuple[str, str]]:
    """Name and value of everything else."""
    for name, value in _named(result):
        if _is_list(value):
            yield name, str(len(value))
        elif isinstance(value, tuple):
            yield name, ", ".join(map(_figure, value)) or "none"
        else:
            yield name, _figure(value)


def _named(result: Any) -> Iterator[tuple[str, Any]]:
    for each in fields(result):
        yield each.name.replace("nbytes", "bytes").replace("_", " "), getattr(result, each.name)


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and is_dataclass(value[0])


def _figure(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "not known" if value is None else str(value)
