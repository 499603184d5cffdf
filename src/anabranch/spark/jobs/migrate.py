"""Turns a lake of an earlier version, with manifests, into a Delta table in its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from anabranch.spark.lake.files import SCHEMA
from anabranch.spark.lake.table import PARTITIONS, Draft, Lake, LakeError, added

_FORMATS: Final = (1, 2)  # 1 knew neither digests nor replacements


@dataclass(frozen=True, slots=True)
class Migrated:
    """The contents of the lake afterwards."""

    files_before: int
    files: int
    entries: int


def migrate(lake: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Migrated:
    """Turn a lake with manifests into a Delta table, in one commit.

    Checkpoints in the lake go on as they are: the table knows the last batch of every query. It may
    be killed and run again; nothing else may write meanwhile. The old manifests are kept as
    ``_log-migrated``, and the old files until `compact` removes what belongs to no version.
    Raises `LakeError` if a file is not what it was when it was published.
    """
    from deltalake import CommitProperties, Schema, Transaction  # noqa: PLC0415 - an extra
    from deltalake.transaction import create_table_with_add_actions  # noqa: PLC0415

    root = Path(lake).absolute()
    log = root / "_log"
    if not log.is_dir():
        raise LakeError(f"{root} is no lake of an earlier version: it has no directory _log")
    manifests = _manifests(log)
    files = _published(manifests)
    new = Lake(root)
    if not (root / "_delta_log").is_dir():
        drafts: list[Draft] = []
        for number, each in enumerate(files, 1):
            drafts += _rewritten(new, each)
            if progress is not None:
                progress(number, len(files))
        batches: dict[str, int] = {}
        for each in manifests:
            if each["query"]:
                batches[each["query"]] = max(each["batch"], batches.get(each["query"], 0))
        first = manifests[0]
        create_table_with_add_actions(
            str(root),
            Schema.from_arrow(SCHEMA),
            [added(*each) for each in drafts],
            mode="error",
            partition_by=PARTITIONS,
            name="anabranch",
            # Replays know the lake by it.
            description=json.dumps([first["query"], first["batch"], first.get("at_ms", 0)]),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(*each) for each in batches.items()]
            ),
        )
    now = new.files()
    log.rename(root / "_log-migrated")
    return Migrated(len(files), len(now), sum(each.rows for each in now))


def _manifests(log: Path) -> list[dict[str, Any]]:
    """All, oldest first. Raises `LakeError` if one is missing or damaged."""
    found = []
    for number, path in enumerate(sorted(log.glob("[0-9]*.json"))):
        try:
            said = json.loads(path.read_text("utf-8"))
            if said["format"] not in _FORMATS or said["number"] != number:
                raise LakeError(f"{path} is not manifest {number}, or of an unknown format")
        except (ValueError, KeyError, TypeError):
            raise LakeError(f"{path} is damaged") from None
        found.append(said)
    if not found:
        raise LakeError(f"{log} has no manifest")
    return found


def _published(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        for path in manifest.get("supersedes", ()):
            found.pop(path, None)
        found.update((each["path"], each) for each in manifest["files"])
    return list(found.values())


def _rewritten(lake: Lake, file: dict[str, Any]) -> list[Draft]:
    path = lake.root / file["path"]
    try:
        contents = path.read_bytes()
    except OSError as problem:
        raise LakeError(f"{path}: {problem.strerror}") from None
    wanted = file.get("digest")
    if wanted and hashlib.sha256(contents).hexdigest() != wanted:
        raise LakeError(f"{path} is not what it was when it was published")
    table = pq.ParquetFile(path).read()
    if table.num_rows != file["rows"]:
        raise LakeError(f"{path} has {table.num_rows} entries and not {file['rows']}")
    return lake.write(table)
