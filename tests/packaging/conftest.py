"""Packages and images, built once for a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.images import why_no_images
from tests.lab.roots import PROJECT


def build(program: str, *options: str | Path) -> None:
    subprocess.run([sys.executable, PROJECT / "packaging" / program / "build.py", *options], check=True)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of QMNODE_TEST_PACKAGES, or one with the packages of Debian 13."""
    if reason := why_no_images():
        pytest.skip(reason)
    if given := os.environ.get("QMNODE_TEST_PACKAGES"):
        return Path(given)
    out = tmp_path_factory.mktemp("packages")
    build("linux", "--release", "deb13", "--out", out)
    return out


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of QMNODE_TEST_IMAGES, or one with all images."""
    if given := os.environ.get("QMNODE_TEST_IMAGES"):
        return Path(given)
    packages: Path = request.getfixturevalue("packages")
    out = tmp_path_factory.mktemp("images")
    build("images", "--packages", packages, "--out", out)
    return out
