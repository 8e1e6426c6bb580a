"""A misspelt property of a message is refused: a typo must not cost durability."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import qmnode
from qmnode.model.message import DEFAULTS, MessageProperties
from tests.lab.cases import cases

SETTABLE = {*MessageProperties.__annotations__, "body"}
ASSIGNED = sorted(DEFAULTS.keys() - SETTABLE)

TYPOS = {
    "recoverabel": "recoverable",
    "lable": "label",
    "prioritiy": "priority",
    "time_to_reach_que": "time_to_reach_queue",
    "acknowledgments_requested": "acknowledgements_requested",
    "Recoverable": "recoverable",
}


def loosely(message: qmnode.Message, **properties: Any) -> qmnode.Message:
    return message.copy(**properties)


@pytest.mark.parametrize(("typo", "meant"), TYPOS.items())
def test_a_misspelt_property_is_refused_with_the_name_that_was_meant(typo: str, meant: str) -> None:
    properties: Any = {typo: 1}
    with pytest.raises(TypeError, match=f"no property '{typo}', did you mean {meant}\\?"):
        qmnode.Message(b"x", **properties)


@pytest.mark.parametrize(("typo", "meant"), TYPOS.items())
def test_a_misspelt_attribute_can_be_neither_set_nor_read(typo: str, meant: str) -> None:
    message = qmnode.Message(b"x")
    with pytest.raises(AttributeError, match=f"did you mean {meant}\\?"):
        setattr(message, typo, 1)
    with pytest.raises(AttributeError, match=f"did you mean {meant}\\?"):
        getattr(message, typo)
    assert vars(message) == {"body": b"x"}


def test_copies_replies_and_values_refuse_the_same_names() -> None:
    message, properties = qmnode.Message(b"x"), {"recoverabel": True}
    with pytest.raises(TypeError, match="did you mean recoverable"):
        loosely(message, **properties)
    with pytest.raises(TypeError, match="did you mean recoverable"):
        message.reply(b"", **properties)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean recoverable"):
        qmnode.Message.from_value("x", **properties)  # type: ignore[arg-type]


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(TypeError, match=r"a message has no property 'zzz'$"):
        qmnode.Message(b"x", zzz=1)  # type: ignore[call-arg]


@cases("name", ASSIGNED)
def test_what_the_queue_manager_assigns_cannot_be_set(name: str) -> None:
    properties: Any = {name: DEFAULTS[name]}
    with pytest.raises(TypeError, match="the queue manager assigns"):
        qmnode.Message(b"x", **properties)
    with pytest.raises(AttributeError, match="the queue manager assigns"):
        setattr(qmnode.Message(b"x"), name, DEFAULTS[name])


@cases("name", sorted(SETTABLE))
def test_every_property_of_a_sender_can_be_given_set_copied_and_pickled(name: str) -> None:
    properties: Any = {name: DEFAULTS[name]}
    given, later = qmnode.Message(**properties), qmnode.Message()
    setattr(later, name, DEFAULTS[name])
    for message in (given, later, loosely(qmnode.Message(), **properties), pickle.loads(pickle.dumps(given))):
        assert vars(message)[name] == DEFAULTS[name]


def test_everything_that_a_class_says_of_a_message_has_a_default() -> None:
    assert qmnode.Message.__annotations__.keys() == DEFAULTS.keys()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("label", 3, "label=3: expected a text, not int"),
        ("extension", "x", "extension='x': expected bytes, not str"),
        ("response_queue_format_name", 3, "response_queue_format_name=3: expected a text, not int"),
        ("administration_multi_queue_format_name", ["a"], "expected a text, not list"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"label": "l", "app_specific": 7}, {"priority": 4}])
async def test_a_value_of_a_wrong_type_is_refused_with_its_name(
    tmp_path: Path, name: str, value: Any, words: str, more: dict[str, Any]
) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        await manager.create_queue(r".\private$\a")
        async with await manager.open_queue(r"DIRECT=OS:.\private$\a", qmnode.Access.SEND) as queue:
            with pytest.raises(TypeError, match=re.escape(words)):
                await queue.send(qmnode.Message(b"x", **(more | {name: value})))
