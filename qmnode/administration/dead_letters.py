"""Dead letters: what could not be delivered or was not received, listed, sent again, or written out."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing

from qmnode.administration.browsing import browse, unit_for
from qmnode.administration.queue_names import DEAD_LETTERS, TRANSACTIONAL_DEAD_LETTERS, format_name
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueApi, QueueManagerApi
from qmnode.model.message import Message
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode

DEAD_LETTER_QUEUES = (DEAD_LETTERS, TRANSACTIONAL_DEAD_LETTERS)


def reason(message: Message) -> str:
    """Why a message is a dead letter: the name of its class (MS-MQMQ 2.2.18.1.6), which says what happened."""
    try:
        return MessageClass(message.message_class).name
    except ValueError:
        return f"0x{message.message_class:04X}"


async def dead_letters(manager: QueueManagerApi) -> AsyncGenerator[Message, None]:
    """All of them, those of transactions last. Each has its original destination and, as class, the reason."""
    for name in DEAD_LETTER_QUEUES:
        async with (
            await manager.open_queue(format_name(name), Access.PEEK) as queue,
            aclosing(browse(queue)) as messages,
        ):
            async for message in messages:
                yield message


async def retry(manager: QueueManagerApi, lookup_identifier: int, destination: str | None = None) -> bytes:
    """Send a dead letter again, to where it was sent or to ``destination``, and take it out; its new identifier.

    A transactional one goes in one transaction. Of others the copy is sent first, so that a crash in between leaves it
    twice and never loses it. MQ_ERROR_MESSAGE_NOT_FOUND if there is no such dead letter.
    """
    async with AsyncExitStack() as stack:
        source, message = await _find(manager, stack, lookup_identifier)
        name = format_name(destination) if destination else message.destination_queue_format_name
        was_transactional = message.transactional
        unit = await unit_for(manager, name, True if was_transactional and destination is None else None)
        # It is a normal message again: the class said why it died.
        message.message_class = MessageClass.MQMSG_CLASS_NORMAL
        target = await stack.enter_async_context(await manager.open_queue(name, Access.SEND))
        if unit is not None and was_transactional:
            async with manager.transaction() as transaction:
                identifier = await target.send(message, transaction)
                await source.receive_by_lookup_id(lookup_identifier, transaction)
            return identifier
        identifier = await target.send(message, unit)
        await source.receive_by_lookup_id(lookup_identifier)
        return identifier


async def _find(manager: QueueManagerApi, stack: AsyncExitStack, lookup_identifier: int) -> tuple[QueueApi, Message]:
    for name in DEAD_LETTER_QUEUES:
        queue = await stack.enter_async_context(await manager.open_queue(format_name(name), Access.RECEIVE))
        try:
            return queue, await queue.peek_by_lookup_id(lookup_identifier)
        except MessageQueuingError as error:
            if error.code != ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND:
                raise
    raise MessageQueuingError(
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no dead letter {lookup_identifier:#x}: list them again"
    )


async def chosen(
    manager: QueueManagerApi, lookup_identifiers: Iterable[int] | None, limit: int | None = None
) -> list[int]:
    """The given lookup identifiers, or those of all dead letters that there are now; the first ``limit`` of them."""
    if lookup_identifiers is not None:
        return list(lookup_identifiers)[:limit]
    found: list[int] = []
    async with aclosing(dead_letters(manager)) as messages:
        async for message in messages:
            if len(found) == limit:
                break
            found.append(message.lookup_identifier)
    return found
