"""A result as JSON in which each measurement has one line: a difference shows what has changed."""

from __future__ import annotations

import json
from typing import Any


def to_lines(value: dict[str, Any]) -> str:
    """Return an object as JSON: one line for each field, and for each object of a list."""
    fields = [f" {json.dumps(name)}: {_text(item, 2)}" for name, item in value.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _text(value: Any, depth: int) -> str:
    """Return a value; the objects of a list begin a line, and are indented by `depth` spaces."""
    if isinstance(value, dict):
        fields = (f"{json.dumps(name)}: {_text(item, depth)}" for name, item in value.items())
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        lines = [" " * depth + _text(item, depth + 1) for item in value]
        return "[\n" + ",\n".join(lines) + "\n" + " " * (depth - 1) + "]"
    return json.dumps(value)
