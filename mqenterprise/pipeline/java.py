"""Start Spark's Java side, and pass on its standard error without the warnings that nobody can act on."""

import os
import sys
from threading import Thread
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_NOISE: Final = (
    # Spark itself requests the module, and Java warns of it every time.
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "WARNING: package sun.security.action not in java.base",
)
_FLUSHED: Final = 5.0
"""Seconds to wait for the last output of a Java that did not start."""


def start(conf: SparkConf) -> None:
    """Make the context of this process, unless it has one. PySparkException when Java does not start."""
    if SparkContext._active_spark_context is not None or SparkContext._gateway is not None:
        return
    reading, writing = os.pipe()
    passing = Thread(target=_pass_on, args=(reading,), name="spark-stderr", daemon=True)
    passing.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(writing)
        passing.join(_FLUSHED)
        raise
    os.close(writing)
    context = SparkContext(conf=conf, gateway=gateway)
    assert context._jvm is not None
    context._jvm.functions = _Members(context._jvm.functions)


class _Members:
    """A class of Java, whose members are asked of Java once. PySpark asks for each expression of a plan twice."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._asked, name)
        setattr(self, name, member)
        return member


def _pass_on(descriptor: int) -> None:
    """Pass on lines until Java has ended."""
    with open(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                sys.stderr.write(line)
                sys.stderr.flush()
