"""``qmnode top``: the queues with the most messages, and how fast they grow or shrink."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from qmnode.commands.node_options import NODE, JsonOption, Node, WideOption
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json, say, size_text
from qmnode.commands.table_writer import print_table

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.api import QueueInformation

app = Commands()

_LINES: Final = 24
_CLEAR = "\x1b[H\x1b[2J"


class Span(StrEnum):
    """The span of a history."""

    HOUR = "hour"
    DAY = "day"


@app.command(epilog="Example: qmnode top --interval 5   or: qmnode top --history day 'orders*'")
def top(
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE...", help="With --history: names, or patterns with * and ?.")
    ] = None,
    history: Annotated[
        Span | None,
        typer.Option(help="Show the counters of the last hour or day: over time for one queue, in total for several."),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates.")] = 2.0,
    times: Annotated[int, typer.Option(min=0, help="End after this many updates; 0 goes on until Ctrl-C.")] = 0,
    rows: Annotated[int, typer.Option("--count", "-n", min=1, help="Most queues to show.")] = 20,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Show the queues with the most messages, and by how many a second each grows (+) or shrinks (-)."""
    if queues and history is None:
        raise typer.BadParameter("queues are chosen for --history hour or --history day only")
    if history is not None:
        found = node.run(lambda manager: manager.operations.history(queues or ["*"], history.value))
        _show_history(found, rows, as_json, wide)
        return

    async def work(manager: RemoteQueueManager) -> None:
        before, looked = await manager.queues(), monotonic()
        done = 0
        while not times or done < times:
            await asyncio.sleep(interval)
            now = await manager.queues()
            seconds, looked = monotonic() - looked, monotonic()
            _show(before, now, seconds, rows, as_json, wide)
            before, done = now, done + 1

    node.run(work)


def _show_history(found: dict[str, Any], rows: int, as_json: bool, wide: bool) -> None:
    step, times = found["step"], found["times"]
    sampled = [one for one in found["queues"] if one["messages"]]  # the first minute of a day has not ended at once
    shown = sorted(sampled, key=lambda one: -(sum(one["arrived"]) + sum(one["left"])))[:rows]
    if as_json:
        print_json(found | {"queues": shown})
    elif len(shown) == 1:
        _show_times(shown[0], times[-len(shown[0]["messages"]) :], step)
    else:
        print_table(
            ("queue", "arrived", "left", "died", "messages", "most", "seconds waited"),
            [
                (
                    one["queue"],
                    *(sum(one[name]) for name in ("arrived", "left", "died")),
                    one["messages"][-1],
                    max(one["messages"]),
                    _waited(one["messages"], one["left"], step),
                )
                for one in shown
            ],
            right=("arrived", "left", "died", "messages", "most", "seconds waited"),
            whole=("queue",),
            drop=("most", "seconds waited", "died"),
            wide=wide,
        )
    if not shown:
        say(f"no messages moved in these queues since the node started, or only in the last {step:.0f} seconds")


def _show_times(one: dict[str, Any], times: list[float], step: float) -> None:
    width = max(1, -(-len(times) // _LINES))
    table = []
    for first in range(0, len(times), width):
        part = {name: one[name][first : first + width] for name in ("arrived", "left", "died", "messages", "bytes")}
        ends, seconds = times[first : first + width][-1], step * len(part["left"])
        rates = (f"{sum(part[name]) / seconds:,.1f}" for name in ("arrived", "left", "died"))
        waited = _waited(part["messages"], part["left"], step)
        when = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M:%S}"
        table.append((when, *rates, part["messages"][-1], size_text(part["bytes"][-1]), waited))
    say(one["queue"])
    columns = ("until (UTC)", "arrived/s", "left/s", "died/s", "messages", "size", "seconds waited")
    print_table(columns, table, right=columns[1:], whole=columns[:1])


def _waited(messages: list[int], left: list[int], step: float) -> str | None:
    """The mean wait of a message, by Little's law: messages in the queue, divided by how many leave it in a second."""
    gone = sum(left)
    return f"{sum(messages) * step / gone:,.1f}" if gone else None


def _show(
    before: list[QueueInformation],
    now: list[QueueInformation],
    seconds: float,
    rows: int,
    as_json: bool,
    wide: bool,
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
        whole=("queue",),
        drop=("journal", "state", "size"),
        wide=wide,
    )
