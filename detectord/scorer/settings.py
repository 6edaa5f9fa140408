"""What the engine may be told. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from detectord.core.model import Severity


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``window`` is how far apart evidence of one fault may be; ``quiet`` closes notices and application faults,
    ``cause_quiet`` causes that nobody rebooted for; ``recovery`` is the healthy time after which a repair is
    believed. ``planned_stop`` is how long a node that said goodbye may stay away."""

    allow_injected: bool = False
    dry_run: bool = False
    join_causes: bool = True
    notify_from: Severity = Severity.WARNING
    window: float = 600.0
    quiet: float = 3600.0
    cause_quiet: float = 86400.0
    recovery: float = 600.0
    silence_factor: float = 4.0
    silence_grace: float = 30.0
    planned_stop: float = 900.0
    broker_share: float = 0.3
    clock_skew: float = 60.0
    persistence: int = 3
    advice_ttl: float = 86400.0
    cap_share: float = 0.05
    cap_nodes: int = 8
    remember_keys: int = 200_000
