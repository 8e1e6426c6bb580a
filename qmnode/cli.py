"""The ``qmnode`` command: where it begins. The table of its commands is in ``qmnode/commands/table.py``."""

import sys

from qmnode.commands.quick import quick
from qmnode.commands.streams import complete_streams


def main() -> None:
    """Entry point of the ``qmnode`` command."""
    complete_streams()
    code = quick(sys.argv[1:])
    if code is None:
        from qmnode.commands.registry import run
        from qmnode.commands.table import app

        run(app)
    sys.exit(code)
