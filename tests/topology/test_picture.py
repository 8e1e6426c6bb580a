"""The picture of an enterprise: nothing lies on anything else, all of the page is used, every name is there."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from mqenterprise.topology.drawing import Box, Graph, LinkEdge, SiteNode, svg, text_width
from tests.lab.cases import cases

SVG = "{http://www.w3.org/2000/svg}"
NAMES = (
    "Köln",
    "São Paulo",
    "北京市 東",
    "A",
    "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch-Nord-03",
    "WWWWWWWW",
)


def enterprise(count: int, links: int = 0, seed: int = 0) -> Graph:
    """A random tree with more links, names short and long, sites empty and full."""
    dice = random.Random(seed)
    sites = []
    for index in range(count):
        machines = tuple(f"m{index}-{each}" for each in range(dice.choice((0, 1, 3, 12))))
        name = f"{dice.choice(NAMES)[: 60 - len(str(index))]} {index}"
        sites.append(SiteNode(name, dice.random() < 0.2, len(machines), machines[:2], 3, machines))
    pairs = {(dice.randrange(index), index) for index in range(1, count)}
    for _ in range(links):
        pairs.add(tuple(sorted(dice.sample(range(count), 2))))  # type: ignore[arg-type]
    edges = [
        LinkEdge(first, second, dice.choice((1, 25, 999_999)), (*sites[first].names[:1], *sites[second].names[:1]))
        for first, second in sorted(pairs)
    ]
    return Graph(tuple(sites), tuple(edges))


class Picture(NamedTuple):
    page: Box
    texts: list[tuple[str, Box]]
    lines: list[tuple[float, float, float, float]]
    cards: list[Box]
    signs: list[tuple[float, float, float, float]]
    """Lines around the signs of gates, which are in cards."""


def picture_of(graph: Graph) -> Picture:
    root = ElementTree.fromstring(svg(graph, "Contoso"))
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    texts: list[tuple[str, Box]] = []
    lines: list[Any] = []
    for text in root.iter(f"{SVG}text"):
        x, y, size = (float(text.attrib[name]) for name in ("x", "y", "font-size"))
        texts.append((text.text or "", Box(x, y - size * 0.76, x + text_width(text.text or "", size), y + size * 0.24)))
    ends = ("x1", "y1", "x2", "y2")
    lines += [tuple(float(line.attrib[name]) for name in ends) for line in root.iter(f"{SVG}line")]
    signs = []
    for path in root.iter(f"{SVG}path"):
        (signs if path.attrib["class"] == "gate" else lines).extend(segments(path.attrib["d"]))
    cards = [
        Box(x, y, x + wide, y + high)
        for rect in root.iter(f"{SVG}rect")
        if rect.attrib["class"].startswith("card") and "rx" in rect.attrib
        for x, y, wide, high in [[float(rect.attrib[name]) for name in ("x", "y", "width", "height")]]
    ]
    return Picture(Box(0, 0, width, height), texts, lines, cards, signs)


def segments(data: str) -> list[tuple[float, float, float, float]]:
    """The straight pieces of a path of the commands that the picture uses."""
    found = []
    x = y = begin_x = begin_y = 0.0
    for letter, rest in re.findall(r"([a-zA-Z])([^a-zA-Z]*)", data):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        before = x, y
        match letter:
            case "M":
                x, y = begin_x, begin_y = numbers
                continue
            case "L":
                x, y = numbers
            case "l":
                x, y = x + numbers[0], y + numbers[1]
            case "H":
                x = numbers[0]
            case "h":
                x += numbers[0]
            case "V":
                y = numbers[0]
            case "z":
                x, y = begin_x, begin_y
            case _:
                raise AssertionError(letter)
        found.append((*before, x, y))
    return found


SIZES = [
    (0, 0),
    (1, 0),
    (2, 0),
    (3, 0),
    (3, 3),
    (4, 6),
    (7, 2),
    (12, 6),
    (12, 40),
    (16, 20),
    (17, 5),
    (60, 40),
    (300, 150),
]


@cases(("count", "links"), SIZES)
@cases("seed", range(2))
def test_no_text_lies_on_a_line_or_a_text_and_no_card_on_a_card(count: int, links: int, seed: int) -> None:
    picture = picture_of(enterprise(count, links if count > 1 else 0, seed))

    rows = sorted(picture.texts, key=lambda each: each[1].top)
    for place, (text, box) in enumerate(rows):
        for other, beside in rows[place + 1 :]:
            if beside.top >= box.bottom:
                break
            assert not box.meets(beside), (text, other)
        assert not any(box.meets_line(*line) for line in (*picture.lines, *picture.signs)), text
        whole = picture.page
        assert box.left >= 0 and box.top >= 0 and box.right <= whole.right and box.bottom <= whole.bottom, text
    for one, other in itertools.combinations(picture.cards, 2):
        assert not one.meets(other)
    for card in picture.cards:
        inside = card.grown(-1)
        assert not any(inside.meets_line(*line) for line in picture.lines)


@pytest.mark.parametrize("count", [60, 300])
def test_every_link_of_many_sites_is_a_line(count: int) -> None:
    graph = enterprise(count, 40)
    drawing = svg(graph, "Contoso")
    assert drawing.count("<line ") == len(graph.links)
    assert drawing.count("<circle ") == len(graph.sites)


@pytest.mark.parametrize(("count", "links"), SIZES[2:])
def test_no_half_of_the_page_is_empty(count: int, links: int) -> None:
    picture = picture_of(enterprise(count, links))
    page = picture.page
    middle_x, middle_y = page.right / 2, page.bottom / 2
    halves = [
        Box(0, 0, middle_x, page.bottom), Box(middle_x, 0, page.right, page.bottom),
        Box(0, 0, page.right, middle_y), Box(0, middle_y, page.right, page.bottom),
    ]  # fmt: skip
    things = [box for _, box in picture.texts] + picture.cards
    for half in halves:
        assert sum(box.meets(half) for box in things) >= 2
    reach = Box(
        min(box.left for box in things), min(box.top for box in things),
        max(box.right for box in things), max(box.bottom for box in things),
    )  # fmt: skip
    used = (reach.right - reach.left) * (reach.bottom - reach.top) / (page.right * page.bottom)
    assert used > 0.7


@pytest.mark.parametrize("count", [1, 2, 3, 12, 300])
def test_title_legend_and_every_name_are_there(count: int) -> None:
    graph = enterprise(count, count // 2 if count > 1 else 0)
    document = svg(graph, "Contoso <&>")
    texts = [text for text, _ in picture_of(graph).texts]

    shown = " ".join(ElementTree.fromstring(document).itertext())
    assert "Contoso <&>" in shown
    for words in ("site gate", "routing server", "machine", "routing link and its cost", "foreign site"):
        assert words in texts
    for site in graph.sites:
        assert site.name in shown
        for gate in site.names[:1]:
            assert gate in shown
    assert "prefers-color-scheme:dark" in document


def test_every_link_is_told_with_its_cost_and_its_gates() -> None:
    graph = enterprise(6, 3)
    shown = " ".join(ElementTree.fromstring(svg(graph, "E")).itertext())
    for link in graph.links:
        ends = f"{graph.sites[link.first].name} to {graph.sites[link.second].name}, cost {link.cost}"
        gates = ", ".join(link.site_gates) or "none, so nothing passes"
        assert f"{ends}; site gates: {gates}" in shown
