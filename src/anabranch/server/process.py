"""Facts about and acts on the operating system's process: memory, CPU, limits, PID file, systemd.

``process_facts`` is what INFO shows; the rest is called once at start or stop.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from anabranch.errors import ConfigError
from anabranch.oplog.manifest import MANIFEST
from anabranch.server.admission import FILES_MIN, SPARE_FILES, spare_files
from anabranch.version import IS_COMPILED, __version__

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def is_compiled() -> bool:
    """Whether the core runs as machine code rather than interpreted."""
    return IS_COMPILED


def interpreted_note() -> str | None:
    """Say what an interpreted server costs and how to get the compiled one; None if compiled."""
    if is_compiled():
        return None
    cost = "the server runs interpreted and takes two to three times the processor time"
    if Path(__file__).parents[2].name == "src":
        return f"{cost}: an editable installation is for development (make run is compiled)"
    return (
        f"{cost}: install a C compiler and the headers of Python (Debian, Ubuntu: apt-get install "
        "gcc libc6-dev python3-dev), then install Anabranch again"
    )


def memory_bytes() -> int:
    """The memory of the machine, or of the control group of this process if that is less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", path).read_text("ascii")))
    return min(limits)


def rss_bytes() -> int:
    """The present resident memory of the process."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return peak_rss_bytes()


def peak_rss_bytes() -> int:
    """The greatest resident memory so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def process_facts() -> dict[str, Any]:
    """Facts that do not depend on the settings; see ``Host.process_info``."""
    mine = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Where threads are not told apart, the figure of the process is the nearest one.
    thread = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    system = platform.uname()
    return {
        "pid": os.getpid(),
        "version": __version__,
        "python_version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gcc_version": _gcc_version(platform.python_compiler()),
        "compiled": is_compiled(),
        "executable": sys.executable,
        "os": f"{system.system} {system.release} {system.machine}",
        "arch_bits": 64 if sys.maxsize > 1 << 32 else 32,
        "rss_bytes": rss_bytes(),
        "peak_rss_bytes": peak_rss_bytes(),
        "total_system_memory": os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES,
        "cpu_user": mine.ru_utime,
        "cpu_sys": mine.ru_stime,
        "cpu_user_main_thread": thread.ru_utime,
        "cpu_sys_main_thread": thread.ru_stime,
        "cpu_user_children": children.ru_utime,
        "cpu_sys_children": children.ru_stime,
    }


def _gcc_version(compiler: str) -> str:
    """The version in the name of a compiler; as in Redis 0.0.0 if it is not GCC."""
    name, _, version = compiler.partition(" ")
    return version.split()[0] if name == "GCC" and version else "0.0.0"


def volume_facts(directory: str) -> dict[str, int]:
    """Size and room of the volume of a directory; nothing if it cannot be told."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return {}
    return {
        "volume_bytes": found.f_blocks * found.f_frsize,
        "volume_free_bytes": found.f_bavail * found.f_frsize,
    }


def raise_file_limit(clients: int) -> int:
    """Allow as many open files as ``clients`` need; returns how many clients fit.

    Raises :class:`ConfigError` if the system allows too few for any client.
    """
    wanted = clients + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return clients
    for soft_new, hard_new in (
        (wanted, hard if hard == resource.RLIM_INFINITY else max(hard, wanted)),
        (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard),
    ):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft_new, hard_new))
        except (OSError, ValueError):
            continue
        soft = soft_new
        break
    if soft < FILES_MIN:
        raise ConfigError(
            f"the system allows this process {soft} open files, and it needs at least "
            f"{FILES_MIN}; raise the limit (ulimit -n, or LimitNOFILE of systemd)"
        )
    return min(clients, soft - spare_files(soft))


def enter_directory(path: str) -> None:
    """Make ``dir`` the working directory; it must exist and be writable."""
    try:
        os.chdir(path)
    except OSError as problem:
        advice = "create it or set dir" if isinstance(problem, FileNotFoundError) else "set dir"
        raise ConfigError(f"cannot use dir '{path}': {problem.strerror}; {advice}") from None
    if not os.access(".", os.W_OK):
        uid = os.getuid()
        raise ConfigError(
            f"dir '{Path.cwd()}' is not writable for user {uid}; "
            f"run 'chown {uid} {Path.cwd()}' or set dir"
        )


def files_of_redis(appenddirname: str) -> list[str]:
    """The working directory's files that Redis would load; none if this server has kept data here.

    This server reads none of them.
    """
    own = Path(appenddirname)
    if (own / MANIFEST).exists():
        return []
    return sorted(str(path) for path in (*Path().glob("*.rdb"), *own.glob("*.aof.manifest")))


def write_pid_file(path: str) -> None:
    """Write the process ID into a file."""
    try:
        Path(path).write_text(f"{os.getpid()}\n", "ascii")
    except OSError as problem:
        raise ConfigError(f"cannot write pidfile '{path}': {problem.strerror}") from None


def remove_pid_file(path: str) -> None:
    """Remove the file if it has the ID of this process: a second start may have been refused."""
    with suppress(OSError):
        if path and Path(path).read_text("ascii", "replace").strip() == str(os.getpid()):
            Path(path).unlink()


def is_supervised(supervised: str, environment: Mapping[str, str]) -> bool:
    """Whether systemd supervises this process, and the setting ``supervised`` wants that."""
    return supervised in {"systemd", "auto"} and bool(environment.get("NOTIFY_SOCKET"))


def notify_systemd(supervised: str, state: str, environment: Mapping[str, str]) -> bool:
    """Notify systemd if it supervises this process; returns whether it does."""
    if not is_supervised(supervised, environment):
        return False
    path = environment["NOTIFY_SOCKET"]
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.connect(address)
            notify.sendall(state.encode())
    except OSError:
        return False
    return True
