"""The archive of Java's classes: the first run makes it, the next ones use it, and it is never in their way."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqenterprise.pipeline import java

PROJECT = Path(__file__).resolve().parents[2]
RUN = """
from pathlib import Path
from mqenterprise.pipeline import java
from mqenterprise.pipeline.session import open_session

spark = open_session("local[1]", memory="512m", events=1, sources=())
assert spark.range(3).count() == 3
java.keep_classes()
print(".jsa" in Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text().replace("classes.jsa", ""))
"""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_classes_are_kept_by_the_first_run_and_used_by_the_next_ones(tmp_path: Path) -> None:
    folder = tmp_path / "mqenterprise"

    def uses_archive() -> bool:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return {"False\n": False, "True\n": True}[done.stdout]  # and Java says nothing

    assert not uses_archive()
    while len(found := list(folder.iterdir())) != 1 or found[0].suffix != ".jsa":
        time.sleep(0.5)
    assert uses_archive()
    found[0].unlink()
    found[0].write_bytes(bytes(1 << 20))
    assert not uses_archive(), "Spark starts without a broken one"
    assert list(folder.iterdir()) == found


def test_no_archive_is_where_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    folder = tmp_path / "mqenterprise"
    assert str(folder) in java.archive_options()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    assert java.archive_options() == ""
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert java.archive_options() == ""


def test_a_home_that_cannot_be_written_to_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert java.archive_options() == ""
