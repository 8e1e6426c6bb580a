"""The progress of transactional messages, on their way out and in, as JSON."""

from datetime import datetime
from typing import Self

from pydantic import Field

from qmnode.management.documents import Document, WaitingDocument, time_or_none
from qmnode.model.administration import IncomingSequenceInformation, SequencePlace, TransferInformation
from qmnode.structures.guid import guid_to_text


class PlaceDocument(Document):
    """The place of a message in a transactional sequence (SEQUENCE_INFO, MS-MQMQ 2.2.5)."""

    sequence: str = Field(description="TxSequenceID, hexadecimal", examples=["0x6921a4c200000007"])
    number: int
    previous: int

    @classmethod
    def of(cls, place: SequencePlace | None) -> Self | None:
        """Make the document from the object of the model."""
        return place and cls.from_attributes(place, sequence=f"{place.sequence_identifier:#x}")


class TransferDocument(Document):
    """The progress of the transactional messages of an outgoing queue (OutgoingTransferInfo, MS-MQDMPR 3.1.1.4)."""

    unacknowledged_messages: int = Field(description="Sent; their order acknowledgment has not come")
    first_unacknowledged: PlaceDocument | None
    last_unacknowledged: PlaceDocument | None
    last_acknowledged: PlaceDocument | None
    last_acknowledged_time: datetime | None
    acknowledgments: int = Field(description="Order acknowledgments since the node started")
    unread_messages: int = Field(description="Arrived; how they end has not been told. Counted up to 10,000")
    next: PlaceDocument | None = Field(description="Of the next message that is sent to the queue; null before any")
    resend_count: int = Field(description="How often in a row they were sent again without progress")
    resend_interval: int = Field(description="Seconds")
    resend_time: datetime | None

    @classmethod
    def of(cls, information: TransferInformation) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(
            information,
            unacknowledged_messages=information.unacknowledged_count,
            first_unacknowledged=PlaceDocument.of(information.first_unacknowledged),
            last_unacknowledged=PlaceDocument.of(information.last_unacknowledged),
            last_acknowledged=PlaceDocument.of(information.last_acknowledged),
            last_acknowledged_time=time_or_none(information.last_acknowledged_time),
            acknowledgments=information.acknowledgment_count,
            unread_messages=information.unread_count,
            next=PlaceDocument.of(information.next if information.next.sequence_identifier else None),
            resend_time=time_or_none(information.resend_time),
        )


class IncomingSequenceDocument(Document):
    """A sequence of transactional messages that come to a queue (IncomingTransactionalTransferInfo, 3.1.1.5)."""

    source: str = Field(description="Identifier of the queue manager that sends them")
    destination: str = Field(description="Format name by which it knows the queue")
    address: str = Field(description="Of the neighbour that brought the last one")
    sequence: str = Field(description="TxSequenceID, hexadecimal", examples=["0x6921a4c200000007"])
    number: int = Field(description="Of the last message that was accepted")
    reject_count: int = Field(
        description="RejectCount: messages since then that were not accepted, because they came again or too early"
    )
    last_access_time: datetime | None = Field(description="LastAccessTime: when the last message of it came")
    is_known: bool = Field(
        description="Whether the neighbours that brought it are known to speak for the source: at an address that the "
        "directory gives it, or routing servers. One that is not has a place of its own in the sequence"
    )
    refused_count: int = Field(description="Messages of it that were not taken since the node started")
    waiting: WaitingDocument | None = Field(
        default=None, description="Why the queue refused the last message from elsewhere; null: it did not"
    )

    @classmethod
    def of(cls, information: IncomingSequenceInformation) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(
            information,
            source=guid_to_text(information.source),
            sequence=f"{information.sequence_identifier:#x}",
            waiting=information.waiting and WaitingDocument.of(information.waiting),
            last_access_time=time_or_none(information.last_access_time),
        )


class IncomingSequences(Document):
    """The sequences of a queue, used last first."""

    incoming_sequences: list[IncomingSequenceDocument] = Field(description="A thousand at most")
