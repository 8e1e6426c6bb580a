"""Whether messages get from this host's node to another and back. Run by the node's own Python.

Arguments: the node's socket, then ``prepare``, or the format names of queues to send to. A probe asks for an
acknowledgment of its arrival, so its way back is seen as well. Prints one JSON document.
"""

import asyncio
import json
import sys
import time

import qmnode
from qmnode import Access, Acknowledgment, Message, MessageQueuingError
from qmnode.structures.guid import Guid, guid_to_text

QUEUE = r".\private$\mqenterprise-probe"
ANSWERS = r".\private$\mqenterprise-probe-answers"
PATIENCE = 60.0


async def prepare(path: str) -> dict:
    """The queues that probes go to and come back to; who this node is."""
    async with qmnode.connect(path) as node:
        made = False
        for name in (QUEUE, ANSWERS):
            try:
                await node.queue(name)
            except MessageQueuingError:
                await node.create_queue(name, label="Probes of mqenterprise")
                made = True
        number = (await node.queue(QUEUE)).private_queue_number
        identifier = guid_to_text(Guid(node.identifier))
        name = f"PRIVATE={identifier}\\{number:08x}"
        return {"changed": made, "identifier": identifier, "format_name": name, "time": time.time()}


async def probe(path: str, names: list[str]) -> dict:
    """Seconds until the acknowledgment of each is here; none if it did not come."""
    found: dict[str, float | None] = {}
    async with qmnode.connect(path) as node:
        number = (await node.queue(ANSWERS)).private_queue_number
        back = f"PRIVATE={guid_to_text(Guid(node.identifier))}\\{number:08x}"
        answers = await node.open_queue(f"DIRECT=OS:{ANSWERS}")
        for name in names:
            began = time.monotonic()
            async with await node.open_queue(name, Access.SEND) as out:
                sent = await out.send(
                    Message(
                        b"probe",
                        label="probe",
                        time_to_reach_queue=int(PATIENCE),
                        time_to_be_received=int(PATIENCE),
                        acknowledgements_requested=Acknowledgment.FULL_REACH_QUEUE,
                        administration_queue_format_name=back,
                    )
                )
            found[name] = await answered(answers, sent, began)
    return {"changed": False, "seconds": found}


async def answered(answers: qmnode.QueueApi, sent: bytes, began: float) -> float | None:
    """When the acknowledgment of one message came; older ones are passed over."""
    while (left := began + PATIENCE - time.monotonic()) > 0:
        try:
            answer = await answers.receive(timeout=left)
        except MessageQueuingError:
            return None
        if answer.correlation_identifier == sent:
            return round(time.monotonic() - began, 3) if answer.message_class == 0x0002 else None
    return None


def main() -> None:
    """Prepare, or probe."""
    path, *rest = sys.argv[1:]
    work = prepare(path) if rest == ["prepare"] else probe(path, rest)
    print(json.dumps(asyncio.run(work)))


main()
