"""What a dry run found, held against what was injected. Knows incidents and injections, and no detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from detectord.core.model import Incident, Subject, SubjectKind
from detectord.sim.faults import Effect
from detectord.sim.fleet import Fleet
from detectord.sim.scenario import Injection


@dataclass(frozen=True, slots=True)
class Finding:
    """One injected fault and the incident that told of it first; ``latency`` in simulated seconds."""

    injection: Injection
    node: str
    gpu: str
    incident: Incident | None

    @property
    def latency(self) -> float | None:
        return None if self.incident is None else self.incident.opened - self.injection.at


@dataclass(frozen=True, slots=True)
class Score:
    """``false`` are incidents somebody was told of that belong to no injected fault."""

    findings: tuple[Finding, ...]
    false: tuple[Incident, ...]
    nuisances: int

    @property
    def detected(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.incident is not None)

    @property
    def missed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.incident is None)

    @property
    def latencies(self) -> list[float]:
        """Sorted, in simulated seconds."""
        return sorted(finding.latency for finding in self.findings if finding.latency is not None)


def score(
    fleet: Fleet, injections: Sequence[Injection], notified: Sequence[Incident], patience: float = 900.0
) -> Score:
    """A fault is detected by an incident on its very GPU (its node, when the whole node fell silent), opened within
    ``patience`` seconds after it. Any later or other incident on a broken subject until its repair belongs to it
    but detects nothing; an incident on anything else is false."""
    findings, owned = [], set[str]()
    for injection in injections:
        if injection.kind.harmless:
            continue
        node = fleet.nodes[injection.node]
        whole = injection.kind.effect is Effect.NODE_GOES_SILENT
        subject = (
            Subject(node.name, SubjectKind.NODE, node.name)
            if whole
            else Subject(node.name, SubjectKind.GPU, node.uuids[injection.gpu])
        )
        until = float("inf") if injection.repaired is None else injection.repaired + 600.0
        mine = [
            incident
            for incident in notified
            if incident.subjects[0] == subject and injection.at <= incident.opened <= until
        ]
        owned.update(incident.id for incident in mine)
        in_time = [incident for incident in mine if incident.opened <= injection.at + patience]
        first = min(in_time, key=lambda incident: incident.opened, default=None)
        findings.append(Finding(injection, node.name, "" if whole else str(injection.gpu), first))
    false = tuple(incident for incident in notified if incident.id not in owned)
    return Score(tuple(findings), false, sum(injection.kind.harmless for injection in injections))
