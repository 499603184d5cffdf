"""Install packages of Debian for the tests, as root, without an upgrade of what is there.

``python3 -m tests.house.debian PACKAGE...`` installs one package after the other, and leaves out,
with a line that says so, each for which apt would upgrade or remove something else. The tests that
need such a package are skipped and say so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

_CHANGE = re.compile(r"^(?:Inst (\S+) \[|Remv (\S+))", re.MULTILINE)
"""apt names the installed version in brackets if it would be replaced."""

_INSTALL = ("apt-get", "install", "--yes", "-qq", "--no-install-recommends")


def changed(simulation: str) -> list[str]:
    """The installed packages that a simulated installation would upgrade or remove."""
    return [upgraded or removed for upgraded, removed in _CHANGE.findall(simulation)]


def is_installed(package: str) -> bool:
    """Whether dpkg knows it as installed."""
    done = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout == "installed"


def install(package: str) -> str | None:
    """Install it; returns why not."""
    simulated = subprocess.run(
        [*_INSTALL, "--simulate", package], capture_output=True, text=True, check=False
    )
    if simulated.returncode:
        return simulated.stderr.strip().replace("\n", " ")
    if others := changed(simulated.stdout):
        return f"it would change {', '.join(others)}, which are installed"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run([*_INSTALL, package], env=environment, check=False)
    return f"apt-get ended with {done.returncode}" if done.returncode else None


def main(packages: list[str]) -> int:
    """Install what is missing; always 0, because the tests can do without."""
    missing = [each for each in packages if not is_installed(each)]
    if not missing:
        return 0
    sys.stderr.write(f"installing packages of Debian for the tests: {' '.join(missing)}\n")
    subprocess.run(["apt-get", "update", "-qq"], check=False)
    for package in missing:
        if reason := install(package):
            sys.stderr.write(f"{package} is left out, its tests are skipped: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
