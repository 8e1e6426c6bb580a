"""Message, MS-MQDMPR 3.1.1.12: the unit that applications send and receive.

A message stores only the properties that were set; all others read as their default. A received message keeps its
packet (MS-MQMQ 2.2.20) and parses it when a property is first read, so that forwarding a message costs no parsing.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from qmnode.errors import MessageQueuingError
from qmnode.objects.message_table import BYTES, LABEL, MESSAGE, NAMES, TEXT
from qmnode.objects.rows import FLAG, NO_QUOTA, Changes, Door, Form
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from qmnode.bodies.choice import Decoded, Headers
    from qmnode.bodies.limits import Limits

PERMITTED: Final[Mapping[str, Form]] = {
    row.name: row.form
    for row in MESSAGE.values()
    if row.changes is not Changes.NEVER and row.form not in (FLAG, TEXT, NAMES, BYTES, LABEL)
}
"""Properties whose values have limits, apart from those of text (``qmnode.model.serialization``)."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    row.name: (bytes, bytearray, memoryview) if row.form is BYTES else (str, type(None))
    for row in MESSAGE.values()
    if row.changes is not Changes.NEVER and row.form in (TEXT, NAMES, BYTES)
}
"""Properties that are texts or bytes, whose contents are checked where they are written, as labels are altogether."""


def fault(name: str, value: object) -> str | None:
    """The sentence with what is allowed, if the property cannot have the value."""
    return MESSAGE[name].fault(value)


def check_values(properties: Mapping[str, Any]) -> None:
    """Raise MQ_ERROR_ILLEGAL_PROPERTY_VALUE if one of the properties of a message has a value that it cannot have;
    TypeError if it is no text, or no bytes, where it has to be.
    """
    for name in properties:
        if name in PERMITTED:
            if not PERMITTED[name].holds(properties[name]):
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, fault(name, properties[name]) or name
                )
        elif name in _TYPES and not isinstance(properties[name], _TYPES[name]):
            what = "bytes" if bytes in _TYPES[name] else "a text"
            raise TypeError(f"{name}={properties[name]!r:.80}: expected {what}, not {type(properties[name]).__name__}")


INFINITE: Final = NO_QUOTA
"""A time in seconds that never passes, and a quota that is never reached."""

MAXIMUM_PRIORITY: Final = 7
DEFAULT_PRIORITY: Final[int] = MESSAGE["priority"].default


class DeliveryGuarantee(IntEnum):
    """DeliveryGuarantee: whether a message survives a restart of the queue manager. Values of UserHeader.Flags.DM."""

    EXPRESS = 0
    RECOVERABLE = 1


class Acknowledgment(IntFlag):
    """AcknowledgementsRequested: bits of MessagePropertiesHeader.Flags (MS-MQMQ 2.2.19.3)."""

    NONE = 0x00
    POSITIVE_ARRIVAL = 0x01
    POSITIVE_RECEIVE = 0x02
    NEGATIVE_ARRIVAL = 0x04
    NEGATIVE_RECEIVE = 0x08
    NACK_REACH_QUEUE = 0x04
    FULL_REACH_QUEUE = 0x05
    NACK_RECEIVE = 0x0C
    FULL_RECEIVE = 0x0E


class MessageProperties(TypedDict, total=False):
    """Properties that a sender may set beside the body. Times are in seconds, format names are text (MS-MQMQ 2.1)."""

    # properties: message, what a sender sets
    label: str
    recoverable: bool
    priority: int
    body_type: int
    app_specific: int
    correlation_identifier: bytes
    extension: bytes
    message_class: int
    acknowledgements_requested: int
    administration_queue_format_name: str
    response_queue_format_name: str
    administration_multi_queue_format_name: str
    response_multi_queue_format_name: str
    positive_journaling_requested: bool
    negative_journaling_requested: bool
    time_to_reach_queue: int
    time_to_be_received: int
    deliver_at: float
    deliver_in: float
    tracing_requested: bool
    tracing_queue_identifier: Guid
    soap_header: str
    soap_body: str
    allow_peek_when_locked: bool
    application_dead_letter_queue: str
    connector_type_identifier: Guid
    privacy_level: int
    authentication_level: int
    hash_algorithm: int
    encryption_algorithm: int
    sender_identifier_type: int
    sender_identifier: bytes
    sender_certificate: bytes
    signature: bytes
    symmetric_key: bytes
    authentication_provider_type: int
    authentication_provider_name: str
    # end of properties


DEFAULTS: Final[dict[str, Any]] = MESSAGE.defaults(Door.NODE)

_ASSIGNED: Final = tuple(row.name for row in MESSAGE.values() if row.changes is Changes.NEVER)
"""Properties that a message loses when it is sent again."""

_SETTABLE: Final = frozenset(DEFAULTS) - frozenset(_ASSIGNED)
"""Properties that a sender may set."""

_SIGNED: Final = (
    "authentication_level",
    "authentication_provider_name",
    "authentication_provider_type",
    "sender_certificate",
    "sender_identifier",
    "sender_identifier_type",
    "signature",
    "symmetric_key",
)
"""The security properties of a received message, from its security header."""

_UNCHECKED: Final = ("acknowledgements_requested", "encryption_algorithm", "hash_algorithm")
"""Properties for which a received packet may have any number."""


class Message:
    """A message. ``Message(b"body", label="order 7", recoverable=True)``.

    The properties are those of MS-MQDMPR 3.1.1.12 in snake_case; `help` has a sentence for each. Those that
    :class:`MessageProperties` lacks are set by the queue manager and are read on messages that came out of a queue.
    """

    # properties: message, types
    body: bytes
    label: str
    recoverable: bool
    priority: int
    body_type: int
    app_specific: int
    correlation_identifier: bytes
    extension: bytes
    message_class: int
    acknowledgements_requested: int
    administration_queue_format_name: str
    response_queue_format_name: str
    administration_multi_queue_format_name: str
    response_multi_queue_format_name: str
    positive_journaling_requested: bool
    negative_journaling_requested: bool
    time_to_reach_queue: int
    time_to_be_received: int
    deliver_at: float
    deliver_in: float
    tracing_requested: bool
    allow_peek_when_locked: bool
    application_dead_letter_queue: str
    connector_type_identifier: Guid
    privacy_level: int
    authentication_level: int
    hash_algorithm: int
    encryption_algorithm: int
    sender_identifier_type: int
    sender_identifier: bytes
    sender_certificate: bytes
    signature: bytes
    symmetric_key: bytes
    authentication_provider_type: int
    authentication_provider_name: str
    identifier: bytes
    lookup_identifier: int
    arrival_time: float
    sent_time: int
    delivery_time: float
    source_machine_identifier: Guid
    destination_queue_manager_identifier: Guid
    destination_queue_format_name: str
    destination_multi_queue_format_name: str
    transactional: bool
    transaction_identifier: int
    transactional_message_sequence_identifier: bytes
    transaction_sequence_number: int
    transaction_previous_sequence_number: int
    first_in_transaction: bool
    last_in_transaction: bool
    final_ack_required: bool
    connector_queue_manager_identifier: Guid
    soap_header: str
    soap_body: str
    tracing_queue_identifier: Guid
    aborted_receives: int
    next_try: int
    move_count: int
    claimed_sender: bytes
    packet: bytes
    unreadable: str
    # end of properties

    def __init__(self, body: bytes = b"", **properties: Unpack[MessageProperties]) -> None:
        attributes = self.__dict__
        attributes["body"] = body
        if properties:
            if not properties.keys() <= _SETTABLE:
                raise TypeError(_not_settable(properties))
            attributes.update(properties)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _SETTABLE:
            raise AttributeError(_not_settable((name,)))
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        if "_load" in attributes and name in DEFAULTS:
            attributes["_load"](self, name)
            if name in attributes:
                return attributes[name]
        try:
            return DEFAULTS[name]
        except KeyError:
            raise AttributeError(f"a message has no property {name!r}{_suggestion(name)}") from None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if "_value" in state:  # a large one may be a view
            state["_value"] = bytes(state["_value"])
        return state

    @classmethod
    def from_value(
        cls,
        value: Any,
        *,
        format: str = "xml",
        headers: Mapping[str, str | None] | None = None,
        code_page: str = "cp1252",
        **properties: Unpack[MessageProperties],
    ) -> "Message":
        """Create a message with a value as its body, in a format that .NET programs read.

        ``format``: ``xml`` (XmlMessageFormatter), ``activex`` (ActiveXMessageFormatter, which chooses the body type), a
        body type such as ``VT_BSTR``, ``wcf`` (netMsmqBinding), ``json``, ``text``, or ``nservicebus`` and ``rebus``,
        which are text, bytes or JSON with ``headers``. ``code_page`` is that of VT_LPSTR. Raises ValueError if the
        format cannot represent the value.
        """
        from qmnode.bodies.choice import encode

        body, body_type, extension = encode(value, format, headers=headers, code_page=code_page)
        message = cls(body, **properties)
        message.body_type = body_type
        if extension:
            message.extension = extension
        return message

    def decoded(
        self, *, format: str | None = None, code_page: str = "cp1252", limits: "Limits | None" = None
    ) -> "Decoded":
        """Return the body as a value, with the name of its format: the given one, or the one recognised by body type
        and content.

        Never raises: ``reason`` says why there is no value, and ``body`` has the bytes. ``code_page`` is that of
        VT_LPSTR, which the message does not name. Headers of NServiceBus and Rebus say whether the body is compressed,
        and which encoding its text has. ``limits`` bounds the cost (``qmnode.bodies.limits.Limits``).
        """
        from qmnode.bodies.choice import decode, read_headers
        from qmnode.bodies.limits import DEFAULT_LIMITS

        limits = limits or DEFAULT_LIMITS
        headers = read_headers(self.extension, limits=limits).values
        return decode(self.body, self.body_type, format=format, code_page=code_page, limits=limits, headers=headers)

    @property
    def headers(self) -> Mapping[str, str | None]:
        """Headers of NServiceBus or Rebus, which are carried in ``extension``; empty if there are none. One
        without a value is None. Of damaged ones, those that can be read: see ``undecoded_headers``.
        """
        return self._read_headers().values

    @property
    def traceparent(self) -> str:
        """The sender's W3C trace context from the headers, a parent for the receiver's own span; empty without a valid
        one.
        """
        from qmnode.bodies.trace_context import find

        found = find(self.extension)
        return "" if found is None else str(found)

    def with_traceparent(self, traceparent: str) -> "Message":
        """Copy the message for sending, with a W3C trace context (``00-TRACE-SPAN-01``) among its headers.

        A signature covers it. Nodes export the spans of the message as children of it, and never change it. Raises
        ValueError for a text that is none, and if ``extension`` has other bytes than headers.
        """
        from qmnode.bodies.choice import add_headers
        from qmnode.bodies.trace_context import TRACEPARENT, parse

        if (context := parse(traceparent)) is None:
            raise ValueError(
                f"{traceparent!r:.80} is no traceparent: write 00-TRACE-SPAN-FLAGS, of 32, 16 and 2 digits"
            )
        return self.copy(extension=add_headers(self.extension, {TRACEPARENT: str(context)}))

    @property
    def undecoded_headers(self) -> str:
        """Why some headers could not be read: what is damaged, and where; empty if nothing is."""
        return self._read_headers().reason

    def _read_headers(self) -> "Headers":
        from qmnode.bodies.choice import read_headers
        from qmnode.bodies.limits import CARRIED

        return read_headers(self.extension, limits=CARRIED)

    def reply(self, body: bytes = b"", **properties: Unpack[MessageProperties]) -> "Message":
        """Create an answer to this message, to be sent to its ``response_queue_format_name``.

        Its correlation identifier is this message's identifier, as in System.Messaging.
        """
        answer = Message(body, **properties)
        answer.correlation_identifier = self.identifier
        return answer

    def copy(self, **changes: Any) -> "Message":
        """Copy the message for sending, with some properties changed.

        Raises TypeError for a name that is none of a property that a sender may set.
        """
        if not changes.keys() <= _SETTABLE:
            raise TypeError(_not_settable(changes))
        if "_load" in self.__dict__:
            self.__dict__["_load"](self, "packet")
        copy = Message.__new__(Message)
        copy.__dict__.update(self.__dict__)
        for name in _ASSIGNED:
            copy.__dict__.pop(name, None)
        if "lookup_identifier" in self.__dict__:
            for name in _SIGNED:  # another queue manager's signature does not cover a message that is sent on
                copy.__dict__.pop(name, None)
            for name in _UNCHECKED:  # a peer's packet may have values that no sender here may set
                if name in copy.__dict__ and fault(name, copy.__dict__[name]):
                    del copy.__dict__[name]
        copy.__dict__.update(changes)
        return copy

    @property
    def delivery_guarantee(self) -> DeliveryGuarantee:
        """DeliveryGuarantee; ``recoverable`` is the same as a Boolean."""
        return DeliveryGuarantee.RECOVERABLE if self.recoverable else DeliveryGuarantee.EXPRESS

    def __repr__(self) -> str:
        return f"<Message {self.label!r}, {len(self.body)} bytes, lookup {self.lookup_identifier:#x}>"


Message.__doc__ = f"{Message.__doc__}\n" + "\n".join(f"    {row.name}: {row.sentence}." for row in MESSAGE.values())


def _not_settable(names: Iterable[str]) -> str:
    name = next(name for name in names if name not in _SETTABLE)
    if name in DEFAULTS:
        return f"the queue manager assigns {name!r}: a sender cannot set it"
    return f"a message has no property {name!r}{_suggestion(name)}"


def _suggestion(name: str) -> str:
    near = nearest(name, _SETTABLE)
    return "" if near is None else f", did you mean {near}?"
