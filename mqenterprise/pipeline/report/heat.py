"""A heat map of times by hour of the day, as HTML: it fits any window, and each field shows its value."""

from html import escape
from typing import Final

import numpy as np
import pandas as pd

from mqenterprise.pipeline.report.cells import seconds

STEPS: Final = 7
"""The number of shades in ``report.css``."""
_LEAST: Final = 1e-6
"""Seconds; a time of zero or below (clocks differ) has the first shade."""


def heat_map(means: pd.DataFrame) -> str:
    """Rows with 24 fields each; seven shades from the least to the greatest, in equal ratios."""
    values = np.maximum(means.to_numpy(dtype=float), _LEAST)
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    steps = STEPS if most > 1.05 * least else 1
    bounds = np.geomspace(least, most, steps + 1)
    hours = "".join(f'<span class="hour">{f"{hour:02}" if hour % 3 == 0 else ""}</span>' for hour in range(24))
    rows = []
    for pair, row in zip(means.index, means.to_numpy(dtype=float), strict=True):
        fields = "".join(_field(str(pair), hour, value, bounds) for hour, value in enumerate(row))
        rows.append(f'<span class="pair">{escape(str(pair))}</span>{fields}')
    legend = "".join(
        f'<li><span class="swatch box" style="background:var(--h{shade})"></span>'
        f"{'' if steps == 1 else 'to '}{seconds(float(bounds[shade + 1]))}</li>"
        for shade in range(steps)
    )
    return (
        f'<div class="heat" role="img" aria-label="Mean latency by pair of sites and hour of day">'
        f'<span class="corner"></span>{hours}{"".join(rows)}</div><ul class="legend">{legend}</ul>'
    )


def _field(pair: str, hour: int, value: float, bounds: np.ndarray) -> str:
    if np.isnan(value):
        return "<i></i>"
    shade = int(np.clip(np.searchsorted(bounds, max(value, _LEAST), "left") - 1, 0, len(bounds) - 2))
    hint = escape(f"{pair}, {hour:02}:00: {seconds(value)}")
    return f'<i style="background:var(--h{shade})" title="{hint}"></i>'
