"""A directory that is made for one server or cluster, and deleted with it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path


class OwnDirectory:
    """A new directory; `remove` deletes it, or else the end of this object or of the process.

    A process that was forked from the one that made it deletes nothing.
    """

    def __init__(self) -> None:
        """Make it."""
        self.path = Path(tempfile.mkdtemp(prefix="anabranch-"))
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
