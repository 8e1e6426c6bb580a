"""Creating, deleting and opening queues: MS-MQDMPR 3.1.7.1.3 to 3.1.7.1.6."""

import asyncio
from itertools import product

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueType, Share
from qmnode.security.access_check import Token
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text, new_guid
from qmnode.structures.security_descriptor import EVERYONE, Acl, QueueAccess, SecurityDescriptor, Sid, allow

PATH = r".\private$\orders"
ORDERS = rf"DIRECT=OS:{PATH}"


async def failure(awaitable) -> ErrorCode:
    with pytest.raises(MessageQueuingError) as error:
        await awaitable
    assert str(error.value)
    return error.value.code


async def test_a_queue_is_opened_by_each_of_its_names(qm):
    private = await qm.create_queue(PATH, label="Orders")
    public = await qm.create_queue(r".\news")
    names = [
        ORDERS,
        r"direct=os:alpha\PRIVATE$\Orders",
        r"DIRECT=TCP:127.0.0.1\private$\orders",
        rf"PRIVATE={guid_to_text(qm.identifier)}\{private.private_queue_number:x}",
    ]
    for name in names:
        async with await qm.open_queue(name, Access.SEND) as queue:
            await queue.send(Message(name.encode()))
    async with await qm.open_queue(f"PUBLIC={guid_to_text(public.identifier)}", Access.SEND) as queue:
        await queue.send(Message(b"x"))
    assert (await qm.queue(PATH)).message_count == len(names)
    assert (await qm.queue(r".\news")).message_count == 1
    assert {queue.pathname for queue in await qm.queues([QueueType.PRIVATE, QueueType.PUBLIC])} == {
        r"ALPHA\private$\orders",
        r"ALPHA\news",
    }


async def test_queues_and_their_properties_survive_a_restart(node):
    before = await node.qm.create_queue(
        PATH, label="l", quota=7, journal_quota=8, journaling=True, transactional=True, type=bytes(16)
    )
    await node.qm.set_queue(PATH, label="m")
    qm = await node.crash()
    after = await qm.queue(PATH)
    assert after.label == "m"
    assert (after.quota, after.journal_quota, after.journaling, after.transactional) == (7, 8, True, True)
    assert (after.identifier, after.private_queue_number) == (before.identifier, before.private_queue_number)
    assert (await qm.create_queue(r".\private$\other")).private_queue_number > after.private_queue_number


async def test_a_queue_begins_with_the_defaults_of_the_specification(qm):
    """3.1.7.1.33; the security descriptor of 3.1.7.1.3.1 is the access policy's."""
    queue = await qm.create_queue(PATH)
    assert (queue.label, queue.type, queue.journaling, queue.transactional) == ("", bytes(16), False, False)
    assert queue.quota == queue.journal_quota == 0xFFFFFFFF
    assert (queue.authentication, queue.privacy_level) == (False, QueuePrivacyLevel.OPTIONAL)
    assert (queue.multicast_address, queue.base_priority) == ("", 0)


@pytest.mark.parametrize(
    ("pathname", "properties", "code"),
    [
        (PATH, {}, ErrorCode.MQ_ERROR_QUEUE_EXISTS),
        (r".\PRIVATE$\ORDERS", {}, ErrorCode.MQ_ERROR_QUEUE_EXISTS),
        ("orders", {}, ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        (r"elsewhere\private$\orders", {}, ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        (r".\private$\orders;JOURNAL", {}, ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        (r".\private$\a", {"quota": -1}, ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        (r".\private$\a", {"privacy_level": 3}, ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        (r".\private$\a", {"colour": 3}, ErrorCode.MQ_ERROR_PROPERTY),
        (r".\private$\none;sub", {}, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
    ],
)
async def test_what_cannot_be_created(qm, pathname, properties, code):
    await qm.create_queue(PATH)
    assert await failure(qm.create_queue(pathname, **properties)) is code


@pytest.mark.parametrize(
    ("name", "access", "code"),
    [
        ("nonsense", Access.SEND, ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME),
        (r"DIRECT=OS:.\private$\none", Access.SEND, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
        (r"DIRECT=OS:.\private$\none", Access.RECEIVE, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
        (r"DIRECT=TCP:127.9.8.7\private$\none", Access.PEEK, ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
        ("DIRECT=HTTP://beta/msmq/none", Access.SEND, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        ("MULTICAST=234.1.1.1:8001", Access.SEND, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (ORDERS + ";JOURNAL", Access.SEND, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (r"DIRECT=OS:.\system$;DEADLETTER", Access.SEND, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (f"{ORDERS},{ORDERS}2", Access.RECEIVE, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (r"DIRECT=OS:.\private$\order_queue$", Access.RECEIVE, ErrorCode.MQ_ERROR_ACCESS_DENIED),
        ("DL=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00", Access.SEND, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ],
)
async def test_what_cannot_be_opened(qm, name, access, code):
    await qm.create_queue(PATH)
    assert await failure(qm.open_queue(name, access)) is code


def _excluded(first, second) -> bool:
    """3.1.7.1.5, read as prose: what an open queue leaves to others."""
    (access1, share1), (access2, share2) = first, second
    if access1 is Access.RECEIVE:
        return share2 is Share.DENY_RECEIVE or (share1 is Share.DENY_RECEIVE and access2 is Access.RECEIVE)
    return access1 is Access.PEEK and share1 is Share.DENY_RECEIVE and access2 is Access.RECEIVE


_MODES = list(product((Access.SEND, Access.PEEK, Access.RECEIVE), Share))


@pytest.mark.parametrize("first", _MODES, ids=str)
@pytest.mark.parametrize("second", _MODES, ids=str)
async def test_share_modes_exclude_each_other_as_specified(qm, first, second):
    await qm.create_queue(PATH)
    opened = await qm.open_queue(ORDERS, *first)
    if not _excluded(first, second):
        await qm.open_queue(ORDERS, *second)
        return
    assert await failure(qm.open_queue(ORDERS, *second)) is ErrorCode.MQ_ERROR_SHARING_VIOLATION
    await opened.close()
    await qm.open_queue(ORDERS, *second)


async def test_a_handle_does_only_what_it_was_opened_for_and_only_while_it_is_open(qm):
    await qm.create_queue(PATH)
    send, peek = await qm.open_queue(ORDERS, Access.SEND), await qm.open_queue(ORDERS, Access.PEEK)
    assert await failure(send.receive(timeout=0)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await failure(peek.receive(timeout=0)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await failure(peek.purge()) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await failure(peek.send(Message())) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    await send.close()
    await send.close()
    assert await failure(send.send(Message())) is ErrorCode.MQ_ERROR_INVALID_HANDLE


async def test_closing_a_handle_cancels_its_waiting_reads(qm):
    await qm.create_queue(PATH)
    queue = await qm.open_queue(ORDERS)
    waiting = [asyncio.create_task(queue.receive()), asyncio.create_task(queue.cursor().peek())]
    await asyncio.sleep(0)
    await queue.close()
    for read in waiting:
        assert await failure(read) is ErrorCode.MQ_ERROR_OPERATION_CANCELLED


async def test_deleting_a_queue_ends_what_is_open_on_it(node, qm):
    await qm.create_queue(PATH)
    send, receive = await qm.open_queue(ORDERS, Access.SEND), await qm.open_queue(ORDERS)
    waiting = asyncio.create_task(receive.receive())
    await asyncio.sleep(0)
    await qm.delete_queue(PATH)
    assert await failure(waiting) is ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await failure(receive.peek(timeout=0)) is ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await failure(send.send(Message())) is ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await failure(qm.queue(PATH)) is ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    qm = await node.crash()
    assert await failure(qm.queue(PATH)) is ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND


async def test_a_queue_that_is_created_again_is_empty(node, qm):
    for _ in range(2):
        await qm.create_queue(PATH, journaling=True)
        async with await qm.open_queue(ORDERS, Access.SEND) as send:
            await send.send_many([Message(b"x", recoverable=True), Message(b"y")])
        async with await qm.open_queue(ORDERS) as receive:
            await receive.receive()
        info = await qm.queue(PATH)
        assert (info.message_count, info.journal_message_count) == (1, 1)
        await qm.delete_queue(PATH)
        qm = await node.crash()


async def test_a_message_to_several_queues_is_a_copy_in_each(qm):
    for name in "abc":
        await qm.create_queue(rf".\private$\{name}")
    names = ",".join(rf"DIRECT=OS:.\private$\{name}" for name in "abca")
    several = await qm.open_queue(names, Access.SEND)
    identifier = await several.send(Message(b"x"))
    for name in "abc":
        queue = await qm.open_queue(rf"DIRECT=OS:.\private$\{name}")
        message = await queue.receive(timeout=0)
        assert message.body == b"x"
        assert message.identifier == identifier
        assert message.destination_multi_queue_format_name.count(",") == 2
        assert await failure(queue.receive(timeout=0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    assert await failure(several.receive()) is ErrorCode.MQ_ERROR_ACCESS_DENIED


async def test_a_distribution_list_is_looked_up_once_even_in_a_circle(node):
    await node.qm.create_queue(PATH)
    lists = []

    async def resolve(name):
        lists.append(str(name))
        return [name, node.qm.names.parse(ORDERS)]

    node.qm.opening.resolve_distribution_list = resolve
    queue = await node.qm.open_queue(f"DL={guid_to_text(new_guid())}", Access.SEND)
    await queue.send(Message(b"x"))
    assert len(lists) == 1
    assert (await node.qm.queue(PATH)).message_count == 1


async def test_a_distribution_list_without_queues_cannot_be_opened(node):
    async def resolve(_):
        return []

    node.qm.opening.resolve_distribution_list = resolve
    opened = node.qm.open_queue(f"DL={guid_to_text(new_guid())}", Access.SEND)
    assert await failure(opened) is ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND


async def test_a_queue_elsewhere_is_sent_to_through_an_outgoing_queue_that_stays(node, qm):
    elsewhere = r"DIRECT=TCP:127.9.8.7\private$\orders"
    async with await qm.open_queue(elsewhere, Access.SEND) as queue:
        await queue.send(Message(b"x", recoverable=True))
    await qm.pause_queue(elsewhere)
    qm = await node.crash()
    (outgoing,) = await qm.queues([QueueType.OUTGOING])
    assert (outgoing.format_name, outgoing.message_count, outgoing.state) == (elsewhere, 1, "on hold")
    await qm.resume_queue(elsewhere)
    assert (await qm.queue(elsewhere)).state == "inactive"
    assert await failure(qm.open_queue(elsewhere, Access.RECEIVE)) is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
    admin = await qm.open_queue(elsewhere, Access.PEEK_ADMIN)
    assert (await admin.peek(timeout=0)).body == b"x"


async def test_a_queue_is_active_while_it_is_open_and_an_outgoing_one_while_messages_wait(qm):
    elsewhere = r"DIRECT=OS:beta\private$\orders"
    await qm.create_queue(PATH)
    for name, stays in ((ORDERS, False), (elsewhere, True)):
        async with await qm.open_queue(name, Access.SEND) as queue:
            assert (await qm.queue(name)).active
            await queue.send(Message(b"x"))
        assert (await qm.queue(name)).active is stays


async def test_a_connector_queue_appears_when_a_connector_opens_it(node, qm):
    name = f"CONNECTOR={guid_to_text(new_guid())};XACTONLY"
    await qm.open_queue(name)
    qm = await node.crash()
    (connector,) = await qm.queues([QueueType.CONNECTOR])
    assert connector.format_name == name
    assert connector.transactional


class Policy:
    """Lets in who is named in the descriptor."""

    def default_queue_security(self, supplied: bytes, caller: object = None) -> bytes:
        return supplied or b"owner"

    def changed_queue_security(self, current: bytes, supplied: bytes) -> bytes:
        return supplied

    def sender_identifier(self, caller: object) -> bytes:
        return b""

    def check(self, security: bytes, rights: int, caller: object) -> bool:
        return str(caller).encode() in security.split(b",")


async def test_access_is_checked_on_open(qm):
    qm.context.access_policy = Policy()
    await qm.create_queue(PATH)
    await qm.open_queue(ORDERS, caller="owner")
    await qm.open_queue(ORDERS)
    assert await failure(qm.open_queue(ORDERS, caller="guest")) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    await qm.set_queue(PATH, security=b"owner,guest")
    await qm.open_queue(ORDERS, Access.SEND, caller="guest")


async def test_a_security_descriptor_says_who_may_do_what(qm):
    user, other = Sid.from_text("S-1-5-21-1-2-3-1001"), Sid.from_text("S-1-5-21-1-2-3-1002")
    descriptor = SecurityDescriptor(
        owner=user,
        group=user,
        dacl=Acl.of(allow(user, QueueAccess.MQSEC_QUEUE_GENERIC_ALL), allow(EVERYONE, QueueAccess.MQSEC_WRITE_MESSAGE)),
    )
    await qm.create_queue(PATH, security=descriptor.write())
    await qm.open_queue(ORDERS, Access.RECEIVE, caller=Token.of(user))
    await qm.open_queue(ORDERS, Access.SEND, caller=Token.of(other))
    for access in (Access.RECEIVE, Access.PEEK):
        denied = qm.open_queue(ORDERS, access, caller=Token.of(other))
        assert await failure(denied) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    await qm.create_queue(r".\private$\default")
    default = r"DIRECT=OS:.\private$\default"
    await qm.open_queue(default, Access.SEND, caller=Token.of(other))
    assert await failure(qm.open_queue(default, caller=Token.of(other))) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    wrong = qm.create_queue(r".\private$\wrong", security=b"nonsense")
    assert await failure(wrong) is ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR


async def test_a_transaction_can_end_after_its_queue_was_deleted(node, qm):
    await qm.create_queue(PATH, transactional=True)
    send, receive = await qm.open_queue(ORDERS, Access.SEND), await qm.open_queue(ORDERS)
    await send.send_many([Message(b"1"), Message(b"2")], transaction="single")
    committed, aborted = qm.transaction(), qm.transaction()
    for tx in (committed, aborted):
        await receive.receive(transaction=tx)
        await send.send(Message(b"3"), transaction=tx)
    await qm.delete_queue(PATH)
    await committed.commit()
    await aborted.abort()
    assert qm.quotas.used == 0
    await qm.create_queue(PATH)
    assert (await qm.queue(PATH)).message_count == 0


async def test_open_handles_are_counted_by_access_and_share(qm):
    """Opening looks at each combination once, not at each handle: a queue that is open often opens as fast."""
    await qm.create_queue(PATH)
    handles = [await qm.open_queue(ORDERS, access) for access in (Access.RECEIVE, Access.SEND) for _ in range(50)]
    queue = qm.names.find(PATH)
    assert queue.open_modes == {(Access.RECEIVE, Share.DENY_NONE): 50, (Access.SEND, Share.DENY_NONE): 50}
    assert await failure(qm.open_queue(ORDERS, Access.RECEIVE, Share.DENY_RECEIVE)) is (
        ErrorCode.MQ_ERROR_SHARING_VIOLATION
    )
    for handle in handles:
        await handle.close()
    assert not queue.open_modes
    assert not queue.descriptors
    await qm.open_queue(ORDERS, Access.RECEIVE, Share.DENY_RECEIVE)


async def test_the_numbers_of_access_and_share_do_as_well(qm):
    await qm.create_queue(PATH)
    async with await qm.open_queue(ORDERS, 2, 0) as queue:
        await queue.send(Message(b"x"))
    assert await failure(qm.open_queue(ORDERS, Access.RECEIVE, 2)) is ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE


async def test_a_label_that_is_no_text_is_refused(qm):
    assert await failure(qm.create_queue(PATH, label="\ud800")) is ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
