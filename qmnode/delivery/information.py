"""Information about sessions and sequences for operators."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import nlargest
from typing import Final

from qmnode.delivery.state import ProtocolState
from qmnode.model.administration import (
    ConnectionInformation,
    IncomingSequenceInformation,
    SequencePlace,
    TransferInformation,
)
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.waiting import Waiting
from qmnode.protocol.incoming_sequences import IncomingSequence
from qmnode.protocol.outgoing_sequences import SequenceInfo, transfer_info
from qmnode.protocol.received import DestinationName
from qmnode.structures.names import DirectFormatName, parse_single_format_name
from qmnode.transport.connection import Connection

_SEQUENCES_SHOWN: Final = 1_000


def transfer_information(state: ProtocolState, queue: OutgoingQueue, now: float, unread: int) -> TransferInformation:
    """Describe the outgoing sequence of a queue. ``now`` is in seconds since 1970, ``unread`` counts the messages that
    wait for their final acknowledgments.
    """
    key = state.key_of(queue)
    info = transfer_info(state.outgoing.get(key), state.parameters.resend_table())
    monotonic_began = now - asyncio.get_running_loop().time()
    return TransferInformation(
        next=SequencePlace(*info.next_seq),
        last_acknowledged=_place(info.last_ack),
        last_acknowledged_time=info.last_ack_time,
        acknowledgment_count=info.last_ack_count,
        unacknowledged_count=info.no_ack_count,
        first_unacknowledged=_place(info.first_non_ack),
        last_unacknowledged=_place(info.last_non_ack),
        unread_count=unread,
        resend_count=info.resend_count,
        resend_interval=info.resend_interval,
        resend_time=0 if info.resend_time is None else monotonic_began + info.resend_time,
    )


def _place(info: SequenceInfo | None) -> SequencePlace | None:
    return None if info is None else SequencePlace(*info)


def sequences_of(
    queue: Queue | None, manager: QueueManager, sequences: Iterable[IncomingSequence]
) -> Iterator[tuple[IncomingSequence, str]]:
    """The sequences of ``queue`` under all its names, or of any queue, each with the name."""
    names: dict[bytes, str | None] = {}
    for sequence in sequences:
        key = sequence.destination
        if key not in names:
            name = DestinationName(manager.identifier, key[0], key[1:]).format_name()
            local = None if name is None else manager.names.local(name)
            if isinstance(name, DirectFormatName) and local is not None:  # the key has no small letters
                name = replace(name, path=replace(name.path, queue=manager.names.path(local.pathname).queue))
            names[key] = None if queue not in (None, local) else str(name or "")
        found = names[key]
        if found is not None:
            yield sequence, found


def incoming_sequences(
    queue: Queue | None, manager: QueueManager, sequences: Iterable[IncomingSequence]
) -> list[IncomingSequenceInformation]:
    """The incoming sequences of ``queue``, or of any queue, the most recently used first."""
    return [
        IncomingSequenceInformation(
            source=sequence.source,
            destination=name,
            address=sequence.route.address,
            sequence_identifier=sequence.sequence_id,
            number=sequence.sequence_number,
            reject_count=sequence.reject_count,
            last_access_time=sequence.last_access,
            is_known=not sequence.bringer,
            refused_count=sequence.refused_count,
            waiting=_refusal(manager, name),
        )
        for sequence, name in nlargest(
            _SEQUENCES_SHOWN, sequences_of(queue, manager, sequences), key=lambda one: one[0].last_access
        )
    ]


def _refusal(manager: QueueManager, name: str) -> Waiting | None:
    local = manager.names.local(parse_single_format_name(name)) if name else None
    return None if local is None else local.waits_for


def connection_information(connection: Connection) -> ConnectionInformation:
    """Describe a connection for operators."""
    session = connection.session
    host = f"[{connection.address}]" if ":" in connection.address else connection.address
    return ConnectionInformation(
        address=f"{host}:{connection.port}",
        state=session.state.name.lower(),
        incoming=not connection.initiator,
        queue_manager_identifier=session.remote,
        established=connection.established,
        sent_messages=session.sent_count,
        received_messages=session.received_count,
        sent_bytes=connection.sent_bytes,
        received_bytes=connection.received_bytes,
        unacknowledged_messages=session.in_flight() if connection.initiator else session.unsettled(),
        encrypted=connection.encrypted,
    )
