"""Drawing: matplotlib figures as SVG text, one look for all. No window, no files, no fonts that a reader must have.

Each is drawn twice, for a wide window and for a narrow one, and the page shows the one that fits. Colours are the
page's own (``report.css``), so that they follow the reader's choice of light or dark.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mqenterprise.markup import Element, element, embedded, fit
from mqenterprise.pipeline.report.cells import seconds
from mqenterprise.pipeline.report.places import places

_VARIABLES: Final = ("ink", "muted", "line", "paper", "accent", "sent", "red")
_VARIABLES_OF_LINKS: Final = ("unused", "fine", "some", "dark", "foreign", "foreign-edge")
_COLOURS: Final[Mapping[str, str]] = {
    name: f"#0a{place:02x}fe" for place, name in enumerate((*_VARIABLES, *_VARIABLES_OF_LINKS))
}
"""The colours with which matplotlib draws, as stand-ins for the page's variables."""
_CAUSES: Final = ("#d9582b", "#e0a020", "#9468b0", "#2a9d8f", "#7488a0", "#c4567c", "#8d9f2f", "#4f7fc4")
LOSSES: Final = ((0.10, "dark", "10% or more lost"), (0.01, "red", "1% or more"), (0.0, "some", "less than 1%"))
"""The colour for each share of lost messages on a link. A link that lost nothing is ``fine``."""
WIDE, NARROW = 9.5, 4.3
"""Inches: at 72 points to the inch, so that text of ten points is legible in either window."""
_TICKS: Final = (1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 2_016, 8_760)
"""Hours between two labels of the time axis."""
MOST_SITES: Final = 150
"""The greatest number of sites on the map: those with the busiest links."""
_FEW_SITES: Final = 12
_NAMED_SITES: Final = {WIDE: 60, NARROW: 20}
_LABELLED_SITES: Final = {WIDE: _FEW_SITES, NARROW: 8}


def colour(name: str) -> str:
    """The stand-in for a variable of the page."""
    return _COLOURS[name]


def _style() -> Any:
    return {
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": colour("ink"),
        "axes.edgecolor": colour("line"),
        "axes.labelcolor": colour("muted"),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": colour("line"),
        "grid.linewidth": 0.8,
        "xtick.color": colour("muted"),
        "ytick.color": colour("muted"),
        "svg.fonttype": "none",  # the reader's own fonts
        "text.parse_math": False,  # a dollar in a name is a dollar
    }


def _both(title: str, draw: Callable[[float], Figure]) -> list[Element]:
    """Return the figure in both widths. Screen readers see only one of them."""
    parts = []
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        # Identifiers in a drawing depend on the salt. The page has several drawings, so each needs its own salt.
        with mpl.rc_context(_style() | {"svg.hashsalt": f"{title} {kind}"}):
            parts.append(element("div", _svg(draw(width), title), class_=kind))
    return parts


def _svg(figure: Figure, title: str) -> Element:
    sink = io.StringIO()
    figure.savefig(sink, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    text = sink.getvalue()
    for name, drawn in _COLOURS.items():
        text = text.replace(drawn, f"var(--{name})")
    drawing = embedded(text)
    for size in ("width", "height"):  # as large as the page lets it be
        del drawing.attrib[size]
    drawing.set("role", "img")
    drawing.set("aria-label", title)
    return drawing


def site_map(links: pd.DataFrame, sites: Mapping[str, bool]) -> list[Element]:
    """Sites and the links between them: the thicker, the more crossed; the colour says how many were lost."""
    names = _on_map(links, sites)
    place = {name: index for index, name in enumerate(names)}
    shown = links[links["site1"].isin(place) & links["site2"].isin(place)]
    linked = [(place[one], place[two]) for one, two in zip(shown["site1"], shown["site2"], strict=True)]
    points = places(len(names), linked)
    most = max(float(shown["crossings"].max()), 1.0) if len(shown) else 1.0

    few = len(names) <= _FEW_SITES

    def draw(width: float) -> Figure:
        span = np.ptp(points, axis=0) if len(points) > 1 else np.array([1.0, 0.0])
        height = float(
            np.clip(width * span[1] / max(span[0], 1e-6) + 0.9, 1.6, (0.46 if width == WIDE and few else 0.7) * width)
        )
        figure = Figure(figsize=(width, height))
        axes = figure.add_subplot()
        axes.axis("off")
        axes.margins(0.12 if width == WIDE else 0.16, 0.3 if height < 2.5 else 0.14)
        labelled = len(names) <= _LABELLED_SITES[width]
        for row in shown.itertuples():
            _draw_link(axes, points[[place[row.site1], place[row.site2]]], row, most, label=labelled)
        for name, point in zip(names, points, strict=True):
            fill, edge = ("foreign", "foreign-edge") if sites.get(name, False) else ("paper", "accent")
            area = 300 if few else 45
            axes.scatter(
                point[0], point[1], s=area, color=colour(fill), edgecolors=colour(edge), linewidths=1.8, zorder=3
            )
            if len(names) <= _NAMED_SITES[width]:
                box = {"boxstyle": "round,pad=0.1", "fc": colour("paper"), "ec": "none", "alpha": 0.8}
                gap = 12 if few else 5
                above = _has_links_below(place[name], points, linked)
                axes.annotate(
                    fit(name), point, (0, gap if above else -gap), textcoords="offset points", ha="center",
                    va="bottom" if above else "top", weight="bold", fontsize=10 if few else 7.5, bbox=box, zorder=4,
                )  # fmt: skip
        return figure

    return _both("Map of sites and routing links", draw)


def _has_links_below(site: int, points: np.ndarray, linked: Sequence[tuple[int, int]]) -> bool:
    """Return whether all links of a site lead down: its name stands above then, where it covers no label of them."""
    others = [two if one == site else one for one, two in linked if site in (one, two)]
    return bool(others) and bool((points[others, 1] < points[site, 1]).all())


def _on_map(links: pd.DataFrame, sites: Mapping[str, bool]) -> list[str]:
    if not len(links):
        return sorted(sites)[:MOST_SITES]
    ends = [
        *zip(links["site1"], links["crossings"], strict=True),
        *zip(links["site2"], links["crossings"], strict=True),
    ]
    busy: dict[str, float] = dict.fromkeys(sites, 0.0)
    for site, crossings in ends:
        busy[site] = busy.get(site, 0.0) + crossings
    return sorted(sorted(busy, key=lambda site: (-busy[site], site))[:MOST_SITES])


def loss(crossings: float, lost: float) -> tuple[float, str]:
    """Return the share of messages that a link lost, and the page's variable for its colour."""
    if crossings + lost == 0:
        return 0.0, "unused"
    share = lost / (crossings + lost)
    return share, next((name for least, name, _ in LOSSES if share > 0 and share >= least), "fine")


def _draw_link(axes: Axes, ends: np.ndarray, row: Any, most: float, *, label: bool) -> None:
    crossings = float(row.crossings)
    share, name = loss(crossings, float(row.lost))
    used = name != "unused"
    axes.plot(
        *ends.T,
        color=colour(name),
        linewidth=1.5 + 8 * (crossings / most) ** 0.5 if used else 1.5,
        linestyle="-" if used else (0, (4, 3)),
        solid_capstyle="round",
        alpha=0.9,
        zorder=1,
    )
    if not label:
        return
    parts = [f"{crossings:,.0f}"] if used else ["unused"]
    if used and row.delay == row.delay:
        parts.append(seconds(row.delay))
    if share:
        parts.append(f"{share:.1%} lost")
    axes.annotate(
        "\n".join(parts),
        ends.mean(axis=0),
        ha="center",
        va="center",
        fontsize=8.5,
        color=colour("ink" if used else "muted"),
        bbox={"boxstyle": "round,pad=0.3", "fc": colour("paper"), "ec": colour("line"), "alpha": 0.95},
        zorder=2,
    )


def deaths(table: pd.DataFrame) -> list[Element]:
    """Causes of death over time, stacked."""
    return _stacked("Causes of death over time", table)


def waiting(table: pd.DataFrame) -> list[Element]:
    """Reasons for waiting over time, stacked."""
    return _stacked("Reasons for waiting over time", table, "outgoing queues")


def _stacked(title: str, table: pd.DataFrame, unit: str = "messages") -> list[Element]:
    order = table.sum().sort_values(ascending=False).index

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 2.6))
        axes = figure.add_subplot()
        base = np.zeros(len(table))
        for number, cause in enumerate(order):
            heights = table[cause].to_numpy(dtype=float)
            _bars(axes, table, heights, _CAUSES[number % len(_CAUSES)], fit(cause), base)
            base += heights
        _axes_of_time(axes, table, width, unit)
        columns = 3 if width == WIDE else 1
        axes.legend(frameon=False, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.2), handlelength=1)
        return figure

    return _both(title, draw)


def traffic(table: pd.DataFrame) -> list[Element]:
    """Messages sent over time, the dead ones among them."""

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 2.4))
        axes = figure.add_subplot()
        for name, variable, label in (("messages", "sent", "sent"), ("died", "red", "of these died")):
            _bars(axes, table, table[name].to_numpy(dtype=float), colour(variable), label)
        _axes_of_time(axes, table, width)
        axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), handlelength=1)
        return figure

    return _both("Messages over time", draw)


def _bars(
    axes: Axes, table: pd.DataFrame, heights: np.ndarray, drawn: str, label: str, base: np.ndarray | None = None
) -> None:
    step: Any = table.index[1] - table.index[0] if len(table) > 1 else np.timedelta64(1, "h")
    axes.bar(table.index, heights, width=step, bottom=base, align="edge", color=drawn, label=label, linewidth=0)


def _axes_of_time(axes: Axes, table: pd.DataFrame, width: float, unit: str = "messages") -> None:
    """Days as 2026-01-31, hours as 13:00 with the day beneath the first and each midnight."""
    first, last = table.index[0], table.index[-1]
    most = 9 if width == WIDE else 4
    step = next((hours for hours in _TICKS if (last - first) <= pd.Timedelta(hours=hours) * most), _TICKS[-1])
    ticks = [tick for tick in pd.date_range(first.floor("D"), last, freq=f"{step}h") if tick >= first] or [first]
    labels = [
        f"{tick:%Y-%m-%d}" if step >= 24 else f"{tick:%H:%M}" + f"\n{tick:%Y-%m-%d}" * (not place or tick.hour == 0)
        for place, tick in enumerate(ticks)
    ]
    axes.set_xticks(ticks, labels)
    axes.grid(visible=False, axis="x")
    axes.margins(x=0)
    axes.set_ylabel(unit)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
