"""Queues as JSON: access lists, messages refused when they arrived, the progress of transactional messages."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from qmnode.administration.access_control import RIGHTS, TRUSTEES, Change, QueueAccessList
from qmnode.management.documents import Document, WaitingDocument, time_or_none
from qmnode.model.administration import IncomingSequenceInformation, RefusedMessages, SequencePlace, TransferInformation
from qmnode.model.traffic import Standing
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_to_text
from qmnode.structures.security_descriptor import Sid

_PREFIX = "MQMSG_CLASS_NACK_"


class RefusedMessagesDocument(Document):
    """Messages of one sender that a queue refused for one reason, since the node started."""

    reason: str = Field(description="As in the metrics", examples=["access_denied"])
    standing: str = Field(
        description="For access_denied, what the sender was taken for: signed, nameless, never, unproven, plain, "
        "unknown or counted"
    )
    explanation: str = Field(description="The same as a sentence; empty for other reasons")
    sender: str = Field(description="SID that the packets name, proven or not; empty if they name none")
    source: str = Field(description="Identifier of the queue manager that sent them, as the packets say")
    address: str = Field(description="Of the neighbour that brought the last one")
    count: int
    total_bytes: int = Field(description="Of the packets")
    first_time: datetime
    last_time: datetime

    @classmethod
    def of(cls, refused: RefusedMessages) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(
            refused,
            reason=MessageClass(refused.reason).name.removeprefix(_PREFIX).lower(),
            explanation=_explanation(refused.standing),
            sender=_sid(refused.claimed_sender),
            source=guid_to_text(refused.source),
            total_bytes=refused.size,
            first_time=datetime.fromtimestamp(refused.first_time, UTC),
            last_time=datetime.fromtimestamp(refused.last_time, UTC),
        )


class RefusedMessagesList(BaseModel):
    """The messages that a queue refused."""

    refused_messages: list[RefusedMessagesDocument] = Field(description="The 64 refused last, those first")


def _explanation(standing: str) -> str:
    with suppress(ValueError):
        return Standing(standing).meaning
    return ""


def _sid(identifier: bytes) -> str:
    try:
        return str(Sid.parse(identifier)) if identifier else ""
    except PacketError:
        return identifier.hex()


class AccessRuleDocument(BaseModel):
    """An entry of an access control list."""

    kind: Literal["allow", "deny"]
    trustee: str = Field(description="SID", examples=["S-1-1-0"])
    name: str | None = Field(description="For SIDs that have one everywhere", examples=["everyone"])
    rights: list[str] = Field(description="Names; bits without one in hexadecimal")
    mask: str = Field(description="MQQUEUEACCESSMASK (MS-MQMQ 2.2.24), hexadecimal")
    inherited: bool
    known: bool | None = Field(
        default=None,
        description="Whether anybody has the SID; an entry for one that nobody has lets nobody in. Null: not known now",
    )


class AccessDocument(BaseModel):
    """The access list of a queue."""

    owner: str | None = Field(description="SID")
    owner_name: str | None = Field(default=None, description="Where it is known here", examples=["user:alice"])
    unrestricted: bool = Field(description="There is no list: everybody may do everything")
    rules: list[AccessRuleDocument]
    other_entries: int = Field(description="Entries of other kinds, which are kept")

    @classmethod
    def of(cls, access: QueueAccessList) -> Self:
        """Make the document from the result of the operation."""
        return cls(
            owner=access.owner,
            owner_name=access.owner_name,
            unrestricted=access.unrestricted,
            rules=[
                AccessRuleDocument(
                    kind="allow" if rule.allows else "deny",
                    trustee=rule.trustee,
                    name=rule.name,
                    rights=list(rule.rights),
                    mask=f"0x{rule.mask:08X}",
                    inherited=rule.inherited,
                    known=rule.known,
                )
                for rule in access.rules
            ],
            other_entries=access.other_entries,
        )


class AccessChange(BaseModel):
    """Rights to allow, to deny, or to remove."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"change": "allow", "trustee": "everyone", "rights": ["send-message"]}},
    )

    change: Change
    trustee: str = Field(min_length=1, max_length=200, description=f"SID, or one of: {', '.join(TRUSTEES)}")
    rights: Annotated[list[str], Field(min_length=1, max_length=50)] = Field(description=f"Of: {', '.join(RIGHTS)}")


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
