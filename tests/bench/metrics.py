"""What counting costs: a message sent and received by an embedded queue manager, with metrics and without.

The baseline runs the same functions without the statements that count.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import statistics
import textwrap
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from qmnode import Access, QueueManager
from qmnode.model.api import QueueType
from qmnode.model.positions import insert_many
from qmnode.model.queue import Queue
from tests.bench import Comparison, bench
from tests.bench.node import NAME, SETTINGS, Node, in_directory, outstanding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUNDS: Final = 120
BAR: Final = 1.03
"""The whole life of a message may cost so many times as much processor with metrics as without."""
CASES: Final = (
    # what, calls at a time, calls, messages of a call
    ("64 outstanding", ("send", "receive"), 64, 960, 1),
    ("batches of 100", ("send_hundred", "receive_hundred"), 1, 15, 100),
)


_COUNTS: Final = {"tally", "traffic"}


class _WithoutCounts(ast.NodeTransformer):
    """Leaves out statements that mention counts."""

    def visit(self, node: ast.AST) -> Any:
        """Visit a node. Return None to leave it out."""
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)):
            names = {getattr(part, "attr", getattr(part, "id", None)) for part in ast.walk(node)}
            return None if names & _COUNTS else node
        self.generic_visit(node)
        return None if isinstance(node, ast.If) and not node.body else node


def uncounted(function: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """The same function without its statements that count. It calls ``others`` for functions of their names."""
    tree = _WithoutCounts().visit(ast.parse(textwrap.dedent(inspect.getsource(function))))
    scope = {**function.__globals__, **others}
    exec(compile(tree, inspect.getfile(function), "exec"), scope)
    made: Callable[..., Any] = scope[function.__name__]
    assert len(made.__code__.co_code) < len(function.__code__.co_code) or others, f"{function} counts nothing"
    return made


class Uncounted(Queue):
    """A queue that counts neither arrivals nor departures."""

    insert = uncounted(Queue.insert)
    remove = uncounted(Queue.remove)
    arrive_many = uncounted(Queue.arrive_many, insert_many=uncounted(insert_many))


async def _opened(manager: QueueManager) -> Node:
    await manager.create_queue(r".\private$\bench")
    return Node(await manager.open_queue(NAME, Access.SEND), await manager.open_queue(NAME))


def _count_nothing(manager: QueueManager) -> None:
    for queue in manager.queue_collection.values():
        if queue.queue_type is QueueType.PRIVATE and not queue.is_internal:
            queue.__class__ = Uncounted


async def measure(directory: Path) -> dict[str, list[tuple[float, float]]]:
    """Processor a message with metrics and without, by case and turn; they take turns to be first."""
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in CASES}
    async with AsyncExitStack() as stack:
        counted = await stack.enter_async_context(QueueManager.open(directory / "with", settings=SETTINGS))
        not_counted = await stack.enter_async_context(QueueManager.open(directory / "without", settings=SETTINGS))
        nodes = {"with": await _opened(counted), "without": await _opened(not_counted)}
        _count_nothing(not_counted)
        for turn in range(ROUNDS):
            for name, steps, window, calls, per_call in CASES:
                spent = {}
                for which in sorted(nodes, reverse=bool(turn % 2)):
                    times = [await outstanding(getattr(nodes[which], step), window, calls) for step in steps]
                    spent[which] = sum(processor for _, processor in times)
                measured[name].append((spent["with"] / per_call, spent["without"] / per_call))
    return measured


@bench("metrics")
def metrics() -> list[Comparison]:
    """Processor a message, with its bar. The ratio is the median of those of the turns: medians of each drift more."""
    lines = []
    for name, turns in in_directory(lambda directory: asyncio.run(measure(directory))).items():
        without = statistics.median(one for _, one in turns)
        ratio = statistics.median(counted / uncounted for counted, uncounted in turns)
        lines.append(Comparison(f"{name}: processor", ratio * without, "without metrics", without, BAR))
    return lines
