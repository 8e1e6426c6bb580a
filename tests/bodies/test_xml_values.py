"""XML bodies as values: the reader of listings gives what the tree of elements gives, for any document."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.bodies import xml_formatter, xml_plans, xml_quick
from qmnode.bodies.limits import DEFAULT_LIMITS, Budget, BudgetError, Limits
from qmnode.bodies.xml_text import element_of_tree, parse, parse_tree
from qmnode.bodies.xml_tree import XSI, content
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


DECLARED = f' xmlns:xsi="{XSI}" xmlns:xsd="http://www.w3.org/2001/XMLSchema"'
DOCUMENTS = (
    "<a><b>1</b><b> </b>\r\n<c><d>x\r\ny</d></c><e /></a>",
    f'<?xml version="1.0"?>\r\n<a{DECLARED} id="7">\r\n  <b xsi:nil="true" />\r\n  <b xsi:type="q" n="]">t</b>\r\n</a>',
    '<?xml version="1.0" encoding="utf-8"?><a xmlns="urn:one"><b xmlns="">ä</b><b xmlns="urn:two"><c/></b></a>',
)
DAMAGE = (
    *"<>/=&:{}-.1 \t\n\r\f\x01\x7f\xa0\u2003\ufeff\ufffeä'\"",
    *("</a>", "<a>", "<b/>", "</b>", "</b >", "<!--x-->", "<![CDATA[x]]>", "]]>", "<?p x?>", "&amp;", "x:y"),
    *(
        ' n="1"',
        ' xmlns="urn:x"',
        ' xmlns=""',
        ' xmlns="}"',
        ' xmlns:q="urn:x"',
        ' xml:lang="de"',
        ' xsi:nil="1"',
        DECLARED,
    ),
    ' xmlns="http://www.w3.org/2000/xmlns/"',
)


@given(st.sampled_from(DOCUMENTS), st.lists(st.tuples(st.floats(0, 1), st.sampled_from(DAMAGE)), max_size=3))
def test_what_is_read_in_one_pass_is_what_the_parser_reads(text: str, damage: list[tuple[float, str]]) -> None:
    for place, added in damage:
        cut = round(place * len(text))
        text = text[:cut] + added + text[cut:]

    found = xml_quick.read(text, Budget(DEFAULT_LIMITS))

    if found is not None:
        budget = Budget(DEFAULT_LIMITS)
        tree = element_of_tree(parse_tree(text, budget), budget)  # which raises if it is not well-formed
        assert found == {tree.name: content(tree)}
    assert [xml_quick.read(text, Budget(DEFAULT_LIMITS)) for _ in range(20)] == [found] * 20, "by its plan"


LEAVES = st.lists(st.sampled_from(["", " ", "x", "a\r\nb", "\r", "]", ">", "  y\n", "ä\u2003"]), min_size=6, max_size=6)
"""Texts of elements without children."""


@given(st.lists(LEAVES, min_size=20, max_size=25), st.sampled_from(["", "\r\n  ", "\n", " x "]))
def test_documents_with_the_same_tags_have_values_of_their_own(documents: list[list[str]], between: str) -> None:
    for number, texts in enumerate(documents):
        one, two, *rest = texts
        same = "".join(f"<d>{text}</d>{between if number else ''}" for text in rest)
        text = f'<a xmlns="urn:one"><b>{one}</b>{between}<c>{between}<b>{two}</b><e/></c><f>{same}</f></a>'
        found = xml_quick.read(text, Budget(DEFAULT_LIMITS))
        assert (found is None) == bool(between.strip())
        if found is not None:
            tree = parse(text.encode(), Budget(DEFAULT_LIMITS))
            assert found == {tree.name: content(tree)}


def test_a_plan_asks_each_readers_own_budget() -> None:
    text = "<a><b>1</b><c><d>2</d></c></a>"
    for _ in range(20):
        assert xml_quick.read(text, Budget(Limits(nodes=4, depth=3))) == {"a": {"b": "1", "c": {"d": "2"}}}
        assert xml_quick.read(text, Budget(Limits(nodes=3, depth=3))) is None
        assert xml_quick.read(text, Budget(Limits(nodes=4, depth=2))) is None


def test_plans_are_kept_for_few_kinds_of_documents() -> None:
    for number in range(100):
        for _ in range(16):
            assert xml_quick.read(f"<a><b{number}>x</b{number}></a>", Budget(DEFAULT_LIMITS))

    assert len(xml_plans._plans) == 8
    assert len(xml_plans._counts) <= 64


@pytest.mark.parametrize("text", DOCUMENTS)
def test_usual_documents_are_read_in_one_pass(text: str) -> None:
    assert xml_quick.read(text, Budget(DEFAULT_LIMITS)) is not None


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


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("decimal", "1e3"), ("decimal", "1_000"), ("decimal", "Infinity"), ("int", "1_0"), ("int", "٣"), ("int", ""),
        ("double", "1_0"), ("double", "inf"), ("double", "."), ("float", "nan"), ("char", "6_5"),
    ],
)  # fmt: skip
def test_a_number_that_only_python_reads_stays_text(kind: str, text: str) -> None:
    body = f"<{kind}>{text}</{kind}>".encode()
    assert xml_formatter.decode(body, Budget(DEFAULT_LIMITS)) == {kind: text}
