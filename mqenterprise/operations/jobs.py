"""Jobs at many nodes: begun, watched to their ends, and named ``MACHINE/NUMBER``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from mqenterprise.operations.errors import NodeError, OperationsError

if TYPE_CHECKING:
    from mqenterprise.operations.node_client import NodeClient
    from qmnode.management.operation_routes import JobDocument, LogEntry

_POLL: Final = 0.25
_PATIENCE: Final = 60.0
"""Seconds for which a node may be unavailable while its job is watched: it may be restarting."""
_NAME: Final = re.compile(r"([^/\s]+)/([1-9][0-9]{0,15})")


def job_name(machine: str, number: int) -> str:
    """The name of a job among those of all nodes."""
    return f"{machine}/{number}"


def parse_job_name(text: str) -> tuple[str, int]:
    """Return machine and number. Raises :class:`OperationsError`."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise OperationsError(f"{text!r:.80} is no job: write MACHINE/NUMBER, as 'mqenterprise job list' does")
    return found[1], int(found[2])


async def watch(client: NodeClient, job: JobDocument, seen: Callable[[JobDocument], None]) -> JobDocument:
    """Watch a job until it ends or pauses, also over a restart of its node. Raises :class:`NodeError`."""
    loop = asyncio.get_running_loop()
    last_answer = loop.time()
    while job.state == "running":
        await asyncio.sleep(_POLL)
        try:
            job = await client.job(job.job)
            last_answer = loop.time()
            seen(job)
        except NodeError as error:
            if not error.unavailable or loop.time() - last_answer > _PATIENCE:
                name = job_name(client.machine, job.job)
                raise NodeError(f"{error.sentence}; look later: mqenterprise job show {name}") from None
    return job


async def log_entries(client: NodeClient, number: int) -> AsyncIterator[LogEntry]:
    """The outcomes of a job, message by message."""
    after: int | None = 0
    while after is not None:
        page = await client.job_log(number, after)
        for entry in page.entries:
            yield entry
        after = page.next
