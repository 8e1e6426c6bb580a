"""Messages that are traced by rules of the settings, and reports that go to the declared queue."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from qmnode import Access, Message, QueueManager
from qmnode.settings.node import Settings, TracingSettings
from qmnode.structures.guid import ZERO_GUID, guid_from_text

GUID = "7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e"
RULES = [{"label": "order*", "queue": "*traced", "one_in": 3}]


async def test_one_of_so_many_is_traced_and_others_are_not(tmp_path: Path) -> None:
    tracing = TracingSettings.model_validate({"report_queue": f"PUBLIC={GUID}", "rules": RULES})
    async with QueueManager.open(tmp_path, Settings(tracing=tracing)) as manager:
        found = {}
        for name in ("traced", "other"):
            await manager.create_queue(rf".\private$\{name}")
            async with await manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.SEND) as out:
                await out.send_many([Message(b"x", label=f"Order {number}") for number in range(4)])
                await out.send(Message(b"x", label="invoice"))
                await out.send(Message(b"x", label="asked", tracing_requested=True))
            async with await manager.open_queue(rf"DIRECT=OS:.\private$\{name}") as queue:
                messages = [await queue.receive(timeout=5) for _ in range(6)]
            found[name] = [one.label for one in messages if one.tracing_requested]
            assert {one.tracing_queue_identifier for one in messages if one.tracing_requested} == {guid_from_text(GUID)}
            assert {one.tracing_queue_identifier for one in messages if not one.tracing_requested} == {ZERO_GUID}
    assert found == {"traced": ["Order 0", "Order 3", "asked"], "other": ["asked"]}


@pytest.mark.parametrize(
    "settings",
    [{"rules": RULES}, {"report_queue": "reports"}, {"report_queue": f"PUBLIC={GUID}", "rules": [{"one_in": 0}]}],
)
def test_rules_without_a_queue_and_queues_that_are_not_public_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TracingSettings.model_validate(settings)
