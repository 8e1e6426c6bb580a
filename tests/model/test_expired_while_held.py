"""A message whose time passes while a reader holds it (MS-MQDMPR 3.1.7.2.7)."""

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from tests.model.conftest import FakeClock, Node

QUEUE = r"DIRECT=OS:.\private$\orders"


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "power-cut"])
async def test_it_is_gone_as_soon_as_nobody_holds_it(node: Node, clock: FakeClock, clean: bool) -> None:
    await node.qm.create_queue(r".\private$\orders")
    sender = await node.qm.open_queue(QUEUE, Access.SEND)
    await sender.send(Message(b"late", time_to_be_received=1, recoverable=True))
    receiver = await node.qm.open_queue(QUEUE)
    await receiver.receive_begin(timeout=0)
    clock.advance(2)
    await sender.send(Message(b"in time", recoverable=True))  # whatever expiry wrote is on disk with it

    await (node.restart() if clean else node.crash())

    clock.advance(0)
    receiver = await node.qm.open_queue(QUEUE)
    assert (await receiver.receive(timeout=0)).body == b"in time"
    with pytest.raises(MessageQueuingError) as refused:
        await receiver.receive(timeout=0)
    assert refused.value.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
