"""``qmnode run``: the node as a service, in the foreground."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from qmnode.errors import MessageQueuingError

app = typer.Typer()


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file of settings. The environment (QMNODE_...) wins.")
    ] = None,
) -> None:
    """Run the node until SIGTERM or SIGINT. SIGHUP reads the settings again.

    Exit codes: 0 stopped as it was told, 1 it could not start or failed, 2 the settings cannot be used.
    """
    from qmnode.security.process import forbid_core_dumps
    from qmnode.service import Service, configure_log
    from qmnode.settings.node import ConfigurationError, read_settings

    try:
        settings = read_settings(config)
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    configure_log(settings.log)
    forbid_core_dumps()
    try:
        asyncio.run(Service(settings, config).run())
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except MessageQueuingError as error:
        # Here no node is looked for: one could not start, whatever its error would mean to others.
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
