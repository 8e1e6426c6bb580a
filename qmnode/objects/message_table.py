"""The rows of a message: what senders may ask for, and what queue managers say of it.

Rows without a section are of MS-MQDMPR 3.1.1.12. Times are in seconds, format names are text (MS-MQMQ 2.1).
"""

from enum import IntEnum
from typing import Any, Final

from qmnode.objects.rows import FLAG, GUID, Changes, Door, Form, Kind, Property, Rows, number, octets, text
from qmnode.structures.enumerations import (
    CUSTOM_CLASS_MASK,
    AuthenticationLevel,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    PrivacyLevel,
    SenderIdentifierType,
    is_permitted,
)
from qmnode.structures.guid import ZERO_GUID

LONGEST_MESSAGE_LABEL: Final = 249
"""UTF-16 units (MS-MQMQ 2.2.19.3)."""
FOUR_DAYS: Final = 0x54600
_FOR_EVER: Final = 0xFFFFFFFF


def _is_number(value: object) -> bool:
    """Whether a value is a number; one that is not finite passes no comparison."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def enumeration(kind: type[IntEnum]) -> Form:
    """One of the members of an enumeration, written by the specification's name. Peers may have others, as numbers."""
    numbers = frozenset(map(int, kind))
    listed = [f"{_hexadecimal(member)} ({member.name})" for member in kind]
    return Form(
        f"{', '.join(listed[:-1])} or {listed[-1]}",
        lambda value: isinstance(value, int) and value in numbers,
        str,
        lambda value: kind(value).name if value in numbers else f"{value:#x}",
        lambda name: kind[name],
        choices={member.name: int(member) for member in kind},
    )


def _hexadecimal(value: int) -> str:
    return f"{value:#x}" if value >= 0x1000 else str(int(value))


TEXT: Final = Form("text", lambda value: isinstance(value, str), str)
NAMES: Final = Form("format names, separated by commas", lambda value: isinstance(value, str), str)
BYTES: Final = octets()
LABEL: Final = text(LONGEST_MESSAGE_LABEL)
_NUMBER: Final = number(0, 0xFFFFFFFF, "a number from 0 to 0xFFFFFFFF")
_COUNT: Final = number(0, 0xFFFFFFFFFFFFFFFF)
_BODY_TYPE: Final = number(0, 0xFFFFFFFF, "a number from 0 to 0xFFFFFFFF, such as 31 (VT_LPWSTR)")
SECONDS: Final = number(0, _FOR_EVER, "seconds, from 0 to 0xFFFFFFFF, which is for ever", "seconds")
_PRIORITY: Final = number(0, 7, "0 to 7")
_ACKNOWLEDGMENTS: Final = number(
    0, 15, "0 to 15, the sum of 1 (arrived), 2 (received), 4 (did not arrive) and 8 (was not received)"
)
_CLASS: Final = Form(
    "one of MessageClass, or bits of 0xE1FF",
    lambda value: isinstance(value, int) and value >= 0 and is_permitted(value),
    int,
    least=0,
    most=CUSTOM_CLASS_MASK,
)
_DELIVERY_TIME: Final = Form(
    "seconds since 1970 (UTC), up to 4294967294",
    lambda value: _is_number(value) and 0 <= value < _FOR_EVER,
    float,
    unit="seconds",
)
_DELAY: Final = Form(
    "seconds, from 0 to 2147483647",
    lambda value: _is_number(value) and 0 <= value <= 0x7FFFFFFF,
    float,
    unit="seconds",
)
TIME: Final = Form("seconds since 1970 (UTC)", lambda value: isinstance(value, int | float), float, unit="seconds")


def _asked(
    name: str, form: Form, default: Any, sentence: str, obeyed_by: str = "model.serialization", **more: Any
) -> Property:
    """A property that the sender sets."""
    fields: dict[str, Any] = {"section": "MS-MQDMPR 3.1.1.12", "doors": Door.NODE}
    return Property(name, form, default, sentence, obeyed_by=f"qmnode.{obeyed_by}", **(fields | more))


def _assigned(
    name: str, form: Form, default: Any, sentence: str, obeyed_by: str = "model.stored_message", **more: Any
) -> Property:
    """A property that the queue manager sets: a message loses it when it is sent again."""
    return _asked(name, form, default, sentence, obeyed_by, changes=Changes.NEVER, **more)


MESSAGE: Final = Rows(
    Kind.MESSAGE,
    (
        _asked("body", BYTES, b"", "What the message carries", key="body_size"),
        _asked("label", LABEL, "", "What it is, for people"),
        _asked(
            "recoverable", FLAG, False, "DeliveryGuarantee: it survives a restart. Transactional messages always do"
        ),
        _asked(
            *("priority", _PRIORITY, 3, "The highest is delivered first. Transactional messages all have 0"),
            "model.positions",
        ),
        _asked("body_type", _BODY_TYPE, 0, "VARENUM constant (MS-MQMQ 2.2.12)", "bodies.choice"),
        _asked("app_specific", _NUMBER, 0, "Number for applications"),
        _asked(
            *("correlation_identifier", octets(20), bytes(20)),
            "Identifier of the message that this one answers, or what applications agree on",
        ),
        _asked("extension", BYTES, b"", "Bytes beside the body"),
        _asked(
            *("message_class", _CLASS, MessageClass.MQMSG_CLASS_NORMAL, "MessageClass: its purpose"),
            section="MS-MQMQ 2.2.18.1.6",
        ),
        _asked(
            *("acknowledgements_requested", _ACKNOWLEDGMENTS, 0),
            *("Bits of Acknowledgment: 1 arrival, 2 receipt, 4 no arrival, 8 no receipt", "model.leaving_queue"),
        ),
        _asked(
            *("administration_queue_format_name", TEXT, "", "Queue for acknowledgments"),
            "model.leaving_queue",
            key="administration_queue",
        ),
        _asked("response_queue_format_name", TEXT, "", "Queue for answers", key="response_queue"),
        _asked(
            *("administration_multi_queue_format_name", NAMES, ""),
            "Several administration queues, separated by commas; each gets every requested acknowledgment, and the "
            "single name defaults to the first of them",
            "model.leaving_queue",
            key="administration_queues",
        ),
        _asked(
            *("response_multi_queue_format_name", NAMES, "", "Several response queues, in the same way"),
            key="response_queues",
        ),
        _asked(
            *("positive_journaling_requested", FLAG, False),
            *("A copy stays in this node's journal when it has been sent", "model.leaving_queue"),
            key="journal",
        ),
        _asked(
            *("negative_journaling_requested", FLAG, False, "It becomes a dead letter if it does not arrive"),
            "model.leaving_queue",
            key="dead_letter",
        ),
        _asked(
            *("time_to_reach_queue", SECONDS, FOUR_DAYS),
            *("Seconds in which it must reach its queue, counted from when it was sent", "model.stored_message"),
        ),
        _asked(
            *("time_to_be_received", SECONDS, _FOR_EVER),
            *("Seconds in which it must be received, counted from when it was sent", "model.stored_message"),
        ),
        _asked(
            *("deliver_at", _DELIVERY_TIME, 0.0),
            "It waits at its source until then: seconds since 1970 (UTC). 0, or a time that has passed, is at once. "
            "Its lifetimes are counted from then",
            "model.delayed_delivery",
            section="an extension",
        ),
        _asked(
            *("deliver_in", _DELAY, 0.0, "The same as seconds from the send, in a transaction from the commit"),
            "model.delayed_delivery",
            section="an extension",
        ),
        _asked(
            *("tracing_requested", FLAG, False, "Nodes on its way report it to the tracing queue"),
            "delivery",
            key="tracing",
        ),
        _asked("allow_peek_when_locked", FLAG, False, "It is shown while a transaction has it", "model.queue"),
        _asked(
            *("application_dead_letter_queue", TEXT, ""),
            "Path name of a queue on the sending computer that keeps the message if it asks for negative journaling, "
            "instead of a system dead-letter queue; transactional if the message is. The destination does not know it",
            "model.leaving_queue",
            key="dead_letter_queue",
        ),
        _asked(
            *("connector_type_identifier", GUID, ZERO_GUID, "GUID that says how a connector reads it"),
            key="connector_type",
        ),
        _asked(
            *("privacy_level", enumeration(PrivacyLevel), PrivacyLevel.NONE),
            *("PrivacyLevel: how the body is encrypted in transit; 0 is not at all", "security.protector"),
        ),
        _asked(
            *("authentication_level", enumeration(AuthenticationLevel), AuthenticationLevel.NONE),
            "AuthenticationLevel: the requested kind of signature. On a received message, the kind that was verified "
            "with a certificate that the directory has for its sender; 0 is none",
            "delivery.signing_and_encryption",
        ),
        # MS-MQMQ 2.2.19.3: "SHA-512 SHOULD be used"; the ADM's SHA-1 and RC4 are what older systems have.
        _asked(
            *("hash_algorithm", enumeration(HashAlgorithm), HashAlgorithm.SHA_512, "What its signature hashes with"),
            "delivery.signing_and_encryption",
        ),
        _asked(
            *("encryption_algorithm", enumeration(EncryptionAlgorithm), EncryptionAlgorithm.AES256),
            *("What its body is encrypted with", "security.protector"),
        ),
        _asked(
            *("sender_identifier_type", enumeration(SenderIdentifierType), SenderIdentifierType.NONE),
            *("SenderIdentifierType: what the identifier of its sender is", "delivery.signing_and_encryption"),
            key="sender_queue_manager",
        ),
        _asked(
            *("sender_identifier", BYTES, b""),
            "The proven sender of a received message: the SID of a user or the GUID of a queue manager. Empty if "
            "nothing is proven, see `claimed_sender`",
            "delivery.signing_and_encryption",
            key="sender",
        ),
        _asked("sender_certificate", BYTES, b"", "Certificate of its sender", "delivery.signing_and_encryption"),
        _asked("signature", BYTES, b"", "Signature of its sender", "delivery.signing_and_encryption", key="is_signed"),
        _asked("symmetric_key", BYTES, b"", "The key of its body, encrypted for its destination"),
        _asked("authentication_provider_type", _NUMBER, 0, "Type of the provider of its signature"),
        _asked(
            *("authentication_provider_name", TEXT, "", "Name of the provider of its signature"),
            key="authentication_provider",
        ),
        _asked("soap_header", TEXT, "", "SOAP header", section="MS-MQMQ 2.2.20.7"),
        _asked("soap_body", TEXT, "", "SOAP body", section="MS-MQMQ 2.2.20.7"),
        _asked(
            *("tracing_queue_identifier", GUID, ZERO_GUID, "GUID of the queue for reports"),
            "delivery",
            key="tracing_queue",
        ),
        _assigned(
            *("identifier", BYTES, b""),
            "OBJECTID (MS-MQMQ 2.2.8): the GUID of the source machine and a little-endian number, unique everywhere",
            "model.open_queue",
        ),
        _assigned(
            *("lookup_identifier", _COUNT, 0),
            *("64 bits, unique within the queue manager; the order of delivery within a queue", "model.positions"),
        ),
        _assigned(
            "arrival_time", TIME, 0.0, "When it arrived in its queue: seconds since 1970 (UTC), with microseconds"
        ),
        _assigned("sent_time", TIME, 0, "When it was sent: seconds since 1970 (UTC)"),
        _assigned(
            *("delivery_time", TIME, 0.0),
            "When it leaves the queue of delayed messages, where it waits: seconds since 1970 (UTC); 0 elsewhere",
            "model.delayed_delivery",
            section="an extension",
        ),
        _assigned(
            *("source_machine_identifier", GUID, ZERO_GUID, "Identifier of the node that sent it"),
            key="source_queue_manager",
        ),
        _assigned(
            *("destination_queue_manager_identifier", GUID, ZERO_GUID),
            "Identifier of the node that it was sent to, if its sender knew it",
            key="destination_queue_manager",
        ),
        _assigned(
            "destination_queue_format_name", TEXT, "", "Format name of the queue that it was sent to", key="destination"
        ),
        _assigned(
            *("destination_multi_queue_format_name", NAMES, "", "Format names, if it was sent to several queues"),
            key="destinations",
        ),
        _assigned("transactional", FLAG, False, "It was sent in a transaction"),
        _assigned("transaction_identifier", _COUNT, 0, "Number of the transaction at its source"),
        _assigned(
            *("transactional_message_sequence_identifier", BYTES, b"", "Identifier of its transactional sequence"),
            key="sequence",
        ),
        _assigned("transaction_sequence_number", _COUNT, 0, "Its number in that sequence", key="sequence_number"),
        _assigned(
            *("transaction_previous_sequence_number", _COUNT, 0, "Number of the message before it"),
            key="previous_sequence_number",
        ),
        _assigned("first_in_transaction", FLAG, False, "It is the first of its transaction"),
        _assigned("last_in_transaction", FLAG, False, "It is the last of its transaction"),
        _assigned("final_ack_required", FLAG, False, "Its source is told of its receipt", key="final_acknowledgment"),
        _assigned(
            *("connector_queue_manager_identifier", GUID, ZERO_GUID, "Identifier of the connector's node"),
            key="connector_queue_manager",
        ),
        _assigned(
            "aborted_receives", _COUNT, 0, "Number of aborted transactions that had received it", "model.stored_message"
        ),
        _assigned(
            *("next_try", TIME, 0),
            "When a message whose last delivery failed may be received again; 0 if it is not held",
            section="an extension",
        ),
        _assigned(
            *("move_count", _COUNT, 0, "Moves between queues of the node since its arrival, without a change"),
            "model.stored_message",
            key="moves",
        ),
        _assigned(
            *("claimed_sender", BYTES, b""),
            "The SID or GUID that a message without proof names as its sender. Any sender can write anything there: "
            "base no decision on it",
            section="an extension",
        ),
        _assigned(
            *("packet", BYTES, b"", "The UserMessage packet of a received message, as transmitted"),
            section="MS-MQMQ 2.2.20",
        ),
        _assigned(
            *("unreadable", TEXT, ""),
            "Why the packet could not be read completely; empty for a sound one. Unreadable properties have their "
            "defaults, and `packet` has all bytes",
            section="an extension",
        ),
    ),
)
