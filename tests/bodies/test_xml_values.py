"""XML bodies as values: the reader of listings gives what the tree of elements gives, for any document."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.bodies import xml_formatter
from qmnode.bodies.limits import DEFAULT_LIMITS, Budget, BudgetError, Limits
from qmnode.bodies.tree import XSI, content
from qmnode.bodies.xml_text import parse
from qmnode.commands.output import json_text
from qmnode.management.message_documents import BodyForm, MessageDocument
from qmnode.model.message import Message

TEXTS = st.sampled_from(["", " ", "\n  ", "x", " x ", "\u2003", "ä & <", "\u00a0y"])
NAMES = st.sampled_from(["a", "b", "Line", "{urn:one}a", "{urn:two}Line"])
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["id", "{urn:one}id", f"{{{XSI}}}nil", f"{{{XSI}}}type"]),
    st.sampled_from(["", "true", "x"]),
    max_size=2,
)


@st.composite
def elements(draw: st.DrawFn, depth: int = 0) -> ElementTree.Element:
    made = ElementTree.Element(draw(NAMES), draw(st.one_of(st.just({}), ATTRIBUTES)))
    made.text, made.tail = draw(TEXTS), draw(TEXTS) if depth else None
    if depth < 3:
        made.extend(draw(st.lists(elements(depth + 1), max_size=4)))
    return made


@given(elements())
def test_values_of_listings_are_those_of_the_tree(root: ElementTree.Element) -> None:
    body = ElementTree.tostring(root, encoding="utf-8")
    quick, slow = Budget(DEFAULT_LIMITS), Budget(DEFAULT_LIMITS)
    tree = parse(body, slow)

    assert xml_formatter.decode(body, quick) == {tree.name: content(tree)}
    assert quick.nodes >= slow.nodes, "an element that is null is not read further"


@pytest.mark.parametrize("body", [b"<a>" + b"<b>1</b>" * 9 + b"</a>", b"<a>" + b"<b><c/><c/></b>" * 3 + b"</a>"])
def test_each_element_costs_a_node(body: bytes) -> None:
    assert xml_formatter.decode(body, Budget(Limits(nodes=10)))
    with pytest.raises(BudgetError, match="more than 9 values"):
        xml_formatter.decode(body, Budget(Limits(nodes=9)))


def test_a_label_with_half_a_surrogate_pair_is_json() -> None:
    document = MessageDocument.of(Message(b"<a>\x7f\xc2\x9b</a>", label="half \ud800"), BodyForm.DECODED)

    text = json_text(document)

    assert text.isascii()
    assert (json.loads(text)["label"], json.loads(text)["decoded"]) == ("half \ud800", {"a": "\x7f\x9b"})
