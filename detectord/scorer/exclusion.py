"""Which nodes to keep out of the next job. Only causes, never injected ones, never beyond the cap."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from detectord.core.model import (
    EXCLUDING_ACTIONS,
    Action,
    Advice,
    Exclusions,
    Incident,
    IncidentState,
    Provenance,
    Role,
)
from detectord.scorer.settings import EngineSettings

_GRAVITY = {action: rank for rank, action in enumerate(Action)}


def advise(incidents: Iterable[Incident], fleet_nodes: int, now: float, settings: EngineSettings) -> Exclusions:
    """Advice from the open incidents at ``now``. The graver and the older come first; what the cap leaves out is
    listed as withheld, with the reason."""
    wishes: dict[str, list[Incident]] = {}
    for incident in incidents:
        if _excludes(incident, now, settings):
            wishes.setdefault(incident.node, []).append(incident)
    ranked = sorted(
        (_advice(node, reasons, settings) for node, reasons in wishes.items()),
        key=lambda advice: (-_GRAVITY[advice.action], advice.since, advice.node),
    )
    cap = min(settings.cap_nodes, max(1, int(settings.cap_share * fleet_nodes)))
    why = f"cap: {min(cap, len(ranked))} of {fleet_nodes} nodes are already advised out"
    withheld = tuple(msgspec.structs.replace(advice, withheld=why) for advice in ranked[cap:])
    return Exclusions(at=now, cap_nodes=cap, fleet_nodes=fleet_nodes, exclude=tuple(ranked[:cap]), withheld=withheld)


def _excludes(incident: Incident, now: float, settings: EngineSettings) -> bool:
    return (
        incident.state is IncidentState.OPEN
        and incident.role is Role.CAUSE
        and incident.action in EXCLUDING_ACTIONS
        and (incident.provenance is not Provenance.INJECTED or settings.dry_run)
        and now < incident.updated + settings.advice_ttl
    )


def _advice(node: str, incidents: list[Incident], settings: EngineSettings) -> Advice:
    incidents = sorted(incidents, key=lambda incident: (-_GRAVITY[incident.action], incident.opened, incident.id))
    return Advice(
        node=node,
        action=incidents[0].action,
        because=tuple(_reason(incident) for incident in incidents[:5]),
        incidents=tuple(incident.id for incident in incidents),
        since=min(incident.opened for incident in incidents),
        expires=max(incident.updated for incident in incidents) + settings.advice_ttl,
    )


def _reason(incident: Incident) -> str:
    index = incident.labels.get("index")
    where = f"GPU {index}" if index is not None else incident.subjects[0].id
    return f"{where}: {incident.title}" + (f" ({incident.count} times)" if incident.count > 1 else "")
