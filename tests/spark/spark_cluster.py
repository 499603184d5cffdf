"""Spark beyond one process: a master with workers, and a server for Spark Connect.

All of them come from the PySpark package and are started as its scripts do. They share neither
directory nor environment with the tests: each has a working directory of its own, and Python finds
a copy of the package there, but no tests.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from anabranch.spark.runtime.java import find_java, java_home, spark_home
from tests.spark.class_archive import QUICK
from tests.spark.processes import kill_session
from tests.support.servers import REPOSITORY

_READY_SECONDS = 300.0  # a busy machine takes its time to start several Java processes
_LOOK_SECONDS = 0.02

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkProcess:
    """A process of Spark, with whatever it starts itself: executors, and their Python workers."""

    def __init__(self, name: str, place: Path, words: list[str], env: Mapping[str, str]) -> None:
        """Start; `place` becomes its working directory and home."""
        place.mkdir(parents=True)
        self.name = name
        self.place = place
        self.log = place / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place,
                env={**env, "HOME": str(place)},
                start_new_session=True,
            )

    def says(self, pattern: str) -> re.Match[str]:
        """The first match in its log, as soon as there is one."""
        deadline = time.monotonic() + _READY_SECONDS
        while (found := re.search(pattern, self.log.read_text(errors="replace"))) is None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
            assert self._process.poll() is None, f"{self.name} ended\n{tail}"
            assert time.monotonic() < deadline, f"{self.name} never said {pattern!r}\n{tail}"
            time.sleep(_LOOK_SECONDS)
        return found

    def kill(self) -> None:
        """End it and everything it started with SIGKILL, and see that all are gone."""
        kill_session(self._process.pid)
        self._process.wait()


class SparkCluster:
    """Processes of Spark that end with the ``with``."""

    def __init__(self, directory: Path) -> None:
        """Nothing runs yet; `directory` has room for all of them."""
        self._directory = directory
        self._processes: list[SparkProcess] = []
        self.site = directory / "site"
        self.site.mkdir(parents=True)
        for package in ("anabranch", "pyspark_anabranch"):
            shutil.copytree(
                REPOSITORY / "src" / package,
                self.site / package,
                ignore=shutil.ignore_patterns("__pycache__"),
            )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all processes."""
        for each in reversed(self._processes):
            each.kill()

    @cached_property
    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java_home(find_java())),
            "SPARK_HOME": str(spark_home()),
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LAUNCHER_OPTS": QUICK,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(self.site),
        }

    def _start(self, name: str, host: str, *words: str, memory: str = "256m") -> SparkProcess:
        name = f"{name} {len(self._processes)}"  # paths with a space are paths too
        process = SparkProcess(
            name,
            self._directory / name,
            [str(spark_home() / "bin" / words[0]), *words[1:]],
            {**self._environment, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": memory},
        )
        self._processes.append(process)
        return process

    # ------------------------------------------------------------------------------ its parts

    def master(self) -> str:
        """Start a master; its address."""
        host = "127.0.0.1"
        words = ("--host", host, "--port", "0", "--webui-port", "0")
        process = self._start("master", host, "spark-class", MASTER, *words)
        return process.says(r"Starting Spark master at (spark://[\d.]+:\d+)")[1]

    def worker(self, master: str, host: str) -> SparkProcess:
        """Start a worker with one core. Spark never tries a task twice on a host at a time, so
        workers are given different ones: any address 127.x.x.x is this machine."""
        words = ("--host", host, "--port", "0", "--webui-port", "0", "--cores", "1")
        words = (*words, "--memory", "700m", "--work-dir", "jobs", master)
        return self._start("worker", host, "spark-class", WORKER, *words)

    def connect(self) -> str:
        """Start a server for Spark Connect, with executors of its own; its address."""
        host = "127.0.0.1"
        settings = {
            "spark.connect.grpc.binding.address": host,
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.enabled": "false",
        }
        given = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
        submit = ("spark-submit", "--class", CONNECT, "--master", "local[2,4]")
        process = self._start("connect", host, *submit, *given, "spark-internal", memory="700m")
        return "sc://" + process.says(r"Connect server started at: ([\d.]+:\d+)")[1]

    # ----------------------------------------------------------------------------- its drivers

    def driver(
        self, place: Path, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start ``tests.spark.cluster_job`` in a directory of its own, with these arguments."""
        place.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.cluster_job", *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(place),
                "PYTHONPATH": os.pathsep.join((str(self.site), str(REPOSITORY))),
                "SPARK_LOCAL_IP": "127.0.0.1",
                **(environment or {}),
            },
            cwd=place,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


@contextlib.contextmanager
def ended(driver: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The driver, which is killed with its Java if it still runs at the end."""
    try:
        yield driver
    finally:
        kill_session(driver.pid)
        driver.communicate()
