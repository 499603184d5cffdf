"""A history of what clients asked and were answered, in the JSON that elle-cli reads.

A line is an operation that begins (``invoke``) or ends (``ok``, ``fail``, or ``info`` if nobody
knows). Those with ``"f": "txn"`` are transactions of list-append, as Elle knows them; the others
are for the rules about idempotent messages, groups and ``WAIT``:

- ``send``: ``[stream, message]``, with an idempotent ID;
- ``wait``: ``[stream, value, regions]``, the answer of ``WAIT`` after that value was added;
- ``deliver``, ``recover``: ``[stream, region, [value, ...]]``, new entries for a group, or those
  that a consumer had got before;
- ``final``: ``[region, stream, [value, ...]]`` when all regions have applied the same.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Operation = Mapping[str, Any]


class Recorder:
    """Takes the operations of all clients, from any thread."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._lock = threading.Lock()
        self._processes = itertools.count()

    def new_process(self) -> int:
        """A process ends with an operation of which nobody knows the outcome, as in Jepsen."""
        with self._lock:
            return next(self._processes)

    def note(self, process: int, kind: str, f: str, value: object) -> None:
        """One line."""
        with self._lock:
            self.operations.append({
                "index": len(self.operations), "time": time.monotonic_ns(), "process": process,
                "type": kind, "f": f, "value": value,
            })  # fmt: skip

    def save(self, path: Path) -> None:
        """Write an array with one operation a line."""
        path.write_text("[" + ",\n".join(map(json.dumps, self.operations)) + "]\n", "utf-8")


def load(path: Path) -> list[Operation]:
    """Read what :meth:`Recorder.save` wrote."""
    operations: list[Operation] = json.loads(path.read_text("utf-8"))
    return operations


def pairs(operations: Iterable[Operation]) -> list[tuple[Operation, Operation | None]]:
    """Each operation that began, with its end."""
    begun: dict[int, Operation] = {}
    found: dict[int, tuple[Operation, Operation | None]] = {}
    for each in operations:
        process = each["process"]
        if each["type"] == "invoke":
            begun[process] = each
            found[each["index"]] = (each, None)
        else:
            start = begun.pop(process)
            found[start["index"]] = (start, each)
    return list(found.values())
