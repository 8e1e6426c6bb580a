"""The properties of a queue are those of the table: in the typed interface, and with the values that rows permit."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueAttributes, QueueInformation, QueueProperties
from qmnode.model.queue import DEFAULT_PROPERTIES
from qmnode.model.queue_manager import QueueManager
from qmnode.objects.table import QUEUE
from qmnode.structures.error_codes import ErrorCode
from tests.model.conftest import Node

PATH = r".\private$\orders"


def test_the_typed_interface_has_the_properties_of_the_table_with_their_defaults() -> None:
    assert get_type_hints(QueueProperties) == get_type_hints(QueueAttributes)
    assert get_type_hints(QueueProperties).keys() == DEFAULT_PROPERTIES.keys()
    shown = {field.name: field.default for field in fields(QueueInformation)}
    written = {name: QUEUE[name].default for name in DEFAULT_PROPERTIES if QUEUE[name].form.type is not bytes}
    assert {name: shown[name] for name in written} == written


REFUSED: list[tuple[str, Any, str]] = [
    ("label", "x" * 125, "124 UTF-16 units"),
    ("label", "\ud800", "124 UTF-16 units"),
    ("type", b"short", "a GUID of 16 bytes"),
    ("journaling", "yes", "true or false"),
    ("authentication", 1, "true or false"),
    ("quota", -1, "KB, from 0"),
    ("quota", True, "KB, from 0"),
    ("journal_quota", 2**32, "KB, from 0"),
    ("privacy_level", 3, "2 (body)"),
    ("multicast_address", "garbage", "224.0.0.0 to 239.255.255.255"),
    ("multicast_address", "10.0.0.1:8001", "224.0.0.0 to 239.255.255.255"),
    ("multicast_address", "234.1.1.1:70000", "ADDRESS:PORT"),
    ("multicast_address", None, "'' for none"),
    ("base_priority", 9, "expected 0, since only a public queue has another"),
    ("duplicate_window", 604_801, "seconds, from 0"),
    ("max_deliveries", 256, "to 255"),
    ("retry_factor", 0, "from 1 to 100"),
    ("security", "text", "bytes"),
]


@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
async def test_a_value_that_the_row_does_not_permit_is_neither_created_nor_set(
    qm: QueueManager, name: str, value: Any, words: str
) -> None:
    properties: Any = {name: value}
    with pytest.raises(MessageQueuingError) as created:
        await qm.create_queue(PATH, **properties)
    before = await qm.create_queue(PATH)
    with pytest.raises(MessageQueuingError) as changed:
        await qm.set_queue(PATH, **properties)
    for refused in (created.value, changed.value):
        assert refused.code is ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        assert words in str(refused) and name in str(refused)
    assert await qm.queue(PATH) == before


async def test_every_property_refuses_what_is_no_value_of_it(qm: QueueManager) -> None:
    for name in DEFAULT_PROPERTIES:
        with pytest.raises(MessageQueuingError, match=f"{name}=.*: expected "):
            await qm.create_queue(PATH, **{name: [name]})  # type: ignore[arg-type]


async def test_a_public_queue_has_a_base_priority(qm: QueueManager) -> None:
    assert (await qm.create_queue(r".\news", base_priority=9)).base_priority == 9
    with pytest.raises(MessageQueuingError, match="from -32768 to 32767"):
        await qm.set_queue(r".\news", base_priority=40_000)


async def test_a_queue_that_an_earlier_release_stored_with_a_value_that_is_refused_now_opens(node: Node) -> None:
    await node.qm.create_queue(PATH, label="old")
    queue = node.qm.names.find(PATH)
    queue.set_properties(multicast_address="garbage", base_priority=9)
    node.qm.store.put_queue(queue.queue_id, queue.definition())
    await node.qm.store.durable()
    qm = await node.crash()
    opened = await qm.queue(PATH)
    assert (opened.multicast_address, opened.base_priority) == ("garbage", 9)
    assert (await qm.set_queue(PATH, label="new")).label == "new"
    mended = await qm.set_queue(PATH, multicast_address="", base_priority=0)
    assert (mended.multicast_address, mended.base_priority) == ("", 0)
