"""A heat map of times by hour of the day, as HTML: it fits any window, and each field shows its value."""

from typing import Final

import numpy as np
import pandas as pd

from mqenterprise.markup import Element, element
from mqenterprise.pipeline.report.cells import seconds

STEPS: Final = 7
"""The number of shades in ``report.css``."""
_LEAST: Final = 1e-6
"""Seconds; a time of zero or below (clocks differ) has the first shade."""


def heat_map(means: pd.DataFrame) -> list[Element]:
    """Rows with 24 fields each; seven shades from the least to the greatest, in equal ratios."""
    values = np.maximum(means.to_numpy(dtype=float), _LEAST)
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    steps = STEPS if most > 1.05 * least else 1
    bounds = np.geomspace(least, most, steps + 1)
    parts = [element("span", class_="corner")]
    parts += [element("span", f"{hour:02}" if hour % 3 == 0 else "", class_="hour") for hour in range(24)]
    for pair, row in zip(means.index, means.to_numpy(dtype=float), strict=True):
        parts.append(element("span", str(pair), class_="pair"))
        parts += [_field(str(pair), hour, value, bounds) for hour, value in enumerate(row)]
    legend = (
        element(
            "li",
            element("span", class_="swatch box", style=f"background:var(--h{shade})"),
            f"{'' if steps == 1 else 'to '}{seconds(float(bounds[shade + 1]))}",
        )
        for shade in range(steps)
    )
    label = "Mean latency by pair of sites and hour of day"
    heat = element("div", *parts, class_="heat", role="img", aria_label=label)
    return [heat, element("ul", *legend, class_="legend")]


def _field(pair: str, hour: int, value: float, bounds: np.ndarray) -> Element:
    if np.isnan(value):
        return element("i")
    shade = int(np.clip(np.searchsorted(bounds, max(value, _LEAST), "left") - 1, 0, len(bounds) - 2))
    return element("i", style=f"background:var(--h{shade})", title=f"{pair}, {hour:02}:00: {seconds(value)}")
