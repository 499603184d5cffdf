"""Ctrl-C while a command starts."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PRESS = """
import os, signal, sys
from anabranch.cli.main import main

class Press:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["anabranch", "serve", "--port", "0", "--save", "", "--appendonly", "no"]
sys.meta_path.insert(0, Press())
main()
"""


@pytest.mark.parametrize("module", ["anabranch.cli.starting", "anabranch.server.app"])
def test_ctrl_c_in_the_imports_of_a_start_ends_it_without_a_word(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRESS.format(module=module)],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""
