"""What steps of a draft that were not made yet may bring, by acceptance by position.

Knows merged trees and what calibration expects; no cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from swiftspec_daemon.speculation.calibration import DEEPEST
from swiftspec_daemon.speculation.merging import MergedTree

LOOK_AHEAD = 4
"""Draft steps whose gain is weighed together: one alone may not pay where two do."""


def fresh(
    aheads: Sequence[Sequence[float]], tree: MergedTree, leaves: Sequence[int]
) -> list[list[float]]:
    """How far the children of each leaf may reach, best first, the best leaf's first: acceptance by
    position, of what other sources have not proposed there already."""
    reach, mass, depths = tree.reach, tree.mass, tree.depths
    rows = []
    for leaf in leaves:
        left = 1 - mass[leaf]
        own = reach[leaf] * left if left > 0 else 0.0
        depth = depths[leaf] + 1
        rows.append([own * p for p in aheads[depth if depth < DEEPEST else DEEPEST]])
    rows.sort(reverse=True)
    return rows


def further(aheads: Sequence[Sequence[float]], reach: float, depth: int) -> list[float]:
    """The same for the best child's best child, and so on; the leaf is at `depth`."""
    found = []
    for below in range(depth + 2, depth + 1 + LOOK_AHEAD):
        reach *= aheads[min(below, DEEPEST)][0]
        found.append(reach)
    return found


__all__ = ["LOOK_AHEAD", "fresh", "further"]
