"""Nodes in one process, on uvloop: what the same tests show on asyncio's loop in their own modules."""

import pytest

from qmnode.event_loop import loop_name
from tests.transport import test_tls_modes
from tests.transport.test_lent_memory import (  # noqa: F401
    door,
    test_an_application_that_does_not_read_leaves_memory_to_others,
    test_the_latest_messages_of_many_strangers_leave_memory_to_others,
)
from tests.transport.test_tls_modes import Nodes, nodes  # noqa: F401
from tests.transport.test_transfer import (  # noqa: F401
    test_messages_wait_for_a_target_that_is_away,
    test_transactions_arrive_whole_and_in_order,
)


async def test_the_loop_is_uvloops() -> None:
    assert loop_name() == "uvloop"


@pytest.mark.parametrize(("here", "there", "is_tls"), [("prefer", "require", True), ("prefer", "", False)])
async def test_a_mode_meets_another(nodes: Nodes, here: str, there: str, is_tls: bool) -> None:  # noqa: F811
    await test_tls_modes.test_a_mode_meets_another(nodes, here, there, is_tls)
