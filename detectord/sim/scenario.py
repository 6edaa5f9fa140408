"""Which faults happen where and when: everything random is decided here, from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detectord.sim.faults import FAULTS, NUISANCES, FaultKind


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet of ``nodes`` x ``gpus``, watched for ``duration`` seconds at ``interval``; ``start`` is epoch seconds."""

    nodes: int = 63
    gpus: int = 8
    duration: float = 86400.0
    interval: float = 30.0
    faults: int = 12
    nuisances: int = 10
    seed: int = 1
    start: float = 1_799_971_200.0  # a midnight, UTC


@dataclass(frozen=True, slots=True)
class Injection:
    """``at`` is epoch seconds; ``repaired`` is when somebody reboots the node (None: nobody has to)."""

    at: float
    node: int
    gpu: int
    kind: FaultKind
    repaired: float | None
    pid: int
    link: int


def plan(scenario: Scenario) -> list[Injection]:
    """Draw the injections in order of time.

    Each kind of fault comes at least once when there are enough of them. A node has at most one fault: a second one
    on a node that is already broken cannot be told apart by anybody, and would only make the count look better or
    worse than it is.
    """
    rng = np.random.default_rng(scenario.seed)
    faults = min(scenario.faults, scenario.nodes)
    kinds = [FAULTS[i % len(FAULTS)] for i in range(faults)]
    kinds += [NUISANCES[i % len(NUISANCES)] for i in range(scenario.nuisances)]
    broken = [int(node) for node in rng.permutation(scenario.nodes)[:faults]]
    nodes = broken + [int(node) for node in rng.integers(0, scenario.nodes, size=scenario.nuisances)]
    # The first minutes belong to the start of all agents, the last to whatever was injected just before them.
    early, late = scenario.duration * 0.02, scenario.duration * 0.9
    injections = []
    for kind, node in zip(kinds, nodes, strict=True):
        at = scenario.start + float(rng.uniform(early, late))
        repair = None if kind.harmless else at + float(rng.uniform(2 * 3600, 6 * 3600))
        injections.append(
            Injection(
                at=at,
                node=node,
                gpu=int(rng.integers(0, scenario.gpus)),
                kind=kind,
                repaired=repair,
                pid=int(rng.integers(1000, 4_000_000)),
                link=int(rng.integers(0, 18)),
            )
        )
    return sorted(injections, key=lambda injection: injection.at)
