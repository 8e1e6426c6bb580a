"""The Spark session of the pipeline: on this machine, on a cluster, or the one that ``spark-submit`` has started."""

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from mqenterprise.pipeline import java
from mqenterprise.pipeline.sources.directory_source import DirectorySource
from mqenterprise.pipeline.sources.qmnode_source import QmnodeSource

LOCAL: Final = "local[*]"
DRIVER_MEMORY: Final = "2g"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""spark-submit has started the Java side already: how and where is its user's affair."""
_SHUFFLES: Final = "spark.sql.shuffle.partitions"
_ROWS_IN_PART: Final = 100_000
_MOST_PARTS: Final = 10_000
_ROOT: Final = Path(__file__).parents[2]
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow's Java side checks every access of every value otherwise, after Spark has done so."""
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Without it a reader of the progress bar sees two of them.
    "spark.ui.showConsoleProgress": "false",
}
_OURS: Final = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:+UseParallelGC {_ARROW}",
}
"""Of a driver that is started here, whoever its master is."""
_HERE: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300s",
    # One machine: the sources' own partitions are the parallelism, and small plans need no broadcast tricks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


def open_session(
    master: str | None = None,
    *,
    memory: str = DRIVER_MEMORY,
    name: str = "mqenterprise",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, with the project's sources registered. A second call in a process gives the same session.

    ``master`` is Spark's: None is ``local[*]``, or what spark-submit was told. ``memory`` is that of the driver, which
    in local mode is all that the Java side gets (``2g``). ``options`` are Spark's settings by name, and win.
    """
    builder = SparkSession.builder.appName(name)
    settings = dict(_ALWAYS)
    if _SUBMITTED not in os.environ:
        master = master or LOCAL
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        settings |= _OURS | {"spark.driver.memory": memory}
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
    register_sources(session)
    return session


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


def fit_shuffles(session: SparkSession, rows: int) -> None:
    """Shuffle what is planned next in as many parts as so many rows are worth, unless whoever started Spark says.

    Spark's default of 200 parts keeps a cluster busy for seconds with a thousand rows.
    """
    if not session.sparkContext.getConf().contains(_SHUFFLES):
        session.conf.set(_SHUFFLES, str(shuffle_parts(rows)))


def shuffle_parts(rows: int) -> int:
    """Parts of a shuffle of so many rows."""
    return min(max(-(-rows // _ROWS_IN_PART), 1), _MOST_PARTS)


def register_sources(session: SparkSession) -> None:
    """Make the formats known to a session."""
    session.dataSource.register(QmnodeSource)
    session.dataSource.register(DirectorySource)


def _show_packages() -> None:
    """Workers of this machine import the packages that the driver runs, also when those are not installed."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(_ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *paths])
