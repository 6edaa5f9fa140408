"""Who has stopped speaking. A node, a GPU and a broker are three kinds of silence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def overdue(heard: Floats, patience: Floats, now: float) -> Bools:
    """Which nodes, of shape (nodes,), were last heard longer ago than they may be silent (all in seconds)."""
    return (now - heard) > patience


def is_broker(silent: int, fleet: int, share: float) -> bool:
    """So many at once are not so many faults: what they have in common is the way to us."""
    return silent >= 3 and silent >= share * fleet
