"""What the base install costs a node, measured on a real install from the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 80 * 1000 * 1000


def installed_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.slow
def test_the_base_install_stays_under_80_mb(tmp_path: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--constraint", str(PROJECT / "requirements.lock"), "--target", str(tmp_path), str(PROJECT)),
        ],
        check=True,
    )
    assert (tmp_path / "rocksdict").is_dir(), "the install did not bring what a node needs"
    assert not (tmp_path / "pyspark").exists()
    assert not (tmp_path / "ldap3").exists()
    size = installed_bytes(tmp_path)
    assert size < LIMIT_BYTES, f"the base install takes {size / 1e6:.1f} MB"
