"""Running the node in the foreground, to its exit code."""

import asyncio
import sys
from pathlib import Path

from qmnode.errors import ConfigurationError, MessageQueuingError


def run_node(config: Path | None) -> int:
    """0 stopped as it was told, 1 it could not start or failed, 2 the settings cannot be used."""
    from qmnode.security.process import forbid_core_dumps
    from qmnode.service import Service, configure_log
    from qmnode.settings.node import read_settings

    try:
        settings = read_settings(config)
        configure_log(settings.log)
        forbid_core_dumps()
        asyncio.run(Service(settings, config).run())
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except MessageQueuingError as error:
        # Here no node is looked for: one could not start, whatever its error would mean to others.
        print(error, file=sys.stderr)
        return 1
    return 0
