"""Certain limits over columns: raised at once, no statistics, no persistence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detectord.core.ports import Limit

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hit:
    """``row`` broke ``limit`` with ``value``; with ``inside`` false a limit that clears was looked at and holds."""

    row: int
    limit: Limit
    value: float
    inside: bool


def judge(names: Sequence[str], values: Floats, before: Floats, limits: Sequence[Limit]) -> Iterator[Hit]:
    """Hold ``values`` of shape (rows, metrics) against the limits. ``before`` has the same shape: the previous values,
    NaN where there are none. A value that is NaN breaks nothing and clears nothing; a counter that has fallen was
    reset, and a reset is no rise."""
    columns = {name: index for index, name in enumerate(names)}
    for limit in limits:
        if (column := columns.get(limit.metric)) is None:
            continue
        value = values[:, column]
        if limit.rises:
            value = value - before[:, column]
            value = np.where(value > 0, value, np.nan)
        broken = (value >= limit.low) & (value <= limit.high)
        known = ~np.isnan(value)
        for row in np.flatnonzero(broken | (known & limit.clears)):
            yield Hit(int(row), limit, float(value[row]), bool(broken[row]))
