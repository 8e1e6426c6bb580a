"""Start Spark's Java side, and pass on its standard error without the warnings that nobody can act on.

Java loads and checks over ten thousand classes until Spark has run its first plans. A run that ends without an archive
of them has Java make one in the user's cache, after its own work and with the lowest priority. It saves later runs most
of that time. Java itself sees whether an archive fits, and goes on without it otherwise.
"""

import atexit
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

_NOISE: Final = (
    # Spark itself requests the module, and Java warns of it every time.
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "WARNING: package sun.security.action not in java.base",
)
_FLUSHED: Final = 5.0
"""Seconds to wait for the last output of a Java that did not start."""
_FOLDERS: Final = frozenset({"SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"})
"""Variables that add folders to the path that Java looks for classes in."""
_KEPT: Final = 1
"""Archives that are kept beside a new one, which has about 200 MB: those of other versions."""
_PLAIN: Final = re.compile(r"[\w./@+-]+", re.ASCII)
"""A path of characters that neither Spark nor Java takes for more than a part of a name in an option."""
_MADE_IN: Final = 600.0
"""Seconds in which another run has made its archive, or will not."""
_MAKE: Final = """
made=$1 archive=$2 classes=$3; shift 3
nice -n 19 "$@" && sync "$made" && mv -f "$made" "$archive"
rm -f "$made" "$classes"
"""


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
        if (archive := _archive()) is not None:
            archive.unlink(missing_ok=True)  # a damaged one ends Java
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


def archive_options() -> str:
    """Return the options with which Java uses the archive of classes, or lists those that one has to have."""
    archive = _archive()
    if archive is None:
        return ""
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off,class+path=off"
    listed = _listed(archive)
    atexit.register(listed.unlink, missing_ok=True)
    return f"-XX:DumpLoadedClassList={listed}"


def keep_classes() -> None:
    """Begin to make the archive from the classes of this run, unless there is one, and do not wait for it."""
    context, archive = SparkContext._active_spark_context, _archive()
    if context is None or context._jvm is None or archive is None or archive.exists():
        return
    listed, made, classes = (_listed(archive, suffix) for suffix in ("listed", "made", "classes"))
    with suppress(OSError):
        lines = listed.read_bytes()  # Java goes on to write
        listed.unlink()
        begun = archive.parent.glob(f"{archive.stem}.*.classes")
        if any(time.time() - one.stat().st_mtime < _MADE_IN for one in begun):
            return
        for other in sorted(archive.parent.glob("classes-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
            other.unlink()
        classes.write_bytes(lines[: lines.rfind(b"\n") + 1])
        path = context._jvm.System.getProperty("java.class.path")
        options = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}", "-cp", path]
        java = [str(_java()), "-Xshare:dump", "-Xmx1g", "-XX:+UseSerialGC", *options]
        subprocess.Popen(  # noqa: S603  our own arguments
            ["/bin/sh", "-c", _MAKE, "sh", str(made), str(archive), str(classes), *java],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java")


def _listed(archive: Path, suffix: str = "listed") -> Path:
    """Return a file of this run for the archive."""
    return archive.with_suffix(f".{os.getpid()}.{suffix}")


def _archive() -> Path | None:
    """Return where the archive for this Java and these jars is, or is to be.

    None without a Java, without a folder that nobody else may write to, and with folders of settings: Java's archive
    has only what is in jars.
    """
    java, spark, folder = _java(), Path(_find_spark_home()), _cache()
    if java is None or folder is None or not _FOLDERS.isdisjoint(os.environ) or (spark / "conf").exists():
        return None
    seen = hashlib.sha256()
    for file in sorted([Path(java).resolve().parents[1] / "lib" / "modules", *(spark / "jars").glob("*.jar")]):
        with suppress(OSError):
            found = file.stat()
            seen.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
    return folder / f"classes-{seen.hexdigest()[:16]}.jsa"


def _cache() -> Path | None:
    """Return the user's folder for what may be made again: ``$XDG_CACHE_HOME/mqenterprise``. Classes are programs, so
    None if others may write to it.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # ignored if it is relative, as its specification wants
    with suppress(OSError, RuntimeError):
        folder = (base if base.is_absolute() else Path.home() / ".cache") / "mqenterprise"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        return folder if is_own and _PLAIN.fullmatch(str(folder)) else None
    return None
