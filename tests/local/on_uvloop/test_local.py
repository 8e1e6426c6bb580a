"""Applications at a node's socket, on uvloop: what the same tests show on asyncio's loop in their own modules."""

from qmnode.event_loop import loop_name
from tests.local.test_remote import (  # noqa: F401
    test_a_call_that_is_cancelled_before_it_was_read_ends,
    test_a_receive_that_is_cancelled_too_late_returns_its_message,
    test_a_stopped_node_fails_what_is_under_way,
    test_large_messages_travel,
    test_many_tasks_send_and_each_gets_the_identifier_of_its_own_message,
    test_what_a_client_left_open_is_run_down,
)


async def test_the_loop_is_uvloops() -> None:
    assert loop_name() == "uvloop"
