"""``python -m tests.recorded.directories FOLDER``: write the directories of today's server."""

from __future__ import annotations

import json
import sys

from tests.recorded.directories import KEPT, make

folder = KEPT / sys.argv[1]
folder.mkdir()
(folder / "answers.json").write_text(json.dumps(make(folder), indent=1) + "\n", "utf-8")
