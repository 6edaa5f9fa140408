"""The two forms of a webhook's body: detectord's own, with a published schema, and Alertmanager's webhook v4."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, Final

from detectord.core.model import Advice, Alert, Change, Evidence, Incident, IncidentState
from detectord.sinks.words import describe, strongest, what_to_do, where

MAX_BYTES: Final = 20_000
_NEVER: Final = "0001-01-01T00:00:00Z"


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def own(alert: Alert, cluster: str) -> bytes:
    """``{"type": "incident.opened", "timestamp", "data": {...}}``, under 20 kB: evidence is left out from the weakest
    on until it fits, and ``evidence_omitted`` says how much."""
    incident = alert.incident
    evidence = strongest(incident, len(incident.evidence))
    for keep in range(len(evidence), -1, -1):
        body = {
            "type": f"incident.{alert.change.value}",
            "timestamp": iso(alert.at),
            "data": {
                "cluster": cluster,
                "incident": _incident(incident),
                "evidence": [_evidence(one) for one in evidence[:keep]],
                "evidence_omitted": len(evidence) - keep,
                "summary": describe(alert)[:4000],
                "exclusion": _advice(alert.advice) if alert.advice else None,
            },
        }
        encoded = _encode(body)
        if len(encoded) < MAX_BYTES:
            break
    return encoded


def alertmanager(alert: Alert, cluster: str) -> bytes:
    """One alert a notification. A receiver pairs firing and resolved by ``fingerprint`` and ``startsAt``."""
    incident = alert.incident
    closed = incident.state is IncidentState.CLOSED or alert.change is Change.CLOSED
    status = "resolved" if closed else "firing"
    labels = {
        "alertname": "detectord_" + incident.fault.replace("-", "_"),
        "cluster": cluster,
        "node": incident.node,
        "severity": incident.severity.name.lower(),
        "class": incident.fault_class.value,
        "fault": incident.fault,
        "incident": incident.id,
        "provenance": incident.provenance.value,
        **({"gpu": incident.labels["index"]} if "index" in incident.labels else {}),
    }
    annotations = {
        "summary": f"{where(incident)}: {incident.title}",
        "description": describe(alert)[:4000],
        "action": what_to_do(incident),
    }
    one = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": iso(incident.opened),
        "endsAt": iso(incident.closed or alert.at) if closed else _NEVER,
        "generatorURL": "",
        "fingerprint": incident.id,
    }
    return _encode(
        {
            "version": "4",
            "groupKey": f'{{}}:{{incident="{incident.id}"}}',
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "detectord",
            "groupLabels": {"incident": incident.id},
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": "",
            "alerts": [one],
        }
    )


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "node": incident.node,
        "subjects": [{"kind": subject.kind.value, "id": subject.id} for subject in incident.subjects],
        "labels": incident.labels,
        "fault": incident.fault,
        "title": incident.title,
        "class": incident.fault_class.value,
        "severity": incident.severity.name.lower(),
        "role": incident.role.value,
        "state": incident.state.value,
        "action": incident.action.value,
        "vendor_action": incident.immediate,
        "vendor_investigation": incident.investigate,
        "confidence": incident.confidence,
        "provenance": incident.provenance.value,
        "count": incident.count,
        "opened": iso(incident.opened),
        "updated": iso(incident.updated),
        "closed": None if incident.closed is None else iso(incident.closed),
        "closing": incident.closing,
    }


def _evidence(one: Evidence) -> dict[str, Any]:
    return {
        "at": iso(one.at),
        "judge": one.judge,
        "subject": {"kind": one.subject.kind.value, "id": one.subject.id},
        "fault": one.verdict.fault,
        "severity": one.verdict.severity.name.lower(),
        "text": one.text[:500],
        "metric": one.metric,
        "value": one.value if math.isfinite(one.value) else None,
        "expected": one.expected,
        "provenance": one.provenance.value,
    }


def _advice(advice: Advice) -> dict[str, Any]:
    return {
        "node": advice.node,
        "action": advice.action.value,
        "because": list(advice.because),
        "since": iso(advice.since),
        "expires": iso(advice.expires),
        "owner": advice.owner,
        "withheld": advice.withheld,
    }
