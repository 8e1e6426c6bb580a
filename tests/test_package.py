"""What ``import qmnode`` shows of itself."""

import subprocess
import sys
from importlib.metadata import version

import qmnode


def test_the_package_says_its_version() -> None:
    assert qmnode.__version__ == version("qmnode")


def test_the_package_lists_its_names_before_they_are_loaded() -> None:
    script = "import qmnode; print(*dir(qmnode)); print(qmnode.sync.connect.__name__)"
    listed, function = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    assert {*qmnode.__all__, "__version__"} <= set(listed.split())
    assert "Any" not in listed.split()
    assert function == "connect"
