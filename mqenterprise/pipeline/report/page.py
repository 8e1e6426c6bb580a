"""The page: sections of plots and tables in one HTML file, with nothing to load from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pandas as pd

from mqenterprise.markup import Element, element
from mqenterprise.pipeline.report import lives, plots
from mqenterprise.pipeline.report.cells import (
    Cell,
    Column,
    day,
    moment,
    number,
    quiet,
    seconds,
    size,
    table,
    text,
    time,
)
from mqenterprise.pipeline.report.heat import heat_map
from mqenterprise.pipeline.report.needs import SOON, needs
from mqenterprise.pipeline.report.shell import framed, section, tiled

if TYPE_CHECKING:
    from mqenterprise.pipeline.report.figures import Figures

MOST_ROWS: Final = 1_000
"""The greatest number of rows in a table of the page, which refers to the stored tables for the rest."""


def page(figures: Figures, title: str = "Message Queuing") -> str:
    """The whole report. The same figures give the same text."""
    shown = [(name, short, content) for name, short, drawn in _SECTIONS if (content := drawn(figures))]
    return framed(title, f"{title}: where messages went", _window(figures), _tiles(figures), shown, needs(figures))


def _window(figures: Figures) -> str:
    days = figures.days()
    window = f"{' to '.join(dict.fromkeys(days))} (UTC)" if days is not None else "No messages yet"
    if figures.since is not None:
        window += f", messages sent since {figures.since}"
    window += f". As of {figures.as_of:%Y-%m-%d %H:%M}"
    return f"{window}, written {figures.written:%Y-%m-%d %H:%M}." if figures.written is not None else f"{window}."


def _tiles(figures: Figures) -> Element:
    share = figures.died / figures.messages if figures.messages else 0.0
    tiles = [
        (f"{figures.messages:,}", "messages sent", False),
        (f"{figures.received:,}", "received", False),
        (f"{figures.waiting:,}", "in their queues", False),
        (f"{figures.on_the_way:,}", "on their way", False),
        (f"{figures.died:,}", f"died ({share:.2%})" if figures.died else "died", figures.died > 0),
    ]
    if (mean := figures.mean_latency) is not None:
        tiles.append((seconds(mean), "mean time to the queue", False))
    if (percentiles := figures.percentiles()) is not None:
        tiles.append((seconds(percentiles[0]), "median time to the queue (p50)", False))
        tiles.append((seconds(percentiles[1]), "95% are there within (p95)", False))
    if figures.has("routes"):
        tiles.append((f"{figures.detours:,}", "took a detour", False))
    if figures.aside:
        tiles.append((f"{len(figures.aside):,}", "segments set aside", True))
    return tiled(tiles)


def _legend() -> Element:
    """Return the legend of the colours of links."""
    colours = [("fine", "none lost"), *((name, what) for _, name, what in reversed(plots.LOSSES))]
    items = [
        element("li", element("span", class_="swatch", style=f"background:var(--{name})"), what)
        for name, what in colours
    ]
    items.append(element("li", element("span", class_="swatch dashes"), "not used"))
    return element("ul", *items, class_="legend")


_LINK: Final = (
    Column("Site"),
    Column("Site"),
    Column("Messages", "Messages that crossed, both ways together"),
    Column("Mean delay", "From a machine of one site to a machine of the other, waiting for the link included"),
    Column("Lost", "Messages that died while they waited for this link"),
    Column("Lost, %", "Of the messages that crossed or died waiting"),
    Column("Volume"),
)
_LINK_COST: Final = (
    Column("Cost", "The link's cost in the directory"),
    Column("Suggested cost", "In proportion to the delay that was seen, lost messages counted as sent again"),
    Column("Routes over it", "Ordered pairs of sites whose least-cost route passes this link"),
    Column("Routes with suggested costs", "The same if all suggested costs were declared"),
)


def _map(figures: Figures) -> list[Element]:
    links = figures.links()
    if links.empty and not figures.sites:
        return []
    costed = "cost" in links.columns
    rows = []
    for row in links.head(MOST_ROWS).to_dict("records"):
        share, colour = plots.loss(float(row["crossings"]), float(row["lost"]))
        css = {"some": "warn", "red": "alarm", "dark": "alarm"}.get(colour, "")
        cells = [
            text(row["site1"]),
            text(row["site2"]),
            number(int(row["crossings"])),
            time(row["delay"]),
            number(int(row["lost"]), css=css),
            number(share, f"{share:.1%}", css),
            size(float(row["bytes"])),
        ]
        if costed and row["cost"] != row["cost"]:
            cells += [quiet("no link", -1e299, right=True) for _ in _LINK_COST]
        elif costed:
            suggested = None if colour == "unused" else row["suggested_cost"]
            cells += [number(value) for value in (row["cost"], suggested, row["pairs"], row["suggested_pairs"])]
        rows.append(cells)
    explanation = "The thicker a link, the more messages crossed it. Its colour says how many died waiting for it."
    if costed:
        explanation += (
            " Costs are suggested from the delays that were seen: with them, least-cost routing takes the routes that "
            "are fastest. A link that no message used has no suggestion."
        )
    return section(
        "sites",
        "Sites and links",
        explanation,
        *plots.site_map(links, figures.sites),
        _legend(),
        *(table(_LINK + (_LINK_COST if costed else ()), rows, "links", len(links)) if rows else ()),
    )


def _traffic(figures: Figures) -> list[Element]:
    hours = figures.traffic_by_hour()
    if hours.empty:
        return []
    unit = "day" if len(hours) > 1 and hours.index[1] - hours.index[0] >= pd.Timedelta(days=1) else "hour"
    return section(
        "traffic", "Traffic", f"Messages by the {unit} in which they were sent (UTC).", *plots.traffic(hours)
    )


_LATENCY: Final = (
    Column("Mean"),
    Column("p50", "Half of the messages took this long or less"),
    Column("p95", "95% of the messages took this long or less"),
    Column("Slowest"),
)


def _latency_cells(row: dict[str, float]) -> list[Cell]:
    return [time(row[name] / 1e6 if row[name] is not None else None) for name in ("mean", "p50", "p95", "worst")]


def _latency(figures: Figures) -> list[Element]:
    means = figures.pair_hours()
    if means.empty:
        return []
    pairs = figures.by_pair()
    rows = [
        [text(row["site"]), text(row["destination_site"]), number(int(row["messages"])), *_latency_cells(row)]
        for row in pairs.head(MOST_ROWS).to_dict("records")
    ]
    columns = (Column("From"), Column("To"), Column("Messages"), *_LATENCY)
    return section(
        "latency",
        "Latency",
        "Time from being sent to being in the destination queue. The map has the mean by pair of sites and hour of "
        "the day (UTC), busiest pairs first.",
        *heat_map(means),
        *table(columns, rows, "pairs of sites", len(pairs)),
    )


def _deaths(figures: Figures) -> list[Element]:
    deaths = figures.deaths()
    if deaths.empty:
        return section("dead-letters", "Dead letters", "No message died.") if figures.messages else []
    rows = [
        [
            text(row["cause"]),
            text(row["queue"]),
            number(int(row["messages"])),
            number(int(row["origins"])),
            moment(row["first"]),
            moment(row["last"]),
            number(int(row["kept"])),
            text(", ".join(row["places"]) or None),
            lives.link(row["sample"], figures.examples),
        ]
        for row in deaths.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("Cause"),
        Column("Queue", "The queue's name, or the format name where nobody knows a name"),
        Column("Messages"),
        Column("Senders", "Machines that sent them"),
        Column("First"),
        Column("Last"),
        Column("Kept", "Of how many a dead-letter queue has a copy"),
        Column("Where"),
        Column("Example", "The first of them: where it was, and when"),
    )
    return section(
        "dead-letters",
        "Dead letters",
        "Why messages died, and when (UTC). An example leads to its message's life.",
        *plots.deaths(figures.deaths_by_hour()),
        *table(columns, rows, "dead letters", len(deaths)),
    ) + lives.lives(figures.examples)


def _hops(figures: Figures) -> list[Element]:
    hops = figures.slowest_hops()
    if hops.empty:
        return []
    rows = [
        [
            text(row["from_node"]),
            text(row["to_node"]),
            number(int(row["messages"])),
            time(row["mean"] / 1e6),
            time(row["worst"] / 1e6),
            lives.link(row["slowest"], figures.examples),
        ]
        for row in hops.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("From"),
        Column("To"),
        Column("Messages"),
        Column("Mean"),
        Column("Slowest"),
        Column("Message", "The message that took the longest"),
    )
    return section(
        "hops",
        "Slowest hops",
        "Time from being at one machine to being at the next, the wait for the link included.",
        *table(columns, rows, "hops", len(hops)),
    )


def _waiting(figures: Figures) -> list[Element]:
    reasons = figures.waiting_reasons()
    if reasons.empty:
        return []
    rows = [
        [
            text(row["reason"], "alarm" if row["goes_on"] else ""),
            text(row["node"]),
            text(row["queue"]),
            time(row["waited"] / 1e6),
            number(int(row["times"])),
            moment(row["first"]),
            text("goes on", "alarm") if row["goes_on"] else moment(row["last"]),
            text(row["detail"]),
        ]
        for row in reasons.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("Reason"),
        Column("Machine"),
        Column("Outgoing queue"),
        Column("Waited"),
        Column("Times"),
        Column("First"),
        Column("Until"),
        Column("Last said"),
    )
    hours = figures.waiting_by_hour()
    return section(
        "waiting",
        "Reasons for waiting",
        "Why outgoing queues had no session, by hour (UTC): how many of them waited, on average over the hour.",
        *(() if hours.empty else plots.waiting(hours)),
        *table(columns, rows, "reasons", len(reasons)),
    )


def _probes(figures: Figures) -> list[Element]:
    probes = figures["probes"]
    if probes.empty:
        return []
    order = probes.sort_values(["missing_since", "node", "probe"])
    rows = [
        [
            text(row["probe"]),
            text(row["node"]),
            text(row["queue"]),
            text("came through", "good") if pd.isna(row["missing_since"]) else text(row["reason"], "alarm"),
            moment(row["missing_since"]),
            moment(row["last_success"]),
            number(int(row["sent"])),
            number(int(row["missed"]), css="alarm" if row["missed"] else ""),
            time(None if pd.isna(row["mean_us"]) else row["mean_us"] / 1e6),
            time(None if pd.isna(row["worst_us"]) else row["worst_us"] / 1e6),
            text(row["detail"]),
        ]
        for row in order.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("Probe"),
        Column("Machine"),
        Column("Queue"),
        Column("Last heartbeat"),
        Column("Missing since"),
        Column("Last success"),
        Column("Sent"),
        Column("Missed"),
        Column("Mean", "Until it was received or answered"),
        Column("Slowest"),
        Column("Last said"),
    )
    return section(
        "probes",
        "Heartbeats",
        "Whether the marked messages of declared probes were received, or answered, in time.",
        *table(columns, rows, "probes", len(probes)),
    )


def _consumers(figures: Figures) -> list[Element]:
    stopped = figures.stopped_consumers()
    if stopped.empty:
        return []
    rows = [
        [
            text(row["queue"]),
            number(int(row["waiting"]), css="alarm"),
            moment(row["oldest"]),
            quiet("never", -1.0) if pd.isna(row["received"]) else moment(row["received"]),
        ]
        for row in stopped.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("Queue"),
        Column("Waiting", "Messages in the queue that nobody received"),
        Column("Oldest", "When the first of them arrived"),
        Column("Last received", "When somebody last received a message from the queue"),
    )
    return section(
        "consumers",
        "Consumers that stopped",
        "Queues in which messages wait, and from which nobody received for an hour or longer.",
        *table(columns, rows, "queues without a receiver", len(stopped)),
    )


def _queues(figures: Figures) -> list[Element]:
    queues = figures.by_queue()
    if queues.empty:
        return []
    rows = [
        [
            text(row["queue"]),
            number(int(row["messages"])),
            number(int(row["received"])),
            number(int(row["waiting"])),
            number(int(row["died"]), css="alarm" if row["died"] else ""),
            *_latency_cells(row),
        ]
        for row in queues.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("Queue"),
        Column("Sent", "Messages sent to it"),
        Column("Received"),
        Column("Waiting", "In the queue, not received"),
        Column("Died"),
        *_LATENCY,
    )
    return section(
        "queues",
        "Service levels by queue",
        "Busiest first. Mean, p50 (median), p95 and the slowest are times from being sent to being in the queue.",
        *table(columns, rows, "queues", len(queues)),
    )


def _capacity(figures: Figures) -> list[Element]:
    sizes = figures["capacity"]
    if sizes.empty:
        return []
    sizes = sizes.assign(soon=pd.to_datetime(sizes["full_on"]))
    sizes = sizes.sort_values(["soon", "used", "bytes"], ascending=[True, False, False], na_position="last")
    rows = [
        [
            text(row["queue"] or f"{row['node']} (all queues)"),
            number(int(row["messages"])),
            size(float(row["bytes"])),
            size(row["growth_bytes_a_day"]),
            _used(row["used"]),
            text("not in sight", "quiet") if pd.isna(row["soon"]) else day(row["soon"], "alarm"),
        ]
        for row in sizes.head(MOST_ROWS).to_dict("records")
    ]
    columns = (
        Column("Queue"),
        Column("Messages"),
        Column("Size"),
        Column("Growth a day"),
        Column("Of its quota"),
        Column("Full on", "If it goes on to grow as it did"),
    )
    return section(
        "capacity",
        "Capacity",
        "How fast queues fill up, and the day they will be full if they go on so.",
        *table(columns, rows, "queue sizes", len(sizes)),
    )


def _used(share: float) -> Cell:
    if pd.isna(share):
        return quiet("no quota", -1.0)
    filled = element("i", style=f"width:{min(share, 1):.0%}")
    bar = element("span", filled, class_="bar" if share < 0.8 else "bar full")
    return Cell((bar, f"{share:.0%}"), float(share))


def _keys(figures: Figures) -> list[Element]:
    keys, certificates = figures["keys"], figures["certificates"]
    content: list[Element] = []
    if len(keys):
        order = keys.assign(old=keys["state"] == "current").sort_values(
            ["late", "old", "node"], ascending=[False, True, True]
        )
        rows = [
            [
                text(row["node"]),
                text(row["key_fingerprint"]),
                text(row["state"], "good" if row["state"] == "current" else "quiet"),
                number(row["age_days"], "" if pd.isna(row["age_days"]) else f"{int(row['age_days']):,} d"),
                number(int(row["messages"])),
                number(int(row["late"]), css="alarm" if row["late"] else ""),
                text(", ".join(row["late_senders"]) if row["late"] else None),
            ]
            for row in order.head(MOST_ROWS).to_dict("records")
        ]
        columns = (
            Column("Machine"),
            Column("Key"),
            Column("State"),
            Column("Age"),
            Column("Messages", "Messages that were encrypted to it"),
            Column("Since retired", "Messages that were encrypted to it after it was retired"),
            Column("By", "Senders that still used the key after it was retired"),
        )
        content += table(columns, rows, "keys", len(keys))
    if len(certificates):
        rows = [
            [text(row["user"]), text(row["subject"]), day(row["not_after"]), _left(row["days_left"])]
            for row in certificates.sort_values("not_after").head(MOST_ROWS).to_dict("records")
        ]
        titles = [Column(title) for title in ("User", "Certificate", "Good until", "Left")]
        content += [element("h3", "Certificates"), *table(titles, rows, "certificates", len(certificates))]
    if not content:
        return []
    return section(
        "keys",
        "Keys and certificates",
        f"What ends soon, and who encrypts to keys that were retired; as of {figures.as_of:%Y-%m-%d}.",
        *content,
    )


def _left(days: float) -> Cell:
    if pd.isna(days):
        return number(None)
    if days < 0:
        return number(days, f"expired {-int(days):,} days ago", "alarm")
    return number(days, f"{int(days):,} days", "alarm" if days <= SOON else "good")


def _aside(figures: Figures) -> list[Element]:
    if not figures.aside:
        return section("set-aside", "Set aside", "Every segment could be read.")
    rows = [[text(one.path), text(one.reason), text(one.sentence)] for one in figures.aside[:MOST_ROWS]]
    return section(
        "set-aside",
        "Set aside",
        "Segments that could not be used. Their messages are missing above until the files are repaired or come again.",
        *table((Column("Segment"), Column("Reason"), Column("What is wrong")), rows, "segments", len(figures.aside)),
    )


_SECTIONS: Final[tuple[tuple[str, str, Callable[[Figures], list[Element]]], ...]] = (
    ("sites", "Sites and links", _map),
    ("traffic", "Traffic", _traffic),
    ("latency", "Latency", _latency),
    ("dead-letters", "Dead letters", _deaths),
    ("hops", "Hops", _hops),
    ("waiting", "Waiting", _waiting),
    ("probes", "Heartbeats", _probes),
    ("consumers", "Consumers", _consumers),
    ("queues", "Queues", _queues),
    ("capacity", "Capacity", _capacity),
    ("keys", "Keys and certificates", _keys),
    ("set-aside", "Set aside", _aside),
)
