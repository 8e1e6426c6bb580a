"""The tests of sessions and of applications on uvloop, and those of killed nodes on asyncio's loop.

``make test`` has a part of it: tests in this process run on asyncio's loop there, and nodes of their own on uvloop.
"""

import os
import subprocess
import sys

import pytest

from qmnode.event_loop import LOOP_VARIABLE
from tests.lab.nodes import PROJECT

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(
    ("loop", "places"),
    [
        ("uvloop", ["tests/local", "tests/transport", "tests/forwarding/test_store_and_forward.py"]),
        ("asyncio", ["tests/crash", "tests/transport/test_two_nodes.py", "tests/service"]),
    ],
)
def test_the_other_loop_keeps_what_the_usual_one_keeps(loop: str, places: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not soak", *places]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ | {LOOP_VARIABLE: loop}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
