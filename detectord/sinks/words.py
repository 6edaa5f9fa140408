"""An alert in the words an operator reads: the same in log, report and command line."""

from __future__ import annotations

from datetime import UTC, datetime

from detectord.core.model import Action, Alert, Change, Evidence, Incident, Provenance, SubjectKind

_DO = {
    Action.NONE: "nothing",
    Action.INVESTIGATE: "investigate",
    Action.RESTART_APP: "restart the application",
    Action.UPDATE_SOFTWARE: "update driver or firmware",
    Action.RESET: "reset the GPU",
    Action.REBOOT: "reboot the node",
    Action.DRAIN: "drain the node, then reset the GPU",
    Action.REPLACE: "replace the GPU",
}


def where(incident: Incident) -> str:
    """``node-0004 GPU 6 (0000:81:00.0, serial 165...)``"""
    subject = incident.subjects[0]
    if subject.kind is SubjectKind.NODE:
        return incident.node
    labels = incident.labels
    name = f"{subject.kind.value.upper()} {labels.get('index', subject.id)}"
    known = [labels["pci"]] if "pci" in labels else []
    known += [f"serial {labels['serial']}"] if labels.get("serial") else []
    return f"{incident.node} {name}" + (f" ({', '.join(known)})" if known else "")


def what_to_do(incident: Incident) -> str:
    vendor = f" (NVIDIA: {incident.immediate})" if incident.immediate else ""
    return _DO[incident.action] + vendor


def strongest(incident: Incident, limit: int = 3) -> list[Evidence]:
    """The gravest evidence first, then the oldest."""
    return sorted(incident.evidence, key=lambda one: (-one.verdict.severity, one.at))[:limit]


def when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def describe(alert: Alert) -> str:
    """Several lines: what, where, since when, how sure, why, what to do."""
    incident = alert.incident
    mark = "[injected] " if incident.provenance is Provenance.INJECTED else ""
    lines = [f"{mark}{incident.severity.name} {where(incident)}: {incident.title}"]
    since = f"  since   {when(incident.opened)}, seen {incident.count} time{'s' if incident.count > 1 else ''}"
    lines.append(f"{since}, {incident.confidence:.0%} sure, class {incident.fault_class.value}")
    if alert.change is Change.CLOSED:
        lines.append(f"  closed  {when(incident.closed or alert.at)}: {incident.closing}")
        return "\n".join(lines)
    lines += [f"  because {one.verdict.fault}: {one.text}" for one in strongest(incident)]
    lines.append(f"  do      {what_to_do(incident)}")
    if alert.advice is not None:
        state = f"withheld, {alert.advice.withheld}" if alert.advice.withheld else f"until {when(alert.advice.expires)}"
        lines.append(f"  exclude {alert.advice.node} {state}")
    return "\n".join(lines)
