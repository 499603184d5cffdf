"""A description of the machine, so that figures from elsewhere can be judged."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters of the hardware and the software under the benchmark."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    hiredis: str
    load_average: float
    """Over the last minute, before the run: well above 0 means that others were at work too."""


def describe() -> Machine:
    """Describe this machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 0,
        memory_gib=round(pages / 2**30, 1),
        system=f"{distribution}, {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        hiredis=version("hiredis"),
        load_average=round(os.getloadavg()[0], 2),
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"
