"""Messages that a queue refused when they arrived, as JSON."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from pydantic import BaseModel, Field

from qmnode.management.documents import Document
from qmnode.model.administration import RefusedMessages
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
