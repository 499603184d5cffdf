"""This region's certificates: read again when the files change, with a warning before they expire.

A program that renews certificates only has to write new files. Files that cannot be used, half
written ones included, change nothing: connections use the certificates that were read last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.config.settings import Settings
from anabranch.errors import ConfigError
from anabranch.server.tls import RegionTls, files_of

LOOK_EVERY_MS: Final = 1000.0

DAY_S: Final = 86400

WARN_DAYS: Final = (30, 7, 1, 0)
"""A warning is logged when so many days are left."""


class Certificates:
    """The TLS contexts of both sides, from the present files."""

    def __init__(self, settings: Settings, report: Callable[..., None]) -> None:
        """Read the files; ConfigError if they cannot be used. ``report`` logs an event."""
        self._settings = settings
        self._report = report
        self._look_ms = 0.0
        self._files = files_of(settings)
        self._warned: int | None = None  # the last warning, by days left
        self._told = ""
        self.tls = RegionTls(settings)
        self._judge()

    def load(self) -> None:
        """Use the present files; ConfigError if that is impossible, and nothing changes."""
        self._files = files_of(self._settings)
        self.tls = RegionTls(self._settings)
        self._warned = None
        self._told = ""
        self._judge()

    def check_files(self, now_ms: float, wall_s: float) -> bool:
        """Check the files if it is time; returns whether other certificates are used now."""
        if now_ms < self._look_ms:
            return False
        self._look_ms = now_ms + LOOK_EVERY_MS
        self._warn(wall_s)
        files = files_of(self._settings)
        if files == self._files:
            return False
        self._files = files
        try:
            self.load()
        except ConfigError as problem:
            self._report("certificate_refused", reason=str(problem))
            return False
        self._report("certificate_renewed", expires=self.tls.expires)
        self._warn(wall_s)
        return True

    def _judge(self) -> None:
        """Report if a region with the same settings would not accept the certificate."""
        fault = self.tls.fault()
        if fault and fault != self._told:
            self._told = fault
            self._report("certificate_bad", reason=fault)

    def _warn(self, wall_s: float) -> None:
        expires = self.tls.expires
        if expires is None:
            return
        days = (expires - wall_s) / DAY_S
        due = [each for each in WARN_DAYS if days <= each]
        if due and min(due) != self._warned:
            self._warned = min(due)
            self._report("certificate_expires", days=max(0, int(days)), expired=days <= 0)
