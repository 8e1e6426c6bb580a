"""The Spark session of the pipeline: on this machine, on a cluster, or the one that ``spark-submit`` has started.

With few events a run ends before generated and optimized code has paid for itself, so Java and Spark leave it out.
"""

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from mqenterprise.pipeline import java

LOCAL: Final = "local[*]"
DRIVER_MEMORY: Final = "2g"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set in the environment when spark-submit has already started the Java side, with its user's settings."""
_SHUFFLES: Final = "spark.sql.shuffle.partitions"
_ROWS_IN_PART: Final = 100_000
_MOST_PARTS: Final = 10_000
_FEW_ROWS: Final = 250_000
"""With no more, expressions are evaluated before code for them is generated and compiled."""
FEW_EVENTS: Final = 2_000_000
"""With no more, a run ends before code that Java optimizes for it is paid off."""
_ROOT: Final = Path(__file__).parents[2]
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Without these, Arrow's Java side checks every access of every value, after Spark has done so."""
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Otherwise each call that builds a plan asks Java several times where in the program it is.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Lives have an array of hops. Otherwise all events are sorted once a task has met 128 messages.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "16384",
    # Rows that are together already are joined once.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # Otherwise two progress bars would show.
    "spark.ui.showConsoleProgress": "false",
}
_JAVA: Final = f"-Duser.language=en -Dlog4j2.configurationFile={_LOGGING.as_uri()} {_ARROW}"
"""Options of a driver that is started here, with any master."""
_LONG_JAVA: Final = "-XX:+UseParallelGC"
_SHORT_JAVA: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    # Otherwise memory is cleaned up dozens of times before it has grown to what a run needs.
    "-XX:MetaspaceSize=256m -XX:NewRatio=1"
)
_HERE: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Nobody sees the descriptions of plans, of which each run of a plan writes one.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300s",
    # Otherwise the first name in lower case loads tables for all languages.
    "spark.sql.icu.caseMappings.enabled": "false",
    # Segments are opened faster than Spark takes for granted, which then gives most of them to one task.
    "spark.sql.files.openCostInBytes": "524288",
    # One machine: the sources' own partitions are the parallelism, and small plans need no broadcast tricks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


def open_session(
    master: str | None = None,
    *,
    memory: str = DRIVER_MEMORY,
    name: str = "mqenterprise",
    options: Mapping[str, str] | None = None,
    events: int | None = None,
    sources: Sequence[type[DataSource]] | None = None,
) -> SparkSession:
    """Return the session, with these sources registered: by default all, with which other programs read stores,
    segments and the directory, too. All calls in a process return the same session.

    ``master`` is Spark's: None means ``local[*]``, or spark-submit's option. ``memory`` is the driver's, such as
    ``2g``; in local mode the Java side gets no more. ``options`` are Spark's settings by name, and take precedence.
    ``events`` is the number of events to come, if that is known: on this machine, Java starts accordingly.
    """
    builder = SparkSession.builder.appName(name)
    settings = dict(_ALWAYS)
    if _SUBMITTED not in os.environ:
        master = master or LOCAL
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        started = java_options(master, events, memory)
        if master.startswith("local"):
            started += f" {java.archive_options()}"
        settings |= {"spark.driver.memory": memory, "spark.driver.extraJavaOptions": started}
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= _HERE
            _show_packages()
        elif (address := _address_towards(master)) is not None:
            settings["spark.driver.host"] = address
    if master is not None:
        builder = builder.master(master)
    settings |= dict(options or {})
    for key, value in settings.items():
        builder = builder.config(key, value)
    if _SUBMITTED not in os.environ:
        java.start(SparkConf().setAppName(name).setMaster(str(master)).setAll(list(settings.items())))
    session = builder.getOrCreate()
    register_sources(session, sources)
    return session


def java_options(master: str, events: int | None, memory: str = DRIVER_MEMORY) -> str:
    """Return the options of the Java side that is started here, for this number of events, or None for any number.

    Optimizing code takes longer than a short run on this machine. On a cluster the work is done elsewhere.
    """
    is_short = master.startswith("local") and events is not None and events <= FEW_EVENTS
    return f"{_JAVA} {_SHORT_JAVA} -Xms{memory}" if is_short else f"{_JAVA} {_LONG_JAVA}"


def _address_towards(master: str) -> str | None:
    """The address of this machine that a standalone master sees, so that executors on other hosts can call the driver.

    They may not know the machine's name. None where the environment says how, or for another kind of master.
    """
    found = re.match(r"spark://\[?([^,\]]+?)\]?:(\d+)", master)
    if found is None or {"SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS"} & os.environ.keys():
        return None
    try:
        family, kind, _, _, target = socket.getaddrinfo(found[1], int(found[2]), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asking:
            asking.connect(target)  # sends nothing
            address = str(asking.getsockname()[0])
    except OSError:
        return None
    return f"[{address}]" if ":" in address else address


def fit_plans(session: SparkSession, rows: int, read: int = 0) -> None:
    """Fit the next plan to its number of rows, except for settings that Spark was started with. They are selected from
    those that are ``read``, if these are more.

    Spark's default of 200 parts keeps a cluster busy for seconds with a thousand rows. The rows of one part need no
    plan that adapts to the sizes of parts.
    """
    started = session.sparkContext._conf  # getConf() copies all of it, a call of Java for each setting
    for name, value in {
        _SHUFFLES: str(shuffle_parts(rows)),
        "spark.sql.adaptive.enabled": str(rows > _ROWS_IN_PART).lower(),
        "spark.sql.codegen.wholeStage": str(max(rows, read) > _FEW_ROWS).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if max(rows, read) > _FEW_ROWS else "NO_CODEGEN",
        "spark.sql.inMemoryColumnarStorage.compressed": str(rows > _FEW_ROWS).lower(),
    }.items():
        if not started.contains(name):
            session.conf.set(name, value)


def shuffle_parts(rows: int) -> int:
    """Return the number of parts for a shuffle of this many rows."""
    return min(max(-(-rows // _ROWS_IN_PART), 1), _MOST_PARTS)


def register_sources(session: SparkSession, sources: Sequence[type[DataSource]] | None = None) -> None:
    """Register formats with a session, by default all of the project. For the first one, Spark starts a Python to look
    for others.
    """
    if sources is None:
        from mqenterprise.pipeline.sources.directory_source import DirectorySource
        from mqenterprise.pipeline.sources.qmnode_source import QmnodeSource

        sources = (QmnodeSource, DirectorySource)
    for source in sources:
        session.dataSource.register(source)


def _show_packages() -> None:
    """Let workers on this machine import the driver's packages, even if those are not installed."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(_ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *paths])
