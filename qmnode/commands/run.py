"""``qmnode run``: the node as a service, in the foreground."""

from pathlib import Path
from typing import Annotated

import typer

from qmnode.commands.foreground import check_host, run_node

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file of settings. The environment (QMNODE_...) wins.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Start nothing: say whether this host of a failover pair would be fit.")
    ] = False,
) -> None:
    """Run the node until SIGTERM or SIGINT. SIGHUP reads the settings again.

    Exit codes: 0 stopped on request, 1 it could not start or failed, 2 the settings cannot be used, 75 its lease was
    not renewed.
    """
    raise typer.Exit(check_host(config) if check else run_node(config))
