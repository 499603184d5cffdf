"""A Spark session that works after ``pip install``, with Java and the data source.

Each default here has a reason. An argument or an environment variable of the user overrides it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.spark.runtime.java import current_java_home, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
# Of a session, wherever its driver runs.
_ALWAYS: Final = {"spark.sql.session.timeZone": "UTC"}
# Of a driver that is started here.
_DRIVER: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own way to write a checkpoint starts a process, chmod, four times in every batch.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
# For a few cores; a cluster has its own setting.
_LOCAL: Final = {"spark.sql.shuffle.partitions": "4"}


class ConnectMissing(AnabranchError):
    """A package for Spark Connect is missing; the text says how to install it."""


def session(
    name: str = "anabranch", master: str = "local[2,4]", conf: Mapping[str, object] | None = None
) -> SparkSession:
    """The running session, or a new one, that knows ``format("anabranch")``.

    `master`: ``local[cores,failures]``, ``spark://host:port``, or ``sc://host:port`` for Spark
    Connect, whose driver is elsewhere: no Java is needed here then. Local masters need a number of
    failures greater than one, or no task is ever tried again. `conf`: settings by their Spark
    names. Call it in each thread that writes. Raises `JavaMissing`,
    `ConnectMissing`.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    from anabranch.spark.source import AnabranchSource  # noqa: PLC0415 - heavy

    # PySpark logs each failed analysis as one line of JSON; the exception says the same, readably.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    given = {key: str(value) for key, value in (conf or {}).items()}
    builder = SparkSession.builder.appName(name)
    if master.startswith("sc://"):
        builder, settings = builder.remote(master), {**_ALWAYS, **given}
        settings.pop(_JAVA_OPTIONS, None)
    else:
        local = master.startswith("local")
        _prepare_environment(current_java_home(), local=local)
        builder, settings = builder.master(master), _settings(given, local=local)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = _made(builder)
    spark.dataSource.register(AnabranchSource)
    # In a thread without a session of its own Spark writes to built-in formats only.
    if spark.getActiveSession() is None:
        spark.createDataFrame([], "nothing int")  # which makes it the session of the thread
    return spark


def _made(builder: SparkSession.Builder) -> SparkSession:
    from pyspark.errors import PySparkImportError  # noqa: PLC0415 - heavy

    with warnings.catch_warnings():
        # Clients of Connect import pandas, and warn of new versions; nothing here goes through it.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        try:
            made: SparkSession = builder.getOrCreate()
        except PySparkImportError as problem:
            raise ConnectMissing(
                f'{problem}. Clients of Spark Connect: pip install "anabranch[spark-connect]"'
            ) from None
    return made


_FOR_ARROW: Final = [
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
    "-XX:G1HeapRegionSize=8m",
]
"""Switch off checks of Arrow: bounds and nulls of every value, which Spark checks before.

Without both Java spends an eighth less on columns that come from Python. Iceberg does the same in
every Spark it is used in. In smaller regions each batch starts a mark of the whole heap by G1.
"""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def _prepare_environment(java_home: Path, *, local: bool) -> None:
    """Variables that the start of Java and of workers depends on."""
    # The Java of the user has precedence, through a wrapper: see `anabranch.spark.runtime.java`.
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
    # Else workers are whatever python3 is on PATH, and this package is not there. Spark gives the
    # workers of a cluster the driver's path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        # A machine whose own name does not resolve cannot start Spark otherwise.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _settings(given: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """What is given, and the defaults of a driver that is started here."""
    settings = {**_ALWAYS, **_DRIVER}
    words = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"]
    if local:
        settings |= _LOCAL
        # Made by Spark when a table is first saved, and not in the current directory.
        warehouse = f"{tempfile.gettempdir()}/spark-warehouse-{os.getpid()}"
        settings["spark.sql.warehouse.dir"] = warehouse
        words += _FOR_ARROW
    options = f"{java_options(words)} {given.get(_JAVA_OPTIONS, '')}".strip()
    return {**settings, **given, _JAVA_OPTIONS: options}


def java_options(words: Iterable[str]) -> str:
    """Arguments of Java as one setting, in the quoting of Spark."""
    return " ".join('"{}"'.format(re.sub(r'(["\\])', r"\\\1", word)) for word in words)
