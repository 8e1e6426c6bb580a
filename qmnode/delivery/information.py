"""What operators see of sessions and sequences."""

from qmnode.model.administration import ConnectionInformation, SequencePlace, TransferInformation
from qmnode.protocol.outgoing_sequences import SequenceInfo, TransferInfo
from qmnode.transport.connection import Connection


def transfer_information(info: TransferInfo, unread: int, monotonic_began: float) -> TransferInformation:
    """A sequence. ``unread`` messages wait for their final acknowledgment; ``monotonic_began`` is the time, in seconds
    since 1970, when the monotonic clock began."""
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


def connection_information(connection: Connection) -> ConnectionInformation:
    """A connection."""
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
    )
