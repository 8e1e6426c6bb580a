"""Messages as they travel as JSON: to be sent, and shown with their bodies in the form that was asked for."""

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, Self

from fastapi import Response
from pydantic import AwareDatetime, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import to_json

from qmnode.administration.dead_letters import reason
from qmnode.administration.queue_names import queue_name
from qmnode.administration.turns import Pace
from qmnode.bodies.activex import Vt
from qmnode.bodies.choice import decode, encode, read_headers, undecoded
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.bodies.typed_text import value_of_json
from qmnode.bodies.values_as_json import plain, plain_body
from qmnode.management.documents import (
    Document,
    MessageLabel,
    described,
    guid_or_none,
    identifier_text,
    lookup_text,
    quota_or_none,
    time_or_none,
)
from qmnode.model.message import DEFAULTS, INFINITE, Message, fault
from qmnode.objects.message_table import LABEL, MESSAGE, NAMES, SECONDS, TEXT, TIME
from qmnode.objects.rows import FLAG, Form
from qmnode.structures.enumerations import SenderIdentifierType
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.security_descriptor import Sid


class BodyForm(StrEnum):
    """How bodies are shown."""

    NONE = "none"
    BASE64 = "base64"
    TEXT = "text"
    DECODED = "decoded"
    """As text, if it is; and as the value that it has in its format, with the headers in the extension."""


class TextEncoding(StrEnum):
    """How text becomes bytes. Applications on Windows that send strings use UTF-16."""

    UTF8 = "utf-8"
    UTF16 = "utf-16-le"


def is_utf16(body_type: int) -> bool:
    """Whether bodies of this type are text in UTF-16."""
    return body_type in (Vt.VT_BSTR, Vt.VT_LPWSTR)


MAXIMUM_QUEUES: Final = 64
"""Administration or response queues that a message sent over HTTP may name."""


def named_queues(kind: Literal["administration", "response"], names: Sequence[str]) -> dict[str, Any]:
    """The property of a message with these format names of administration or response queues: one, or several."""
    return {f"{kind}_{'multi_' if len(names) > 1 else ''}queue_format_name": ",".join(names)}


class NewMessage(Document):
    """A message to send: with its body as base64 or as text, or with none."""

    model_config = ConfigDict(
        json_schema_extra=described(MESSAGE.values(), text='{"order": 7}', label="order 7", recoverable=True)
    )

    base64: str | None = Field(default=None, description="Body, as base64", examples=["b3JkZXIgNw=="])
    text: str | None = Field(default=None, description="Body, as text")
    encoding: TextEncoding = TextEncoding.UTF8
    value: Any = Field(
        default=None, description="Body, as a value that `format` writes", examples=[{"Order": {"Id": 7}}]
    )
    format: str | None = Field(
        default=None,
        max_length=40,
        description="How `value` is written: xml, activex, wcf, json, text, nservicebus, rebus, or a body type",
        examples=["xml", "VT_BSTR"],
    )
    headers: dict[str, str | None] | None = Field(
        default=None, description="Headers of the formats nservicebus and rebus"
    )
    label: MessageLabel = ""
    recoverable: bool = True
    priority: int = DEFAULTS["priority"]
    body_type: int = 0
    app_specific: int = 0
    correlation_identifier: str | None = Field(
        default=None, pattern=r"^[0-9A-Fa-f]{40}$", description="20 bytes, hexadecimal"
    )
    extension: str | None = Field(default=None, description="Bytes beside the body, as base64", examples=["AAEC"])
    acknowledgements_requested: int = 0
    administration_queue: str | None = Field(default=None, max_length=512, description="Format name")
    response_queue: str | None = Field(default=None, max_length=512, description="Format name")
    administration_queues: list[str] | None = Field(
        default=None, max_length=MAXIMUM_QUEUES, description="Format names of several, instead of the one"
    )
    response_queues: list[str] | None = Field(
        default=None, max_length=MAXIMUM_QUEUES, description="Format names of several, instead of the one"
    )
    journal: bool = False
    dead_letter: bool = False
    dead_letter_queue: str | None = Field(
        default=None, max_length=256, description="Queue of this node that keeps it then", examples=["undelivered"]
    )
    time_to_reach_queue: int | None = Field(default=None, ge=0, lt=INFINITE, description="Seconds")
    time_to_be_received: int | None = Field(default=None, ge=0, lt=INFINITE, description="Seconds")
    deliver_at: AwareDatetime | None = Field(
        default=None,
        description="It waits in the queue `delayed$` of this node until then, and its time limits count from then",
        examples=["2026-12-24T18:00:00+01:00"],
    )
    deliver_in: float | None = Field(default=None, description="The same, as seconds from now")

    @field_validator("base64", "extension")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise ValueError(f"not base64: {error}") from None
        return value

    @field_validator("acknowledgements_requested", "app_specific", "body_type", "priority", mode="before")
    @classmethod
    def _is_permitted(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and (sentence := fault(str(info.field_name), value)):
            raise ValueError(sentence)
        return value

    @model_validator(mode="after")
    def _has_one_delivery_time(self) -> Self:
        if self.deliver_at is not None and self.deliver_in is not None:
            raise ValueError("deliver_at and deliver_in say when to deliver it: give one of them")
        for name, value in self._delivery().items():
            if sentence := fault(name, value):
                raise ValueError(sentence)
        return self

    def _delivery(self) -> dict[str, float]:
        at = None if self.deliver_at is None else self.deliver_at.timestamp()
        found = {"deliver_at": at, "deliver_in": self.deliver_in}
        return {name: value for name, value in found.items() if value is not None}

    @model_validator(mode="after")
    def _names_one_or_several(self) -> Self:
        for kind in ("administration", "response"):
            if getattr(self, f"{kind}_queue") and getattr(self, f"{kind}_queues"):
                raise ValueError(f"{kind}_queue is one queue and {kind}_queues are several: give one of them")
        return self

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        if self.base64 is not None and self.text is not None:
            raise ValueError("a body is base64 or text, not both")
        if self.format is None and (self.headers or self.value is not None):
            raise ValueError("value and headers need a format")
        if self.format is not None:
            self._check_format(self.format)
        return self

    def _check_format(self, name: str) -> None:
        if self.base64 is not None or self.text is not None or self.body_type:
            raise ValueError(
                "a format writes the value, and chooses the body type: leave out base64, text and body_type"
            )
        made = encode(value_of_json(self.value, name), name, headers=self.headers)
        if made.extension and self.extension:
            raise ValueError(f"the format {name} puts headers into the extension: leave it out")

    def body(self) -> bytes:
        """The bytes of the body, decoded from text or base64."""
        if self.base64 is not None:
            return base64.b64decode(self.base64)
        return (self.text or "").encode(self.encoding, "surrogatepass")

    def message(self) -> Message:
        """As the model takes it."""
        message = Message(self.body(), body_type=self.body_type)
        if self.format is not None:
            value = value_of_json(self.value, self.format)
            message = Message.from_value(value, format=self.format, headers=self.headers)
        given: dict[str, Any] = {row.name: getattr(self, row.key or row.name) for row in _TAKEN}
        given |= named_queues("administration", self.administration_queues or [self.administration_queue or ""])
        given |= named_queues("response", self.response_queues or [self.response_queue or ""])
        if self.dead_letter_queue:
            given["application_dead_letter_queue"] = queue_name(self.dead_letter_queue)
        if self.extension:
            given["extension"] = base64.b64decode(self.extension)
        if self.correlation_identifier:
            given["correlation_identifier"] = bytes.fromhex(self.correlation_identifier)
        return message.copy(**{name: value for name, value in given.items() if value is not None}, **self._delivery())


_TAKEN: Final = [
    row
    for row in MESSAGE.values()
    if (row.key or row.name) in NewMessage.model_fields and (row.form in (FLAG, LABEL) or row.form.type is int)
    if row.name != "body_type"
]
"""Properties that are taken as they are given."""


class MessageDocument(Document):
    """A message in a queue, or received from one."""

    model_config = ConfigDict(json_schema_extra=described(MESSAGE.values()))

    lookup_identifier: str = Field(examples=["0x400000000000012"])
    identifier: str = Field(examples=[r"7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\65537"])
    label: str
    body_size: int
    base64: str | None = Field(default=None, description="Body, if it was asked for and is not shown as text")
    text: str | None = Field(default=None, description="Body, if text was asked for and it is text")
    body_type: int
    priority: int
    recoverable: bool
    transactional: bool
    message_class: str = Field(description="Of a dead letter, the reason why it is one")
    app_specific: int
    correlation_identifier: str | None
    acknowledgements_requested: int = 0
    journal: bool = False
    dead_letter: bool = False
    tracing: bool = False
    tracing_queue: str | None = None
    sent_time: datetime | None
    delivery_time: datetime | None = None
    arrival_time: datetime | None
    destination: str
    administration_queue: str | None
    response_queue: str | None
    destinations: list[str] | None = None
    administration_queues: list[str] | None = None
    response_queues: list[str] | None = None
    time_to_reach_queue: int | None
    time_to_be_received: int | None
    dead_letter_queue: str | None = None
    aborted_receives: int
    next_try: datetime | None = Field(default=None, description="When a held message may be received again")
    moves: int = 0
    extension_size: int = Field(default=0, description="Bytes beside the body")
    extension: str | None = Field(default=None, description="Those bytes as base64, if the body was asked for")
    source_queue_manager: str | None = None
    destination_queue_manager: str | None = None
    transaction_identifier: int | None = None
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    sequence: str | None = None
    sequence_number: int | None = None
    previous_sequence_number: int | None = None
    final_acknowledgment: bool = False
    allow_peek_when_locked: bool = False
    connector_type: str | None = None
    connector_queue_manager: str | None = None
    soap_header: str | None = None
    soap_body: str | None = None
    privacy_level: str = "NONE"
    encryption_algorithm: str | None = Field(default=None, examples=["AES256"])
    hash_algorithm: str | None = Field(default=None, examples=["SHA_512"])
    authentication_level: str = "NONE"
    is_signed: bool = Field(default=False, description="Whether it has a signature")
    sender_certificate: str | None = Field(default=None, description="As base64, if the body was asked for")
    authentication_provider: str | None = None
    authentication_provider_type: int | None = None
    sender_queue_manager: str | None = Field(
        default=None, description="Identifier of the node that is proved to have sent it"
    )
    authenticated: bool = Field(default=False, description="Whether its signature proved who sent it")
    sender: str | None = Field(default=None, description="SID of who is proved to have sent it")
    claimed_sender: str | None = Field(default=None, description="SID that it names as its sender without any proof")
    unreadable: str | None = Field(
        default=None, description="Why the packet could not be read whole; what could not be read has its default"
    )
    packet: str | None = Field(
        default=None, description="All of an unreadable message, as base64, if its body was asked for"
    )

    format: str | None = Field(
        default=None, description="Format of the body, if decoded was asked for: xml, binary, wcf, VT_BSTR ..."
    )
    decoded: Any = Field(default=None, description="The body as a value, if decoded was asked for and it has one")
    undecoded: str | None = Field(
        default=None, description="Why it has none, or `headers` lacks some, though decoded was asked for"
    )
    headers: dict[str, str | None] | None = Field(
        default=None, description="Those in the extension, if decoded was asked for; null for one without a value"
    )
    headers_format: str | None = Field(default=None, description="Whose headers they are", examples=["nservicebus"])

    @classmethod
    def of(cls, message: Message, body: BodyForm = BodyForm.NONE, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Make the document from the object of the model."""
        correlation = message.correlation_identifier
        text = body_text(message) if body in (BodyForm.TEXT, BodyForm.DECODED) else None
        is_with_body = body is not BodyForm.NONE
        return cls(
            **{key: write(getattr(message, name)) for key, name, write in _SHOWN},
            lookup_identifier=lookup_text(message.lookup_identifier),
            identifier=identifier_text(message.identifier),
            body_size=len(message.body),
            base64=_base64(message.body) if is_with_body and text is None else None,
            text=text,
            message_class=reason(message),
            correlation_identifier=correlation.hex() if any(correlation) else None,
            destination=_writable(message.destination_queue_format_name),
            extension_size=len(message.extension),
            extension=_base64(message.extension) if is_with_body and message.extension else None,
            **(_place_in_transaction(message) if message.transactional else {}),
            is_signed=bool(message.signature),
            sender_certificate=_base64(message.sender_certificate)
            if is_with_body and message.sender_certificate
            else None,
            authentication_provider_type=message.authentication_provider_type or None,
            sender_queue_manager=_sending_queue_manager(message),
            authenticated=bool(message.authentication_level),
            sender=_sender(message),
            claimed_sender=_sid(message.claimed_sender),
            packet=_base64(message.packet) if is_with_body and message.unreadable else None,
            **(_decoded(message, limits) if body is BodyForm.DECODED else {}),
        )


_BY_FORM: Final[tuple[tuple[Form, Callable[[Any], Any]], ...]] = (
    (TEXT, lambda text: _writable(text) or None),
    (NAMES, lambda names: _writable(names).split(",") if names else None),
    (TIME, time_or_none),
    (SECONDS, quota_or_none),
)
_OTHERWISE: Final = frozenset((
    "lookup_identifier", "message_class", "destination", "authentication_provider_type", "sender_queue_manager",
    "transaction_identifier", "first_in_transaction", "last_in_transaction", "sequence_number",
    "previous_sequence_number", "final_acknowledgment",
))  # fmt: skip
"""Keys whose values depend on more than the property. Those of bytes do, too."""
_SHOWN: Final = [
    (key, row.name, next((write for form, write in _BY_FORM if form is row.form), row.form.write))
    for row in MESSAGE.values()
    if (key := row.key or row.name) in MessageDocument.model_fields
    and key not in _OTHERWISE
    and row.form.type is not bytes
]
"""Key, property and what writes its value."""


def list_answer(name: str, items: list[bytes], rest: dict[str, Any]) -> Response:
    """The answer that is an object of a list, whose items are JSON already, and of other members."""
    parts = [b'{"', name.encode(), b'":[', b",".join(items), b"]", b"," if rest else b"", to_json(rest)[1:]]
    return Response(b"".join(parts), media_type="application/json")


_LARGE: Final = 256 * 1024
"""Bytes of a body from which the document is made in a thread: to decode them may take longer than a turn should."""


async def document_of(message: Message, body: BodyForm, limits: Limits) -> MessageDocument:
    """As ``MessageDocument.of``, in a thread if the body that is shown is large."""
    if body is BodyForm.NONE or len(message.body) + len(message.extension) < _LARGE:
        return MessageDocument.of(message, body, limits)
    return await asyncio.to_thread(MessageDocument.of, message, body, limits)


def _place_in_transaction(message: Message) -> dict[str, Any]:
    """The fields of a document that say where in its transaction and its sequence a message is."""
    return {
        "transaction_identifier": message.transaction_identifier,
        "first_in_transaction": message.first_in_transaction,
        "last_in_transaction": message.last_in_transaction,
        "sequence": f"{int.from_bytes(message.transactional_message_sequence_identifier, 'little'):016x}",
        "sequence_number": message.transaction_sequence_number,
        "previous_sequence_number": message.transaction_previous_sequence_number,
        "final_acknowledgment": message.final_ack_required,
    }


def _writable(text: str) -> str:
    """The text without halves of surrogate pairs, which no JSON can have; labels are read so already."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _sending_queue_manager(message: Message) -> str | None:
    is_one = message.sender_identifier_type == SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
    return guid_or_none(Guid(message.sender_identifier)) if is_one and len(message.sender_identifier) == 16 else None


def _decoded(message: Message, limits: Limits) -> dict[str, Any]:
    """The fields of a document that say what the body and the headers are."""
    headers = read_headers(message.extension, limits=limits)
    decoded = decode(message.body, message.body_type, limits=limits, headers=headers.values)
    fields: dict[str, Any] = {"format": decoded.format or None, "decoded": plain_body(decoded.value, decoded.format)}
    if decoded.reason or headers.reason:
        fields["undecoded"] = undecoded(decoded, headers)
    if headers.format:
        fields |= {"headers": plain(headers.values), "headers_format": headers.format}
    return fields


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def export_line(queue: str, message: Message, limits: Limits) -> str:
    """A line of an export: ``exported`` as JSON, made in a thread if the message is large."""
    if len(message.packet) < _LARGE:
        return json.dumps(exported(queue, message, limits)) + "\n"
    return await asyncio.to_thread(lambda: json.dumps(exported(queue, message, limits)) + "\n")


def exported(queue: str, message: Message, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """A message as a line of an export: where it was, all properties, the decoded body, and the whole packet."""
    document = MessageDocument.of(message, BodyForm.DECODED, limits).model_dump(mode="json")
    return {"queue": queue} | document | {"packet": _base64(message.packet)}


def _sender(message: Message) -> str | None:
    if not message.authentication_level or message.sender_identifier_type != SenderIdentifierType.SID:
        return None
    return _sid(message.sender_identifier)


def _sid(encoded: bytes) -> str | None:
    try:
        return str(Sid.parse(encoded))
    except PacketError:
        return None


def body_text(message: Message) -> str | None:
    """The body as text, if it is."""
    encoding = "utf-16-le" if is_utf16(message.body_type) else "utf-8"
    try:
        return message.body.decode(encoding)
    except UnicodeDecodeError:
        return None


class MessageList(Document):
    """Messages in the order of delivery."""

    messages: list[MessageDocument]
    next: str | None = Field(default=None, description="If there may be more: 'after' of the next request")

    @staticmethod
    async def answer(
        messages: Iterable[Message], body: BodyForm, limits: Limits = DEFAULT_LIMITS, *, more: bool = False
    ) -> Response:
        """The answer that is this document, made message by message: others work meanwhile.

        ``limits`` is what decoding each message may cost, and ``more`` whether there may be further ones.
        """
        pace, parts, last = Pace(), [], None
        for message in messages:
            document = await document_of(message, body, limits)
            parts.append(to_json(document))
            last = document.lookup_identifier
            await pace.rest()
        return list_answer("messages", parts, {"next": last if more else None})
