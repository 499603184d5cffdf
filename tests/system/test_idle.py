"""What an idle server has imported: names, so that the test says the same on each machine."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

NOT_NEEDED = """
    click difflib gettext rich tempfile shutil
    email http.client http.server urllib.request zipfile importlib.metadata argparse pickle
    multiprocessing xml unittest pydoc pdb
    uvicorn starlette lupa greenlet redis pyspark pyarrow
    anabranch.cli.serve anabranch.web.application anabranch.scripting.machine anabranch.simulator
    anabranch.testing anabranch.spark
    anabranch.commands.acl anabranch.commands.extensions anabranch.commands.list
    anabranch.commands.scripting anabranch.commands.set anabranch.commands.server.debug
    anabranch.commands.server.info anabranch.commands.server.catalogue
    anabranch.rdb anabranch.stream.image_conversion
    anabranch.server.region_links anabranch.server.gossip
    anabranch.node.exchange anabranch.replication.replicator anabranch.replication.sealing
    anabranch.oplog.repair anabranch.oplog.inspection
""".split()
"""Modules, and packages with all that they contain."""

_IMPORTED = re.compile(r"^import '?([\w.]+)'? #", re.MULTILINE)


def test_the_names_are_those_of_modules() -> None:
    ours = [name for name in NOT_NEEDED if name.startswith("anabranch")]
    assert [name for name in ours if find_spec(name) is None] == []


def test_an_idle_server_has_imported_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    path, imports = tmp_path / "socket", tmp_path / "imports"
    words = ["--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path)]
    with imports.open("w") as errors, subprocess.Popen(
        [sys.executable, "-v", "-m", "anabranch", "serve", *words],
        stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            assert any("server.ready" in line for line in server.stdout)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(b"PING\r\n")
                assert client.recv(16) == b"+PONG\r\n"
        finally:
            server.send_signal(signal.SIGKILL)
    imported = set(_IMPORTED.findall(imports.read_text()))
    assert "anabranch.server.app" in imported, "the list of imports is there"
    assert [
        name
        for name in sorted(imported)
        if any(name == each or name.startswith(f"{each}.") for each in NOT_NEEDED)
    ] == []
