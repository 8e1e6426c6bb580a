"""Names that the shell completes: asked of the running node, and none if it does not answer at once."""

import asyncio
from pathlib import Path
from typing import Final

import typer  # at run time: it reads the annotations of the completing functions

_PATIENCE: Final = 2.0


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queues that begin so: private ones of this node in their short form, outgoing ones as format names."""
    import qmnode
    from qmnode.commands.state import socket_path

    def given(name: str) -> Path | None:
        value = ctx.params.get(name)
        return Path(value) if value else None

    async def names() -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            address = socket_path(given("socket"), given("config"))
            async with qmnode.connect(address, reconnect=0) as manager:
                prefix = f"{manager.computer_name}\\private$\\".casefold()
                found = [queue.pathname for queue in await manager.queues()]
        return [name[len(prefix) :] if name.casefold().startswith(prefix) else name for name in found]

    try:
        return [name for name in asyncio.run(names()) if name.casefold().startswith(incomplete.casefold())]
    except Exception:  # completion reports no errors: the shell is no place for them
        return []
