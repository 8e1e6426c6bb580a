"""The project's own promises: commands that start, arrows that point down."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["qmnode", "mqenterprise"])
def test_the_commands_answer_to_help(package: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", f"from {package}.cli import main; main()", "--help"], capture_output=True, text=True
    )
    assert answer.returncode == 0
    assert "Usage" in answer.stdout
