"""The page: sections of plots and tables in one HTML file, with nothing to load from anywhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from mqenterprise.pipeline.report import plots
from mqenterprise.pipeline.report.plots import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mqenterprise.pipeline.report.figures import Figures

MOST_ROWS: Final = 25
"""Of a table; the rest is in the tables themselves, and the page says so."""
_SOON: Final = 30
"""Days in which a certificate ends that is told in red."""

_STYLE: Final = """
:root{--ink:#1d2733;--muted:#66788a;--line:#dfe6ee;--accent:#2563a8;--alarm:#c2410c;--good:#2f7d4f;--paper:#fff}
*{box-sizing:border-box}
body{margin:0;background:#f3f6f9;color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
header h1{font-size:27px;margin:0}header p{margin:2px 0 20px;color:var(--muted)}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:18px 22px;margin:0 0 18px}
h2{font-size:18px;margin:0 0 2px}section>p{margin:0 0 12px;color:var(--muted);max-width:75ch}
svg{width:100%;height:auto;display:block}svg text{font-family:inherit!important}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:12px;margin:0 0 18px}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
.tile b{display:block;font-size:25px;font-weight:650;line-height:1.25;font-variant-numeric:tabular-nums}
.tile span{color:var(--muted);font-size:13px}.tile.alarm b{color:var(--alarm)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13.5px}
th{text-align:left;color:var(--muted);font-weight:600;white-space:nowrap}
th,td{border-bottom:1px solid var(--line);padding:5px 12px 5px 0}
td{vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
.alarm{color:var(--alarm);font-weight:600}.good{color:var(--good)}.quiet{color:var(--muted)}
.bar{display:inline-block;width:90px;height:8px;border-radius:4px;background:var(--line);overflow:hidden;margin-right:8px}
.bar i{display:block;height:100%;background:var(--accent)}.bar.full i{background:var(--alarm)}
@media print{body{background:#fff}section,.tile{break-inside:avoid}}
"""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def page(figures: Figures, title: str = "Message Queuing") -> str:
    """The whole report. The same figures give the same text."""
    days = figures.days()
    window = " to ".join(dict.fromkeys(days)) if days is not None else "No messages yet"
    if figures.since is not None:
        window = f"{window}, of those sent since {figures.since}"
    parts = [
        f"<header><h1>{escape(title)}: where messages went</h1>"
        f"<p>{escape(window)} (UTC), as of {figures.now:%Y-%m-%d %H:%M}</p></header>",
        _tiles(figures),
        *(section(figures) for section in _SECTIONS),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _tiles(figures: Figures) -> str:
    share = figures.died / figures.messages if figures.messages else 0.0
    tiles = [
        (f"{figures.messages:,}", "messages sent", False),
        (f"{figures.received:,}", "received", False),
        (f"{figures.waiting:,}", "in their queues", False),
        (f"{figures.on_the_way:,}", "on their way", False),
        (f"{figures.died:,}", f"died ({share:.2%})", figures.died > 0),
    ]
    if (mean := figures.mean_latency) is not None:
        tiles.append((seconds(mean), "mean time to the queue", False))
    if figures.has("routes"):
        tiles.append((f"{figures.detours:,}", "took a detour", False))
    if figures.aside:
        tiles.append((f"{len(figures.aside):,}", "segments set aside", True))
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile{" alarm" if alarm else ""}"><b>{value}</b><span>{escape(what)}</span></div>'
            for value, what, alarm in tiles
        )
        + "</div>"
    )


def _section(title: str, explanation: str, *content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(explanation)}</p>{''.join(content)}</section>"


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]], total: int) -> str:
    """Numbers stand to the right; a Markup is left as it is."""
    body, numeric = [], [True] * len(titles)
    shown = list(rows)
    for row in shown:
        for column, value in enumerate(row):
            numeric[column] &= isinstance(value, int | float | _Number)
    for row in shown:
        cells = (f"<td{' class=n' if numeric[column] else ''}>{_text(value)}</td>" for column, value in enumerate(row))
        body.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(
        f"<th{' class=n' if numeric[column] else ''}>{escape(one)}</th>" for column, one in enumerate(titles)
    )
    more = f'<p class="quiet">… and {total - len(shown):,} more in the tables.</p>' if total > len(shown) else ""
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(body)}</table></div>{more}'


class _Number(str):
    """A number that is written already, such as one with its unit."""

    __slots__ = ()


class _MarkedNumber(Markup, _Number):
    """Both."""

    __slots__ = ()


def _text(value: Any) -> str:
    match value:
        case Markup():
            return value
        case bool() | str():
            return escape(str(value))
        case None:
            return '<span class="quiet">–</span>'
        case int():
            return f"{value:,}"
        case float() if value != value:
            return '<span class="quiet">–</span>'
        case float():
            return f"{value:,.3g}"
    return escape(str(value))


def _time(value: float | None) -> _Number:
    return _Number("–" if value is None or value != value else seconds(float(value)))


def _moment(value: Any) -> str:
    return "–" if pd.isna(value) else f"{value:%Y-%m-%d %H:%M}"


def _size(value: float) -> _Number:
    if value != value:
        return _Number("–")
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 1024:
            return _Number(f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}")
        value /= 1024
    return _Number(f"{value:,.1f} TB")


def _map(figures: Figures) -> str:
    links = figures.links()
    if links.empty and not figures.sites:
        return ""
    titles = ["Between", "And", "Crossings", "Mean delay", "Lost", "Bytes"]
    costed = "cost" in links.columns
    titles += ["Cost", "Better cost", "Pairs now", "Pairs then"] if costed else []
    rows = []
    for row in links.head(MOST_ROWS).to_dict("records"):
        cells = [
            row["site1"],
            row["site2"],
            int(row["crossings"]),
            _time(row["delay"]),
            int(row["lost"]),
            _size(float(row["bytes"])),
        ]
        if costed:
            cells += [
                _Number("no link") if pd.isna(row[name]) else int(row[name])
                for name in ("cost", "suggested_cost", "pairs", "suggested_pairs")
            ]
        rows.append(cells)
    return _section(
        "Sites and links",
        "The thicker a link, the more messages crossed it; the redder, the more died waiting for it. Better costs "
        "would make least-cost routing prefer the paths that were seen to be fast; pairs of sites use a link now, and "
        "would then.",
        plots.site_map(links, figures.sites),
        _table(titles, rows, len(links)),
    )


def _traffic(figures: Figures) -> str:
    table = figures.traffic_by_hour()
    if table.empty:
        return ""
    return _section("Traffic", "Messages by the hour in which they were sent.", plots.traffic(table))


def _latency(figures: Figures) -> str:
    means = figures.pair_hours()
    if means.empty:
        return ""
    return _section(
        "Latency",
        "Mean time from being sent to being in the destination queue, by pair of sites and hour of the day (UTC), "
        "busiest pairs first.",
        plots.latency_map(means),
    )


def _deaths(figures: Figures) -> str:
    causes = figures.causes()
    if causes.empty:
        return _section("Dead letters", "No message died.") if figures.messages else ""
    rows = [
        [
            row["cause"],
            int(row["messages"]),
            int(row["queues"]),
            row["worst_queue"],
            _moment(row["first"]),
            _moment(row["last"]),
            row["sample"],
        ]
        for row in causes.to_dict("records")
    ]
    titles = ["Cause", "Messages", "Queues", "Worst queue", "First", "Last", "For example"]
    return _section(
        "Dead letters",
        "Why messages died, and when.",
        plots.deaths(figures.deaths_by_hour()),
        _table(titles, rows, len(rows)),
    )


def _queues(figures: Figures) -> str:
    table = figures.by_queue()
    if table.empty:
        return ""
    rows = [
        [
            row["queue"],
            int(row["messages"]),
            int(row["received"]),
            int(row["waiting"]),
            _MarkedNumber(f'<span class="alarm">{int(row["died"]):,}</span>') if row["died"] else 0,
            _time(row["latency"] / 1e6),
            _time(row["p99"] / 1e6),
            _time(row["worst"] / 1e6),
        ]
        for row in table.head(MOST_ROWS).to_dict("records")
    ]
    titles = ["Queue", "Sent", "Received", "Waiting", "Died", "Mean latency", "Worst hour's 99%", "Slowest"]
    return _section(
        "Service levels by queue",
        "Busiest first. Latency is from sent to being in the queue; in the worst hour, 99% were there within so long.",
        _table(titles, rows, len(table)),
    )


def _capacity(figures: Figures) -> str:
    table = figures["capacity"]
    if table.empty:
        return ""
    table = table.assign(soon=pd.to_datetime(table["full_on"]))
    table = table.sort_values(["soon", "used", "bytes"], ascending=[True, False, False], na_position="last")
    rows = []
    for row in table.head(MOST_ROWS).to_dict("records"):
        used = row["used"]
        full = "" if pd.isna(used) or used < 0.8 else " full"
        bar = (
            Markup('<span class="quiet">no quota</span>')
            if pd.isna(used)
            else Markup(f'<span class="bar{full}"><i style="width:{min(used, 1):.0%}"></i></span>{used:.0%}')
        )
        rows.append(
            [
                row["queue"] or f"{row['node']} (all queues)",
                int(row["messages"]),
                _size(float(row["bytes"])),
                _size(float(row["growth_bytes_a_day"])),
                bar,
                Markup('<span class="quiet">not in sight</span>')
                if pd.isna(row["soon"])
                else Markup(f'<span class="alarm">{row["soon"]:%Y-%m-%d}</span>'),
            ]
        )
    titles = ["Queue", "Messages", "Size", "Growth a day", "Of its quota", "Full on"]
    return _section(
        "Capacity",
        "How fast queues fill up, and the day they will be full if they go on so.",
        _table(titles, rows, len(table)),
    )


def _keys(figures: Figures) -> str:
    keys, certificates = figures["keys"], figures["certificates"]
    content = []
    if len(keys):
        order = keys.assign(old=keys["state"] == "current").sort_values(
            ["late", "old", "node"], ascending=[False, True, True]
        )
        rows = [
            [
                row["node"],
                row["key_fingerprint"],
                _state(row["state"], "current"),
                _days(row["age_days"]),
                int(row["messages"]),
                Markup(f'<span class="alarm">{int(row["late"]):,}: {escape(", ".join(row["late_senders"]))}</span>')
                if row["late"]
                else "nobody",
            ]
            for row in order.head(MOST_ROWS).to_dict("records")
        ]
        titles = ["Machine", "Key", "State", "Age", "Messages", "Still used after it was retired, by"]
        content.append(_table(titles, rows, len(keys)))
    if len(certificates):
        rows = [
            [
                row["user"],
                row["subject"],
                _moment(row["not_after"])[:10],
                _left(row["days_left"]),
            ]
            for row in certificates.sort_values("not_after").head(MOST_ROWS).to_dict("records")
        ]
        content.append(_table(["User", "Certificate", "Good until", "Left"], rows, len(certificates)))
    if not content:
        return ""
    return _section("Keys and certificates", "What ends soon, and who encrypts to keys that were retired.", *content)


def _state(state: str, good: str) -> Markup:
    return Markup(f'<span class="{"good" if state == good else "quiet"}">{escape(state)}</span>')


def _days(value: float) -> _Number:
    return _Number("–" if pd.isna(value) else f"{int(value):,} d")


def _left(days: float) -> Markup:
    if pd.isna(days):
        return Markup("–")
    if days < 0:
        return Markup(f'<span class="alarm">expired {-int(days):,} days ago</span>')
    return Markup(f'<span class="{"alarm" if days <= _SOON else "good"}">{int(days):,} days</span>')


def _aside(figures: Figures) -> str:
    if not figures.aside:
        return _section("Set aside", "Every segment could be read.")
    rows = [[one.path, one.reason, one.sentence] for one in figures.aside[:MOST_ROWS]]
    return _section(
        "Set aside",
        "Segments that could not be used. Their messages are missing above until the files are repaired or come again.",
        _table(["Segment", "Reason", "What is wrong"], rows, len(figures.aside)),
    )


_SECTIONS: Final[tuple[Callable[[Figures], str], ...]] = (
    _map,
    _traffic,
    _latency,
    _deaths,
    _queues,
    _capacity,
    _keys,
    _aside,
)
