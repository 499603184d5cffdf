"""Which region a directory belongs to: noted beside its log, so that a restart needs no more.

Number and name of a region, and the port where others find it, stay what they were when the
directory was first used. A start that names others is refused: the log of one region, taken for
that of another, would be taken for that by all.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.config.settings import ROWS
from anabranch.errors import ConfigError
from anabranch.oplog.errors import LogError
from anabranch.server.disk import Directory

if TYPE_CHECKING:
    from anabranch.config.load import Loaded
    from anabranch.oplog.storage import Storage

__all__ = ["recall", "remember"]

_FILE: Final = "region"
_DIRECTIVES: Final = ("region-id", "region-name", "gossip-port")


def recall(loaded: Loaded) -> None:
    """Complete the settings with what was noted.

    Raises :class:`ConfigError` if the settings name another region, or :class:`LogError` if the
    note cannot be read.
    """
    settings = loaded.settings
    storage = Directory(Path(settings.dir) / settings.appenddirname)
    try:
        noted = _read(storage)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as problem:
        raise LogError(
            f"cannot read {storage.shown(_FILE)}: {problem}. Nothing was changed; it notes which "
            "region this is: remove it, and give --region-id, --region-name and --gossip-port"
        ) from None
    for name in _DIRECTIVES:
        value = noted[name]
        if name in loaded.sources and settings.value(name) != value:
            raise ConfigError(
                f"{storage.path} belongs to the region with {name} {value}, and {name} "
                f"{settings.value(name)} was given ({loaded.source(name)}). Leave it out, or give "
                f"another --dir; to change it on purpose, do so in {storage.shown(_FILE)}"
            )
        setattr(settings, ROWS[name].attribute, value)


def remember(storage: Storage, region: int, name: str, gossip_port: int) -> None:
    """Note it, if it is not. Raises :class:`OSError`."""
    if _FILE in storage.names():
        return
    noted = dict(zip(_DIRECTIVES, (region, name, gossip_port), strict=True))
    file = storage.create(_FILE + ".new")
    try:
        file.write(json.dumps(noted).encode() + b"\n")
        file.sync()
    finally:
        file.close()
    storage.rename(_FILE + ".new", _FILE)
    storage.sync()


def _read(storage: Storage) -> dict[str, int | str]:
    """Raises :class:`OSError`, or :class:`ValueError` if it is not what we write."""
    with closing(storage.open(_FILE)) as file:
        noted = json.loads(file.read())
    if not isinstance(noted, dict) or noted.keys() != set(_DIRECTIVES):
        raise ValueError("not the note of a region")
    return {name: ROWS[name].parse([str(noted[name])]) for name in _DIRECTIVES}
