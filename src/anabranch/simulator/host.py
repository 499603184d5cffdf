"""The host of a simulated region: random numbers from a seed, and no log."""

from __future__ import annotations

import random

from anabranch.engine.host import HostPersistence, HostRegions
from anabranch.engine.script_machine import ScriptMachine
from anabranch.engine.session import Session


class SimulatedHost:
    """What commands need of a simulated process. A mistake of a command ends the run."""

    def __init__(self, chance: random.Random) -> None:
        self.persistence: HostPersistence
        self.regions: HostRegions | None = None
        self._chance = chance

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes (ACL GENPASS, run IDs)."""
        return self._chance.randbytes(count)

    def random_below(self, bound: int) -> int:
        """A uniform choice (RANDOMKEY)."""
        return self._chance.randrange(bound)

    def script_machine(self) -> ScriptMachine:
        """Simulated clients send no scripts."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """Time does not pass within an event."""

    def log(self, level: str, event: str, **fields: object) -> None:
        """Write an operator's log line."""
        mistake = fields.get("exc")
        if isinstance(mistake, Exception):
            raise mistake

    def close(self, session: Session) -> None:
        """Close a connection once its outbox is written."""
        session.closing = True

    def shutdown(self, *, save: bool | None, now: bool, force: bool) -> None:
        """Processes end when a fault ends them."""

    def process_info(self) -> dict[str, object]:
        """Facts for INFO: pid, memory, CPU times, versions, paths (see server/process.py)."""
        return {}

    def give_back_memory(self) -> None:
        """There is no process of its own."""

    def rewrite_config(self, users: list[list[bytes]]) -> None:
        """Do nothing: a simulated process has no configuration file."""

    def read_acl_file(self) -> str:
        """Nothing: a simulated process has no ACL file."""
        return ""

    def write_acl_file(self, text: str) -> None:
        """Do nothing: a simulated process has no ACL file."""

    def apply_setting(self, name: str) -> None:
        """Nothing outside the core has settings."""
