"""The report: whole in one file, with what an operator has to see, whatever names there are."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from html.parser import HTMLParser
from typing import Any

import pandas as pd

from mqenterprise.pipeline.report.cells import seconds
from mqenterprise.pipeline.report.figures import READ, WHOLE, Figures
from mqenterprise.pipeline.report.page import page
from mqenterprise.pipeline.report.plots import loss
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
        self.policy: str | None = None
        self.script = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._inside = tag
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "data", "srcset"}]

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.script += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


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
        "last_received": HOUR,
        "oldest_waiting": None,
    }
    for hour in range(3)
    for site in ("Aarhus", EVIL)
]
LATENCIES = [
    {
        "date": "2026-02-28",
        "site": site,
        "destination_site": "Bern",
        "queue": f"shop\\{EVIL}",
        "latency_us": latency,
        "messages": messages,
    }
    for site in ("Aarhus", EVIL)
    for latency, messages in ((50_000, 18), (80_000, 7), (400_000, 1), (500_000, 1))
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
        "kept": 4,
        "kept_at": "a",
        "kept_in": "a\\dead$",
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
    text = page(
        figures(
            service_levels=LEVELS,
            latencies=LATENCIES,
            dead_letters=DEAD,
            link_use=USE,
            backlog=backlog,
            routes=routes,
        )
    )

    tiles = re.findall(r'<div class="tile[^>]*><b>([^<]*)</b><span>([^<]*)</span>', text)
    assert {what: value for value, what in tiles} == {
        "messages sent": "60",
        "received": "48",
        "in their queues": "6",
        "on their way": "0",
        "died (10.00%)": "6",
        "mean time to the queue": "100 ms",
        "median time to the queue (p50)": "50 ms",
        "95% are there within (p95)": "400 ms",
        "took a detour": "0",
    }


def test_nothing_is_loaded_from_anywhere_and_no_name_becomes_markup() -> None:
    text = page(figures(service_levels=LEVELS, dead_letters=DEAD, link_use=USE), title=EVIL)
    read = _Read(text)

    assert all(one.startswith(("#", "data:")) for one in read.loads)
    assert "://" not in text
    assert text.count("<script") == 1, "the page's own"
    assert read.policy is not None
    (digest,) = re.findall(r"script-src 'sha256-([^']*)'", read.policy)
    assert base64.b64encode(hashlib.sha256(read.script.encode()).digest()).decode() == digest
    assert read.policy.startswith("default-src 'none'")
    assert "svg" in read.tags


def test_messages_are_counted_also_when_nobody_asked_for_service_levels() -> None:
    lives = pd.DataFrame(
        [("2026-02-27", "received", 3), ("2026-02-28", "died", 1), ("2026-02-28", "reached", 4)],
        columns=["date", "status", "messages"],
    )
    text = page(Figures(figures().frames, NOW, since="2026-02-27", lives=lives))

    assert "2026-02-27 to 2026-02-28 (UTC), messages sent since 2026-02-27" in text
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
    }
    alone = figures(service_levels=[row | unknown for row in LEVELS])
    both = figures(service_levels=[*late, *(row | unknown for row in LEVELS)])

    assert "mean time to the queue" not in page(alone)
    assert "<b>60 ms</b><span>mean time to the queue" in page(both)
    assert both.by_queue()["mean"].tolist() == [60_000.0]


def test_a_queue_that_nothing_reached_has_no_latency() -> None:
    """Neither a mean nor percentiles, and the page has dashes."""
    nobody = {"reached": 0, "received": 0, "latency_us_sum": None, "latency_us_max": None, "queue": "shop\\gone"}
    both = figures(service_levels=[*LEVELS, *(row | nobody for row in LEVELS)], latencies=LATENCIES)

    rows = both.by_queue().set_index("queue")
    assert rows.loc["shop\\gone", ["mean", "p50", "p95"]].isna().all()
    assert rows.loc[f"shop\\{EVIL}", ["mean", "p50", "p95"]].tolist() == [100_000.0, 50_000.0, 400_000.0]
    assert "nan" not in page(both).lower().replace("tenant", "")


LINKS = [
    {"site1": one, "site2": other, "cost": 1, "suggested_cost": suggested, "pairs": 2, "suggested_pairs": 2}
    for one, other, suggested in (("Aarhus", "Bern", 20), ("Bern", "Cádiz", 5), ("Aarhus", "Cádiz", 7))
]
"""Of a table that an earlier version wrote: it suggested a cost for every link."""


def test_the_colour_of_a_link_says_what_it_lost_and_none_is_suggested_for_one_that_nobody_used() -> None:
    use = [
        USE[0] | {"from_site": "Aarhus", "to_site": "Bern", "crossings": 965, "lost": 35},
        USE[0] | {"from_site": "Bern", "to_site": "Cádiz", "crossings": 10_000, "lost": 3},
    ]
    text = page(figures(service_levels=LEVELS, link_use=use, link_costs=LINKS))

    assert [loss(*seen)[1] for seen in ((965, 35), (10_000, 3), (5, 0), (5, 5), (0, 0))] == [
        "red", "some", "fine", "dark", "unused"
    ]  # fmt: skip
    for colour in ("red", "some", "unused"):
        assert f"stroke: var(--{colour})" in text, colour
    for meaning in ("none lost", "less than 1%", "1% or more", "10% or more lost", "not used"):
        assert f"</span>{meaning}" in text
    assert re.search(r'class="alarm">3\.5%', text)
    unused = next(row for row in re.findall("<tr>.*?</tr>", text) if "<td>Aarhus</td><td>Cádiz</td>" in row)
    assert re.findall(r"<td[^>]*>(.*?)</td>", unused)[7:] == ["1", '<span class="quiet">–</span>', "2", "2"]
    for riddle in ("Better cost", "Pairs now", "Pairs then"):
        assert riddle not in text


LIFE = {
    "source_id": "guid",
    "message_number": 7,
    "destination": "PUBLIC=1",
    "queue": "shop\\orders",
    "origin": "a",
    "sender": EVIL,
    "size": 100,
    "sent": HOUR,
    "sent_time": HOUR,
    "hops": [
        {"time": HOUR, "kind": "sent", "node": "a", "site": "Aarhus", "peer": None, "hop_count": 0},
        {"time": HOUR, "kind": "transferred", "node": "a", "site": "Aarhus", "peer": "b", "hop_count": 0},
    ],
    "received": None,
    "death": {"time": HOUR + pd.Timedelta(seconds=90), "reason": 0x8004, "node": "b", "peer": None},
}


def test_a_dead_letter_leads_to_the_life_of_its_message() -> None:
    text = page(replace(figures(service_levels=LEVELS, dead_letters=DEAD), examples={"guid\\7": LIFE}))

    assert '<a href="#life-guid-7">guid\\7</a>' in text
    life = text[text.index('id="life-guid-7"') :]
    cells = re.findall(r"<td[^>]*>(?:<span[^>]*>)?(.*?)(?:</span>)?</td>", life[: life.index("</article>")])
    assert cells == [
        "2026-02-28 10:00:00.000", "0 µs", "sent", "a", "Aarhus",
        "2026-02-28 10:00:00.000", "0 µs", "forwarded to b", "a", "Aarhus",
        "2026-02-28 10:01:30.000", "90 s", "died: access denied", "b", "–",
    ]  # fmt: skip


def test_dates_are_written_as_iso_8601_says() -> None:
    text = page(figures(service_levels=LEVELS, dead_letters=DEAD))

    assert not re.search(r"\b(Jan|Feb|Mar)\b", text)
    assert "10:00" in text
    assert ">2026-02-28<" in text


def test_times_below_zero_are_told_as_such() -> None:
    assert seconds(-80.0) == "-80 s"


def test_the_same_figures_give_the_same_page() -> None:
    one, other = (page(figures(service_levels=LEVELS, dead_letters=DEAD, link_use=USE)) for _ in range(2))

    assert one == other


def test_hops_are_ranked_by_their_mean_and_show_the_slowest_message() -> None:
    hop = {"date": "2026-02-28", "from_node": "a", "to_node": "b", "messages": 3, "wait_us_sum": 30_000}
    slow = {"to_node": EVIL, "messages": 1, "wait_us_sum": 9_000_000, "wait_us_max": 9_000_000, "slowest": "guid\\7"}
    rows = [
        hop | {"wait_us_max": 20_000, "slowest": "guid\\1"},
        hop | {"wait_us_max": 15_000, "slowest": "x"},
        hop | slow,
    ]
    found = figures(service_levels=LEVELS, hops=rows)

    assert found.slowest_hops()[["mean", "worst", "slowest"]].to_numpy().tolist() == [
        [9_000_000.0, 9_000_000, "guid\\7"],
        [10_000.0, 20_000, "guid\\1"],
    ]
    text = page(found)
    assert "Slowest hops" in text
    assert EVIL not in text


def test_a_consumer_has_stopped_when_messages_wait_and_nobody_receives_for_an_hour() -> None:
    def level(queue: str, oldest: pd.Timestamp | None, received: pd.Timestamp | None) -> dict[str, Any]:
        return LEVELS[0] | {"queue": queue, "oldest_waiting": oldest, "last_received": received}

    now, hour = pd.Timestamp(NOW), pd.Timedelta(hours=1)
    found = figures(
        service_levels=[
            level("stopped", now - 3 * hour, now - 2 * hour),
            level("never", now - 5 * hour, None),
            level("busy", now - 3 * hour, now - hour / 2),
            level("empty", None, now - 9 * hour),
            level("new", now - hour / 2, now - 9 * hour),
        ],
        backlog=[{"date": "2026-02-28", "queue": "stopped", "hour": HOUR, "growth": 6}],
    )

    assert found.stopped_consumers()[["queue", "waiting"]].to_numpy().tolist() == [["never", 0], ["stopped", 6]]
    text = page(found)
    assert "Consumers that stopped" in text
    assert "2026-03-01 10:00" in text


def test_reasons_for_waiting_are_shown_by_hour_and_queue() -> None:
    now, hour = pd.Timestamp(NOW), pd.Timedelta(hours=1)
    wait = {"node": "a", "queue": EVIL, "reason": "dns failure", "detail": "no name", "wait_us": 1 << 62}
    rows = [wait | {"begin": now - 2.5 * hour, "end": now - 2 * hour}, wait | {"begin": now - hour, "end": None}]
    rows += [wait | {"reason": f"reason {one}", "begin": pd.Timestamp(0, tz="UTC"), "end": None} for one in range(20)]
    found = figures(service_levels=LEVELS, waiting=rows)
    hours = found.waiting_by_hour()

    assert hours.index[-1] == now - hour
    assert len(hours) == 24 * 14, "the last two weeks"
    others = hours["other reasons"]
    assert hours.iloc[-3:].sum(axis=1).tolist() == [20.5, 20.0, 21.0]
    assert others.iloc[-1] >= 11
    text = page(found)
    assert "goes on" in text
    assert EVIL not in text


def test_what_a_dead_letter_queue_kept_is_named() -> None:
    text = page(figures(service_levels=LEVELS, dead_letters=DEAD))
    row = next(row for row in re.findall("<tr>.*?</tr>", text) if "<td>access denied</td>" in row)

    assert re.findall(r"<td[^>]*>(.*?)</td>", row)[6:8] == ["4", "a: a\\dead$"]


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
    assert "as of 2026-03-01" in text
    assert '<span class="good">300 days</span>' in text


def probe(name: str, *, missing: timedelta | None, last: timedelta) -> dict[str, Any]:
    """A row of ``probes``: since how long it misses its deadline, and the age of its last heartbeat."""
    return {
        "node": "ALPHA", "probe": name, "queue": "shop\\orders", "reason": None if missing is None else "receiver",
        "detail": None if missing is None else "no receiver", "last": NOW - last, "sent": 9, "missed": 2,
        "missing_since": None if missing is None else NOW - missing, "last_success": NOW - timedelta(days=1),
        "mean_us": 1_500_000.0, "worst_us": 2_000_000,
    }  # fmt: skip


MINUTE = timedelta(minutes=1)
PROBES = [
    probe("fine", missing=None, last=MINUTE),
    probe(f"orders{EVIL}", missing=30 * MINUTE, last=MINUTE),
    probe("removed", missing=timedelta(days=2), last=timedelta(days=2)),
]


def needed(text: str) -> list[tuple[str, str]]:
    """The links of "What needs you": the section and the sentence."""
    (found,) = re.findall(r'<ul class="needs">(.*?)</ul>', text, re.S)
    return re.findall(r'<li><a href="#([^"]*)">([^<]*)</a></li>', found)


def test_the_report_begins_with_what_needs_somebody_each_with_a_link_to_its_section() -> None:
    users = [
        {"user": user, "subject": f"CN={user}", "not_after": NOW + timedelta(days=days), "days_left": days}
        for user, days in (("fine", 300), ("soon", 12), (f"gone{EVIL}", -3))
    ]
    sizes = [
        {"node": "a", "queue": queue, "messages": 1, "bytes": 1, "growth_bytes_a_day": 1, "used": used, "full_on": on}
        for queue, used, on in (("fast", 0.5, "2026-03-09"), ("over", 1.0, None), ("slow", 0.1, "2027-01-01"))
    ]
    costs = [
        {"site1": one, "site2": other, "cost": 1, "suggested_cost": 1, "pairs": pairs, "suggested_pairs": pairs}
        for one, other, pairs in ((EVIL, "Aarhus", 2), ("Aarhus", "Bern", 4), ("Aarhus", "unused", 0))
    ]
    dead = [*DEAD, *(DEAD[0] | {"cause": "expired", "queue": queue, "messages": 9} for queue in "abcde")]
    text = page(
        figures(
            service_levels=LEVELS,
            latencies=LATENCIES,
            link_use=USE,
            dead_letters=dead,
            probes=PROBES,
            certificates=users,
            capacity=sizes,
            link_costs=costs,
        )
    )

    assert needed(text) == [
        ("probes", f"1 probe misses its deadline: orders{escape(EVIL)} of ALPHA since 2026-03-01 11:30."),
        ("keys", f"1 certificate has expired: gone{escape(EVIL)}."),
        ("keys", "1 certificate expires within 30 days: soon on 2026-03-13."),
        ("capacity", "1 queue is full: over."),
        ("capacity", "1 queue will be full within 30 days: fast on 2026-03-09."),
        ("dead-letters", "45 messages died, expired: a, b, c and 2 more."),
        ("dead-letters", "6 messages died, access denied: shop\\orders."),
        ("sites", "No message crossed 1 link that routes lead over: Aarhus – Bern."),
        (
            "queues",
            "The worst service levels, by the time within which 95% of the messages were in the queue: "
            f"shop\\{escape(EVIL)} (400 ms).",
        ),
    ]  # fmt: skip
    assert all(f'<section id="{name}">' in text for name, _ in needed(text))
    assert text.index("What needs you") < text.index("messages sent")


def test_a_probe_has_the_result_of_its_last_heartbeat() -> None:
    text = page(figures(probes=PROBES))

    (rows,) = re.findall(r'<table class="data" data-few="12" aria-label="probes">.*?<tbody>(.*?)</tbody>', text, re.S)
    found = [re.sub(r"<[^>]*>", "|", row) for row in rows.strip().split("\n")]
    assert [("receiver" in row, "came through" in row, "2026-03-01 11:30" in row) for row in found] == [
        (True, False, False), (True, False, True), (False, True, False),
    ]  # fmt: skip
    assert "no receiver" in found[0] and "1.5 s" in found[2]


def test_a_report_of_an_enterprise_in_order_says_that_nothing_needs_anybody() -> None:
    assert "Nothing does." in page(figures())
