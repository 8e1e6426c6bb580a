"""Every metric, as a node in this process serves them."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING

from tests.docs.reference.markdown import table

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def page() -> str:
    """The families in the order of their names."""
    rows = [
        [f"`{one.name}{'_total' if one.type == 'counter' else ''}`", one.type, _labels(one), one.documentation + "."]
        for one in sorted(asyncio.run(_families()), key=lambda one: one.name)
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            "`/metrics` of the management API serves them in the text format of Prometheus, with `process_*`",
            "metrics of the process. Counters begin",
            "at zero when the node starts. The queues with the most messages come first:",
            "`management.metrics_queues` limits how many are shown.",
            "[The management API and metrics](../management.md#metrics) explains them by purpose.",
            "",
            *table(["metric", "type", "labels", "meaning"], rows),
            "",
        ]
    )


def _labels(family: Metric) -> str:
    return ", ".join(f"`{one}`" for one in getattr(family, "_labelnames", ()))


async def _families() -> list[Metric]:
    import qmnode
    from qmnode.management.metrics import _Snapshot
    from qmnode.management.request_context import Context
    from qmnode.settings.node import ManagementSettings

    with tempfile.TemporaryDirectory() as place:
        settings = qmnode.Settings.model_validate({"transport": {"enabled": False}})
        async with qmnode.QueueManager.open(place, settings=settings) as manager:
            context = Context(manager, ManagementSettings())
            return list(_Snapshot(context, await manager.status()).collect())
