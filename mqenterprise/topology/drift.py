"""The numbers of differences between declaration and directory, in a file that Prometheus's node exporter reads."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from mqenterprise.topology.plan import Action

if TYPE_CHECKING:
    from pathlib import Path

    from mqenterprise.topology.plan import Plan


def check_metrics_file(path: Path) -> None:
    """Raise ValueError if the file's name or folder is not one that metrics can be written to."""
    if path.suffix != ".prom":
        raise ValueError(f"{path}: the name must end in .prom, or the textfile collector of Prometheus passes over it")
    if not path.parent.is_dir():
        raise ValueError(
            f"{path}: there is no folder {path.parent}. Name the one that the textfile collector of Prometheus reads"
        )


def write_metrics(path: Path, plan: Plan, machines: int) -> None:
    """Replace the file as a whole.

    ``machines`` is the number of nodes that differ from their documents. The time of a check that failed stays that of
    the last one that did not. Raises OSError if the file cannot be written.
    """
    registry = CollectorRegistry()
    changes = Gauge(
        "mqenterprise_drift_changes",
        "Changes that would make the directory as it is declared.",
        ["action"],
        registry=registry,
    )
    counts = Counter(step.action for step in plan.steps)
    for action in Action:
        changes.labels(action=action.value).set(counts[action])
    Gauge("mqenterprise_drift_machines", "Nodes that differ from their documents.", registry=registry).set(machines)
    Gauge(
        "mqenterprise_drift_checked_timestamp_seconds", "When the directory was last compared.", registry=registry
    ).set(time.time())
    write_to_textfile(str(path), registry)
