"""The ``qmnode`` command: where it begins. The table of its commands is in ``qmnode/commands/command_table.py``."""

import sys

from qmnode.commands.fast_start import quick
from qmnode.commands.standard_streams import complete_streams


def main() -> None:
    """Entry point of the ``qmnode`` command."""
    complete_streams()
    code = quick(sys.argv[1:])
    if code is None:
        from qmnode.commands.command_table import app
        from qmnode.commands.registry import run

        run(app)
    sys.exit(code)
