"""One roll-out of the demo's six hosts by the tree in ``PYTHONPATH``: a process of ``tests.bench.rollout``.

Its last line is what the roll-out took, as JSON. It runs where that tree's own environment is, of any commit since
50ba033.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import os
import time

from tests.bench._processor import processor_seconds
from tests.lab.demo import chapters
from tests.lab.demo.declared import declaration
from tests.lab.enterprise import LabEnterprise

BECOME_SUBREAPER = 36
LIMIT = 3600.0
"""Seconds of a playbook, however slow the machine is."""


def spent(enterprise: LabEnterprise) -> dict[str, float]:
    """Processor so far, of all and of the hosts."""
    leaders = enterprise.hosts.folder.glob("hosts/*/processes/leader")
    hosts = sum(processor_seconds(json.loads(leader.read_text())["pid"]) for leader in leaders)
    return {"all": processor_seconds(os.getpid()), "hosts": hosts}


async def measure(enterprise: LabEnterprise) -> dict[str, float]:
    """Have hosts and a directory, and roll out."""
    enterprise.play = functools.partial(enterprise.play, limit=LIMIT)  # type: ignore[method-assign]
    story = chapters.Story(enterprise, lambda _: None)
    await chapters.start(story)
    await chapters.provision(story)
    before, began = spent(enterprise), time.monotonic()
    await chapters.roll_out(story)
    seconds, after = time.monotonic() - began, spent(enterprise)
    taken = {name: after[name] - before[name] for name in after}
    return {
        "by the clock": seconds,
        "processor of all": taken["all"],
        "processor of the controller": taken["all"] - taken["hosts"],
        "processor of the hosts": taken["hosts"],
    }


def main() -> None:
    """Roll out, and remove everything."""
    # What ends up without a parent, as a kept connection of ssh does, is counted with the rest.
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1, 0, 0, 0)
    enterprise = LabEnterprise(declaration(), real=True)
    try:
        found = asyncio.run(measure(enterprise))
    finally:
        enterprise.close()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
