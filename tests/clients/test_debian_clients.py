"""Clients for Go, PHP and Ruby from Debian's packages, as programs with many checks each.

`make test` installs the packages on Debian; elsewhere what is missing is skipped with a message.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.clients.conftest import GO_SOURCES, built_with_go, missing
from tests.support.programs import assert_every_check_passes
from tests.support.servers import AnabranchServer

SOURCES = Path(__file__).parent


def require(client: str, program: str, *look: str) -> None:
    """Skip unless the program is here, and finds the client."""
    path = shutil.which(program)
    if path is None or subprocess.run([path, *look], check=False, capture_output=True).returncode:
        missing(f"{client} is not installed: IT IS NOT TRIED", forgiven=True)


def test_redigo_gets_what_it_expects(server: AnabranchServer, tmp_path: Path) -> None:
    program = built_with_go("redigo", "github.com/gomodule/redigo", tmp_path)
    assert_every_check_passes(GO_SOURCES / "redigo.go", [program, str(server.port)], tmp_path)


def test_phpredis_gets_what_it_expects(server: AnabranchServer, tmp_path: Path) -> None:
    require("phpredis", "php", "-r", 'exit(extension_loaded("redis") ? 0 : 1);')
    source = SOURCES / "php" / "phpredis.php"
    assert_every_check_passes(source, ["php", str(source), str(server.port)], tmp_path)


def test_redis_rb_gets_what_it_expects(server: AnabranchServer, tmp_path: Path) -> None:
    require("redis-rb", "ruby", "-e", 'require "redis"')
    source = SOURCES / "ruby" / "redis_rb.rb"
    assert_every_check_passes(source, ["ruby", str(source), str(server.port)], tmp_path)
