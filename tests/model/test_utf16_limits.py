"""Limits of text count UTF-16 units at every door; an error names the unit, and a cut is between characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.amqp.mapping import MappingContext, from_amqp
from qmnode.amqp.sections import AmqpMessage
from qmnode.structures.names import PathName, QueueNameError, cut_utf16, parse_format_name, utf16_length

if TYPE_CHECKING:
    from pathlib import Path

EMOJI = "🚀"


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("abc", 2, "ab"),
        (EMOJI * 3, 4, EMOJI * 2),
        (EMOJI * 3, 5, EMOJI * 2),
        ("a" + EMOJI, 2, "a"),
        ("é" * 3, 3, "é" * 3),
    ],
)
def test_text_is_cut_between_characters(text: str, most: int, cut: str) -> None:
    assert cut_utf16(text, most) == cut
    assert utf16_length(cut) <= most


@pytest.mark.public_report("MassTransit/MassTransit#235")
async def test_labels_have_so_many_units(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as qm:
        await qm.create_queue(r".\private$\q", label=EMOJI * 62)
        for label in (EMOJI * 63, "x" * 123 + EMOJI, "é" * 125):
            with pytest.raises(MessageQueuingError, match="124 UTF-16 units"):
                await qm.set_queue(r".\private$\q", label=label)
        async with await qm.open_queue(r"DIRECT=OS:.\private$\q", Access.SEND) as queue:
            await queue.send(Message(b"", label=EMOJI * 124))
            for label in (EMOJI * 125, "x" * 248 + EMOJI, "é" * 250):
                with pytest.raises(MessageQueuingError, match="249 UTF-16 units"):
                    await queue.send(Message(b"", label=label))


@pytest.mark.parametrize("name", [EMOJI * 63, "x" * 123 + EMOJI, "é" * 125])
def test_names_of_queues_have_so_many_units(name: str) -> None:
    PathName.parse(rf".\private$\{EMOJI * 62}")
    with pytest.raises(QueueNameError, match="124 UTF-16 units") as raised:
        PathName.parse(rf".\private$\{name}")
    assert raised.value.text.encode()


@pytest.mark.parametrize("computer", [EMOJI * 300, "x" * 513, "é" * 256 + EMOJI * 150])
def test_whole_names_have_so_many_units(computer: str) -> None:
    with pytest.raises(QueueNameError, match="512 UTF-16 units"):
        parse_format_name(rf"DIRECT=OS:{computer}\private$\q")


@pytest.mark.parametrize("subject", [EMOJI * 125, "x" * 248 + EMOJI, "é" * 250])
def test_a_subject_of_amqp_is_cut_to_a_label(subject: str) -> None:
    made = from_amqp(AmqpMessage(properties={"subject": subject}), MappingContext(lambda name: False, lambda: 0.0))
    assert 248 <= utf16_length(made.label) <= 249
    assert subject.startswith(made.label)
    made.label.encode("utf-16")
