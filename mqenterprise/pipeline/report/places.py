"""Positions of the sites on a map: linked ones near each other, all apart, and the map wider than high."""

from collections.abc import Sequence
from typing import Final

import numpy as np

_ROUNDS: Final = 300


def places(count: int, links: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return points for sites, starting from a circle. The same sites and links get the same points.

    Fruchterman and Reingold: links pull with the square of their length, sites push by the inverse of their distance.
    """
    turn = 2 * np.pi * np.arange(count) / max(count, 1)
    points = np.column_stack([np.cos(turn), np.sin(turn)]) * max(count, 1) / np.pi
    ends = np.array([link for link in links if link[0] != link[1]], dtype=int).reshape(-1, 2)
    for heat in np.linspace(0.1 * count, 0.01, _ROUNDS):
        apart = points[:, None] - points[None]
        length = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        moves = (apart / length[..., None] ** 2).sum(axis=1)
        along = points[ends[:, 0]] - points[ends[:, 1]]
        pull = along * np.linalg.norm(along, axis=1)[:, None]
        np.subtract.at(moves, ends[:, 0], pull)
        np.add.at(moves, ends[:, 1], pull)
        # Sites without links would drift off the map.
        moves -= 0.05 * (points - points.mean(axis=0))
        step = np.maximum(np.linalg.norm(moves, axis=1), 1e-9)[:, None]
        points = points + moves / step * np.minimum(step, heat)
    return _flat(points)


def _flat(points: np.ndarray) -> np.ndarray:
    """Turn the points so that the greatest distance lies from left to right."""
    if len(points) < 2:
        return points
    around = points - points.mean(axis=0)
    axis = np.linalg.svd(around, full_matrices=False)[2][0]
    axis = axis if axis[0] >= 0 else -axis
    turned: np.ndarray = around @ np.array([[axis[0], -axis[1]], [axis[1], axis[0]]])
    return turned
