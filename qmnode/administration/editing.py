"""Editing a message: another one with the same content, but for what is changed, takes its place."""

from collections.abc import Mapping
from typing import Any, Final

from qmnode.administration.promises import TransferMode
from qmnode.administration.transfers import Targets, is_foreign
from qmnode.bodies.choice import encode, read_headers, write_headers
from qmnode.bodies.limits import BodyError
from qmnode.bodies.typed_text import value_of_json
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.message import Message, fault
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode

EDITABLE: Final = (
    "body", "label", "body_type", "extension", "app_specific", "priority", "recoverable", "correlation_identifier",
    "response_queue_format_name", "administration_queue_format_name", "acknowledgements_requested",
    "positive_journaling_requested", "negative_journaling_requested", "time_to_reach_queue", "time_to_be_received",
)  # fmt: skip
"""Properties that an edit may set, beside ``value`` with ``format``, and ``headers``."""


async def edit(
    manager: QueueManager,
    name: str,
    lookup_identifier: int,
    changes: Mapping[str, Any],
    target: str,
    *,
    keep: bool,
    dry_run: bool,
    caller: object,
) -> dict[str, Any]:
    """Send a changed copy to the queue or to the target, and take the message out in the same write unless it is kept.

    The answer says what could not be kept; a dry run says it before.
    """
    source = manager.names.find(name)
    if not manager.opening.may_open(source, Access.PEEK if keep else Access.RECEIVE, caller):
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{source.pathname}: its messages are not yours")
    value = source.value_of(lookup_identifier)
    if value is None:
        raise _gone(lookup_identifier, source.pathname)
    message = received_message(lookup_identifier, value)
    if message.unreadable:
        raise _bad(f"the message is unreadable ({message.unreadable}): it can be moved and deleted")
    properties = _properties(message, changes)
    targets = Targets(manager, caller, message.transactional)
    try:
        into = await targets.open(target or source.pathname)
        # Another reader may have taken it while the target was opened.
        if source.deleted or source.value_of(lookup_identifier) != value:
            raise _gone(lookup_identifier, source.pathname)
        targets.plan(source, into, lookup_identifier, message, copies=True)
        if is_foreign(source, value) and not keep:
            raise _bad("it is another machine's message on its way: keep it, and send the changed one beside it")
        answer: dict[str, Any] = {"lost": lost(message), "target": into.name, "identifier": "", "to_lookup": 0}
        if dry_run:
            return answer
        manager.store.check()
        changed = message.copy(**properties)
        outcome = targets.put(source, into, lookup_identifier, value, TransferMode.ANEW, changed, copies=keep)
    except ValueError as error:
        raise _bad(str(error)) from None
    finally:
        await targets.close()
    await manager.store.durable()
    return answer | {"identifier": outcome.identifier.hex(), "to_lookup": outcome.lookup_identifier}


def lost(message: Message) -> list[str]:
    """Return in sentences the properties that an edited message does not keep."""
    sentences = ["it gets another identifier, and the time of now as its time of sending"]
    if message.authentication_level or message.signature or message.claimed_sender:
        sentences.append("its signature and its sender are lost: this node sends it")
    if message.privacy_level:
        sentences.append("its encryption is lost")
    if message.transactional:
        sentences.append("it leaves its transaction and its place in the sequence: it is sent in a transaction alone")
    if message.aborted_receives or message.move_count:
        sentences.append("the counts of its aborted receives and moves begin again")
    return sentences


def _properties(message: Message, changes: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, value in changes.items():
        if name in ("value", "format", "headers"):
            continue
        if name not in EDITABLE:
            raise _bad(f"{name!r:.80} cannot be edited: use value, headers, {', '.join(EDITABLE)}")
        if sentence := fault(name, value):
            raise _bad(sentence)
        properties[name] = value
    try:
        if "value" in changes:
            properties |= _encoded(message, changes)
        if "headers" in changes:
            properties["extension"] = _extension(message, changes["headers"])
    except BodyError as error:
        raise _bad(str(error)) from None
    if not properties:
        raise _bad("nothing is changed: name a property, a value or a header")
    return properties


def _encoded(message: Message, changes: Mapping[str, Any]) -> dict[str, Any]:
    form = changes.get("format") or message.decoded().format
    if not isinstance(form, str):
        raise _bad(f"format is the name of one, not {form!r:.80}")
    if not form:
        raise _bad("the body has an unknown format: name the format of the value")
    made = encode(value_of_json(changes["value"], form), form)
    return {"body": made.body, "body_type": made.body_type or message.body_type}


def _extension(message: Message, wanted: object) -> bytes:
    """The headers of the message with some set, and those without a value gone."""
    if not isinstance(wanted, Mapping):
        raise _bad("headers are names with values")
    headers = read_headers(message.extension)
    if headers.reason:
        raise _bad(f"the headers cannot be read: {headers.reason}")
    if message.extension and not headers.format:
        raise _bad("the message has an extension that has no headers: edit the extension")
    kept = {name: value for name, value in headers.values.items() if wanted.get(name, "") is not None}
    changed = {name: value for name, value in wanted.items() if value is not None}
    return write_headers(kept | changed, headers.format or "nservicebus")


def _gone(lookup_identifier: int, pathname: str) -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no message {lookup_identifier:#x} in {pathname} to edit"
    )


def _bad(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence)
