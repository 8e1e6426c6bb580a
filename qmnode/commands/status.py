"""``qmnode status``: the state of the running node, and whether it needs attention."""

from typing import Annotated

import typer

from qmnode.commands.node_options import ConfigOption, JsonOption, SocketOption
from qmnode.commands.state import show_status

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: qmnode status --wait 30")
def status(
    socket: SocketOption = None,
    config: ConfigOption = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait until every door of a starting node answers.")
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Show the state of the running node.

    Exit codes: 1 it can store nothing, as its disk is full or fails; 3 it does not answer.
    """
    raise typer.Exit(show_status(socket, config, wait, as_json))
