"""The report: whole in one file, with what an operator has to see, whatever names there are."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pandas as pd

from mqenterprise.pipeline.report.figures import READ, WHOLE, Figures
from mqenterprise.pipeline.report.page import page
from mqenterprise.pipeline.report.plots import seconds
from mqenterprise.pipeline.sources.quarantine import Record

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = pd.Timestamp("2026-02-28 10:00", tz="UTC")
EVIL = "<script>alert(1)</script>"


class _Read(HTMLParser):
    """Everything that a page refers to, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "data", "srcset"}]


def figures(**frames: list[dict[str, Any]]) -> Figures:
    empty = {name: pd.DataFrame(columns=list(READ.get(name, ()))) for name in (*READ, *WHOLE)}
    return Figures(empty | {name: pd.DataFrame(rows) for name, rows in frames.items()}, NOW)


LEVELS = [
    {
        "date": "2026-02-28",
        "site": site,
        "destination_site": "Bern",
        "queue": f"shop\\{EVIL}",
        "hour": HOUR + pd.Timedelta(hours=hour),
        "messages": 10,
        "bytes": 1000,
        "reached": 9,
        "received": 8,
        "died": 1,
        "latency_us_sum": 900_000,
        "latency_us_max": 500_000,
        "latency_us_p99": 400_000,
    }
    for hour in range(3)
    for site in ("Aarhus", EVIL)
]
DEAD = [
    {
        "date": "2026-02-28",
        "site": "Aarhus",
        "cause": "access denied",
        "queue": "shop\\orders",
        "sender": None,
        "origin": "a",
        "hour": HOUR,
        "messages": 6,
        "first": HOUR,
        "last": HOUR,
        "sample": "guid\\7",
    }
]
USE = [
    {
        "date": "2026-02-28",
        "from_site": "Aarhus",
        "to_site": EVIL,
        "crossings": 54,
        "lost": 1,
        "bytes": 5400,
        "delay_us_sum": 5_400_000,
    }
]


def test_an_enterprise_without_messages_has_a_report() -> None:
    assert "No messages yet" in page(figures())


def test_the_numbers_stand_on_top() -> None:
    backlog = [{"date": "2026-02-28", "queue": "shop", "hour": HOUR, "growth": 6}]
    routes = [{"date": "2026-02-28", "detour": False, "hops": 2}]
    text = page(figures(service_levels=LEVELS, dead_letters=DEAD, link_use=USE, backlog=backlog, routes=routes))

    tiles = re.findall(r'<div class="tile[^>]*><b>([^<]*)</b><span>([^<]*)</span>', text)
    assert {what: value for value, what in tiles} == {
        "messages sent": "60",
        "received": "48",
        "in their queues": "6",
        "on their way": "0",
        "died (10.00%)": "6",
        "mean time to the queue": "100 ms",
        "took a detour": "0",
    }


def test_nothing_is_loaded_from_anywhere_and_no_name_becomes_markup() -> None:
    text = page(figures(service_levels=LEVELS, dead_letters=DEAD, link_use=USE), title=EVIL)
    read = _Read(text)

    assert all(one.startswith(("#", "data:")) for one in read.loads)
    assert "://" not in text
    assert "script" not in read.tags
    assert "svg" in read.tags


def test_messages_are_counted_also_when_nobody_asked_for_service_levels() -> None:
    lives = pd.DataFrame(
        [("2026-02-27", "received", 3), ("2026-02-28", "died", 1), ("2026-02-28", "reached", 4)],
        columns=["date", "status", "messages"],
    )
    text = page(Figures(figures().frames, NOW, since="2026-02-27", lives=lives))

    assert "2026-02-27 to 2026-02-28, of those sent since 2026-02-27" in text
    tiles = re.findall(r'<div class="tile[^>]*><b>([^<]*)</b><span>([^<]*)</span>', text)
    assert tiles == [
        ("8", "messages sent"), ("3", "received"), ("4", "in their queues"), ("0", "on their way"),
        ("1", "died (12.50%)"),
    ]  # fmt: skip


def test_messages_whose_sending_nobody_told_have_no_latency() -> None:
    late = [row | {"latency_us_sum": 540_000.0, "reached": 9} for row in LEVELS]
    unknown = {
        "site": "unknown",
        "hour": pd.NaT,
        "latency_us_sum": None,
        "latency_us_max": None,
        "latency_us_p99": None,
    }
    alone = figures(service_levels=[row | unknown for row in LEVELS])
    both = figures(service_levels=[*late, *(row | unknown for row in LEVELS)])

    assert "mean time to the queue" not in page(alone)
    assert "<b>60 ms</b><span>mean time to the queue" in page(both)
    assert both.by_queue()["latency"].tolist() == [60_000.0]


def test_times_below_zero_are_told_as_such() -> None:
    assert seconds(-80.0) == "-80 s"


def test_the_same_figures_give_the_same_page() -> None:
    one, other = (page(figures(service_levels=LEVELS, dead_letters=DEAD, link_use=USE)) for _ in range(2))

    assert one == other


def test_what_was_set_aside_is_told_with_its_reason() -> None:
    aside = (Record("/segments/a.parquet", "newer-format", "it has segment format 9: upgrade this program"),)
    text = page(Figures(figures().frames, NOW, aside=aside))

    assert "/segments/a.parquet" in text
    assert "upgrade this program" in text
    assert "segments set aside" in text


def test_certificates_that_end_soon_stand_out() -> None:
    users = [
        {"user": user, "subject": f"CN={user}", "not_after": NOW, "days_left": days}
        for user, days in (("gone", -3), ("soon", 12), ("fine", 300))
    ]
    text = page(figures(certificates=users))

    assert '<span class="alarm">expired 3 days ago</span>' in text
    assert '<span class="alarm">12 days</span>' in text
    assert '<span class="good">300 days</span>' in text
