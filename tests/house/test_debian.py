"""Packages for the tests change nothing of the system that is there."""

from __future__ import annotations

from tests.house.debian import changed

SIMULATION = """\
NOTE: This is only a simulation!
Inst uidmap (1:4.13+dfsg1-1+deb12u2 Debian:12.14/oldstable [amd64]) []
Inst passwd [1:4.13+dfsg1-1+b1] (1:4.13+dfsg1-1+deb12u2 Debian:12.14/oldstable [amd64])
Remv sysvinit-core [3.06-4]
Conf uidmap (1:4.13+dfsg1-1+deb12u2 Debian:12.14/oldstable [amd64])
"""


def test_an_upgrade_and_a_removal_are_changes_and_a_new_package_is_none() -> None:
    assert changed(SIMULATION) == ["passwd", "sysvinit-core"]
    assert changed(SIMULATION.splitlines()[1]) == []
