"""Drawing: matplotlib figures as SVG text, one look for all. No window, no files, no fonts that a reader must have."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import dates as mdates
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from mqenterprise.topology.drawing import Graph, LinkEdge, SiteNode, layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes

INK, MUTED, LINE, ACCENT, ALARM = "#1d2733", "#66788a", "#dfe6ee", "#2563a8", "#c2410c"
_CAUSES: Final = ("#c2410c", "#e09f3e", "#7b4b94", "#2a9d8f", "#5b6c7d", "#b5446e", "#8d9f2f", "#3f6fb5")
_LATENCY: Final = LinearSegmentedColormap.from_list("latency", ["#eef5fb", "#9cc4e4", "#3f7fbf", "#1f3f73", "#c2410c"])
_LOSS: Final = LinearSegmentedColormap.from_list("loss", ["#2563a8", "#8a6fb0", "#c2410c"])
_STYLE: Final[Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "svg.fonttype": "none",  # the reader's own fonts
    "svg.hashsalt": "mqenterprise",  # the same figure is the same text
}
MOST_SITES: Final = 150
"""On the map; the ones with the busiest links."""


def _svg(figure: Figure, title: str) -> str:
    sink = io.StringIO()
    figure.savefig(sink, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    text = sink.getvalue()
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', f'role="img" aria-label="{title}"', text, count=1)
    # In a page, it needs neither what made it nor the addresses that name its language.
    return re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->| xmlns(:\w+)?=\"[^\"]*\"", "", text[text.index("<svg") :], flags=re.S
    )


def site_map(links: pd.DataFrame, sites: Mapping[str, bool]) -> str:
    """Sites and the links between them: the thicker, the more crossed; the redder, the more was lost."""
    names = _on_map(links, sites)
    place = {name: index for index, name in enumerate(names)}
    shown = links[links["site1"].isin(place) & links["site2"].isin(place)]
    nodes = tuple(SiteNode(name, sites.get(name, False), 0, (), 0) for name in names)
    edges = tuple(
        LinkEdge(place[one], place[two], 1, ()) for one, two in zip(shown["site1"], shown["site2"], strict=True)
    )
    points = np.array(layout(Graph(nodes, edges))).reshape(-1, 2) * (1, -1)
    with mpl.rc_context(_STYLE):
        span = np.ptp(points, axis=0) if len(points) > 1 else np.array([1.0, 1.0])
        height = float(np.clip(9.5 * span[1] / max(span[0], 1.0) + 1.2, 3.0, 5.6))
        figure = Figure(figsize=(9.5, height))
        axes = figure.add_subplot()
        axes.axis("off")
        axes.margins(0.12)
        most = max(float(shown["crossings"].max()), 1.0) if len(shown) else 1.0
        for row in shown.itertuples():
            _draw_link(axes, points[[place[row.site1], place[row.site2]]], row, most, label=len(names) <= 40)
        for name, point in zip(names, points, strict=True):
            foreign = sites.get(name, False)
            colour, edge = ("#fbf3e4", "#a3732b") if foreign else ("#ffffff", ACCENT)
            size = 420 if len(names) <= 40 else 60
            axes.scatter(point[0], point[1], s=size, color=colour, edgecolors=edge, linewidths=1.8, zorder=3)
            if len(names) <= 60:
                axes.annotate(name, point, (0, -19), textcoords="offset points", ha="center", va="top", weight="bold")
        return _svg(figure, "Map of sites and routing links")


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


def _draw_link(axes: Axes, ends: np.ndarray, row: object, most: float, *, label: bool) -> None:
    crossings, lost = float(row.crossings), float(row.lost)  # type: ignore[attr-defined]
    share = lost / (crossings + lost) if crossings + lost else 0.0
    used = crossings + lost > 0
    axes.plot(
        *ends.T,
        color=_LOSS(min(share * 20, 1.0)) if used else "#b8c4d0",
        linewidth=1.2 + 9 * (crossings / most) ** 0.5 if used else 1.2,
        linestyle="-" if used else (0, (4, 3)),
        solid_capstyle="round",
        alpha=0.85,
        zorder=1,
    )
    if not label:
        return
    delay = row.delay  # type: ignore[attr-defined]
    parts = [f"{crossings:,.0f}"] if used else ["unused"]
    if used and delay == delay:
        parts.append(seconds(delay))
    if share:
        parts.append(f"{share:.1%} lost")
    middle = ends.mean(axis=0)
    axes.annotate(
        "\n".join(parts),
        middle,
        ha="center",
        va="center",
        fontsize=8.5,
        color=INK if used else MUTED,
        bbox={"boxstyle": "round,pad=0.3", "fc": "white", "ec": LINE, "alpha": 0.92},
        zorder=2,
    )


def latency_map(means: pd.DataFrame) -> str:
    """Pairs of sites by hour of the day; the darker, the slower."""
    values = means.to_numpy(dtype=float)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 1.1 + 0.34 * len(means)))
        axes = figure.add_subplot()
        axes.grid(visible=False)
        low, high = np.nanmin(values), np.nanmax(values)
        least, most = max(float(low), 1e-6), max(float(high), float(low) * 1.01, 1e-5)
        norm = LogNorm(least, most)
        image = axes.pcolormesh(
            np.ma.masked_invalid(np.maximum(values, 1e-6)), cmap=_LATENCY, norm=norm, edgecolors="white", linewidth=1.2
        )
        axes.invert_yaxis()
        axes.set_yticks(np.arange(len(means)) + 0.5, means.index)
        axes.set_xticks(np.arange(0, 24, 3) + 0.5, [f"{hour:02}:00" for hour in range(0, 24, 3)])
        axes.tick_params(length=0, labelcolor=INK)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=max(6.0, 2.2 * len(means)))
        ticks = np.geomspace(least, most, 4).tolist()
        bar.set_ticks(ticks, labels=[seconds(tick) for tick in ticks])
        bar.ax.minorticks_off()
        bar.outline.set_visible(False)
        return _svg(figure, "Mean latency by pair of sites and hour of day")


def deaths(table: pd.DataFrame) -> str:
    """Causes of death over time, stacked."""
    order = table.sum().sort_values(ascending=False).index
    step = table.index[1] - table.index[0] if len(table) > 1 else np.timedelta64(1, "h")
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 3.2))
        axes = figure.add_subplot()
        base = np.zeros(len(table))
        for number, cause in enumerate(order):
            heights = table[cause].to_numpy(dtype=float)
            colour = _CAUSES[number % len(_CAUSES)]
            axes.bar(
                table.index, heights, width=step, bottom=base, align="edge", color=colour, label=cause, linewidth=0
            )
            base += heights
        _time_axis(axes)
        axes.set_ylabel("messages")
        axes.legend(frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.12), handlelength=1, fontsize=9)
        return _svg(figure, "Causes of death over time")


def traffic(table: pd.DataFrame) -> str:
    """Messages sent over time, the dead ones among them."""
    step = table.index[1] - table.index[0] if len(table) > 1 else np.timedelta64(1, "h")
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 2.4))
        axes = figure.add_subplot()
        axes.bar(table.index, table["messages"], width=step, align="edge", color="#a9c8e6", label="sent", linewidth=0)
        axes.bar(table.index, table["died"], width=step, align="edge", color=ALARM, label="of these died", linewidth=0)
        _time_axis(axes)
        axes.set_ylabel("messages")
        axes.legend(frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0, 1.16), handlelength=1, fontsize=9)
        return _svg(figure, "Messages over time")


def _time_axis(axes: Axes) -> None:
    locator: Any = mdates.AutoDateLocator(maxticks=10)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(visible=False, axis="x")
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def seconds(value: float) -> str:
    """A time in the unit that reads best; below zero when the clocks of two nodes differ."""
    if value < 0:
        return f"-{seconds(-value)}"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value / 3600:.3g} h" if value < 172_800 else f"{value / 86_400:.3g} days"
