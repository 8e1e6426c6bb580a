"""``qmnode top``: the queues with the most messages, and how fast they grow or shrink."""

from __future__ import annotations

import asyncio
import sys
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from qmnode.commands.output import print_json, print_table, size_text
from qmnode.commands.target import ConfigOption, JsonOption, SocketOption, with_node

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.api import QueueInformation

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_CLEAR = "\x1b[H\x1b[2J"


@app.command(epilog="Example: qmnode top --interval 5   or: qmnode top --times 1 --json")
def top(
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int, typer.Option(min=0, help="End after so many looks; 0 goes on until Ctrl-C.")] = 0,
    rows: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many queues.")] = 20,
    socket: SocketOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the queues with the most messages, and by how many a second each grows (+) or shrinks (-)."""

    async def work(manager: RemoteQueueManager) -> None:
        before, looked = await manager.queues(), monotonic()
        done = 0
        while not times or done < times:
            await asyncio.sleep(interval)
            now = await manager.queues()
            seconds, looked = monotonic() - looked, monotonic()
            _show(before, now, seconds, rows, as_json)
            before, done = now, done + 1

    with_node(socket, config, work)


def _show(
    before: list[QueueInformation], now: list[QueueInformation], seconds: float, rows: int, as_json: bool
) -> None:
    counts = {queue.pathname: queue.message_count for queue in before}
    changes = {queue.pathname: (queue.message_count - counts.get(queue.pathname, 0)) / seconds for queue in now}
    chosen = sorted(now, key=lambda queue: (-queue.message_count, -abs(changes[queue.pathname]), queue.pathname))[:rows]
    if as_json:
        print_json(
            {
                "queues": [
                    {
                        "queue": queue.pathname,
                        "messages": queue.message_count,
                        "change": round(changes[queue.pathname], 1),
                        "bytes": queue.total_bytes,
                        "journal_messages": queue.journal_message_count,
                        "state": queue.state or None,
                    }
                    for queue in chosen
                ]
            }
        )
        sys.stdout.flush()
        return
    if sys.stdout.isatty():
        print(_CLEAR, end="")
    print_table(
        ("queue", "messages", "a second", "size", "journal", "state"),
        [
            (
                queue.pathname,
                queue.message_count,
                f"{changes[queue.pathname]:+,.1f}",
                size_text(queue.total_bytes),
                queue.journal_message_count,
                queue.state or None,
            )
            for queue in chosen
        ],
        right=("messages", "a second", "size", "journal"),
    )
