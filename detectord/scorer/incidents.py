"""Open incidents: which evidence belongs to which, what is told, and how an incident ends.

| what comes | on the subject there is | then |
|---|---|---|
| any evidence | an open incident of the same fault | it is counted there; a rise in severity or action is told |
| a symptom | an open cause within the window | it is attached, nothing is told |
| a symptom | nothing | an incident of severity info, nothing is told |
| a cause | an open cause of the same class, or XID 154 on either side, within the window | it joins; a rise is told |
| a cause | an open symptom within the window | a new incident; the symptom's incident ends as belonging to it |
| a cause, application error or notice | nothing | a new incident, told from the configured severity on |

Injected and real evidence never meet: provenance is part of the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from detectord.core.model import Action, Change, Evidence, Incident, IncidentState, Provenance, Role, Subject
from detectord.core.ports import Effect, IncidentChanged
from detectord.scorer.settings import EngineSettings

# state -> states it may pass to
STATES: Final[dict[IncidentState, frozenset[IncidentState]]] = {
    IncidentState.OPEN: frozenset({IncidentState.RECOVERING, IncidentState.CLOSED}),
    IncidentState.RECOVERING: frozenset({IncidentState.OPEN, IncidentState.CLOSED}),
    IncidentState.CLOSED: frozenset(),
}
_GRAVITY: Final = {action: rank for rank, action in enumerate(Action)}
KERNEL_LOG: Final = "kernel-log"
_RECOVERY_FAULT: Final = "xid-154"
_FIRST, _LAST = 3, 5


@dataclass(slots=True)
class Entry:
    """``faults`` are all that were joined into the incident; ``written`` is when it was last given out; ``clears`` says
    that it ends as soon as its condition has gone for the recovery time."""

    incident: Incident
    number: int
    faults: set[str]
    written: float
    clears: bool = False


class Book:
    """All open incidents. Every method gives the effects it has had."""

    def __init__(self, settings: EngineSettings, saved: Iterable[tuple[Incident, int]] = ()) -> None:
        self._settings = settings
        self._entries: dict[str, Entry] = {}
        self._by_subject: dict[Subject, list[str]] = {}
        for incident, number in saved:
            if incident.state is not IncidentState.CLOSED:
                faults = {incident.fault, *(evidence.verdict.fault for evidence in incident.evidence)}
                # What the kernel wrote stays written; what a judge saw ends when the judge sees it gone.
                clears = bool(incident.evidence) and incident.evidence[0].judge != KERNEL_LOG
                self._add(Entry(incident, number, faults, incident.updated, clears))

    def __iter__(self) -> Iterator[Incident]:
        return (entry.incident for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def on(self, subject: Subject) -> list[Entry]:
        return [self._entries[name] for name in self._by_subject.get(subject, ())]

    def of(self, node: str) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.incident.node == node]

    def see(
        self, evidence: Evidence, now: float, key: str, labels: dict[str, str], count: int = 1, clears: bool = False
    ) -> list[Effect]:
        """Put evidence where it belongs. ``key`` identifies what was seen, for a reproducible incident id."""
        verdict = evidence.verdict
        here = [entry for entry in self.on(evidence.subject) if self._meets(entry.incident, evidence)]
        for entry in here:
            if verdict.fault in entry.faults:
                return self._again(entry, evidence, now, count)
        near = [entry for entry in here if now - entry.incident.updated <= self._settings.window]
        if (home := self._home(evidence, near)) is not None:
            home.faults.add(verdict.fault)
            return self._again(home, evidence, now, count)
        opened = self._open(evidence, now, key, labels, count, clears)
        if verdict.role is not Role.CAUSE:
            return opened
        symptoms = [entry for entry in near if entry.incident.role is Role.SYMPTOM]
        ended = [
            effect for entry in symptoms for effect in self._end(entry, now, f"belongs to {verdict.title}", tell=False)
        ]
        return opened + ended

    def _meets(self, incident: Incident, evidence: Evidence) -> bool:
        """In a dry run all is pretended alike; elsewhere the pretended never touches the real."""
        pretended = Provenance.INJECTED
        return self._settings.dry_run or (incident.provenance is pretended) == (evidence.provenance is pretended)

    def _home(self, evidence: Evidence, near: Sequence[Entry]) -> Entry | None:
        verdict = evidence.verdict
        causes = [entry for entry in near if entry.incident.role is Role.CAUSE]
        if verdict.role is Role.SYMPTOM:
            named = [entry for entry in causes if verdict.cause_of in entry.faults]
            return next(iter(named or causes), None)
        if verdict.role is Role.CAUSE and self._settings.join_causes:
            for entry in causes:
                recovery = _RECOVERY_FAULT in (verdict.fault, entry.incident.fault)
                if recovery or entry.incident.fault_class is verdict.fault_class:
                    return entry
        return None

    def _open(
        self, evidence: Evidence, now: float, key: str, labels: dict[str, str], count: int, clears: bool
    ) -> list[Effect]:
        verdict = evidence.verdict
        text = "\n".join((evidence.subject.node, evidence.subject.id, verdict.fault, key, repr(now)))
        incident = Incident(
            id=hashlib.sha256(text.encode()).hexdigest()[:16],
            node=evidence.subject.node,
            subjects=(evidence.subject,),
            fault=verdict.fault,
            title=verdict.title,
            fault_class=verdict.fault_class,
            severity=verdict.severity,
            action=verdict.action,
            role=verdict.role,
            state=IncidentState.OPEN,
            opened=now,
            updated=now,
            count=count,
            provenance=evidence.provenance,
            evidence=(evidence,),
            labels=labels,
            immediate=verdict.immediate,
            investigate=verdict.investigate,
        )
        entry = Entry(incident, 0, {verdict.fault}, now, clears)
        self._add(entry)
        return [self._give(entry, Change.OPENED, self._told(incident))]

    def _again(self, entry: Entry, evidence: Evidence, now: float, count: int) -> list[Effect]:
        old, verdict = entry.incident, evidence.verdict
        graver = verdict.role is Role.CAUSE and (
            verdict.severity > old.severity or _GRAVITY[verdict.action] > _GRAVITY[old.action]
        )
        returned = old.state is IncidentState.RECOVERING
        total = old.count + count
        # What the recovery action changed for is the name of the incident; that it changed is only evidence.
        names = verdict if old.fault == _RECOVERY_FAULT and verdict.role is Role.CAUSE else None
        entry.incident = msgspec.structs.replace(
            old,
            fault=names.fault if names else old.fault,
            title=names.title if names else old.title,
            fault_class=names.fault_class if names else old.fault_class,
            state=IncidentState.OPEN,
            updated=max(now, old.updated),
            count=total,
            evidence=_bounded((*old.evidence, evidence)),
            severity=max(old.severity, verdict.severity) if graver else old.severity,
            action=max(old.action, verdict.action, key=_GRAVITY.__getitem__) if graver else old.action,
            immediate=verdict.immediate if graver and verdict.immediate else old.immediate,
        )
        # A line that is repeated 100,000 times must not be written 100,000 times.
        doubled = total.bit_length() > old.count.bit_length()
        if not (graver or returned or doubled or now - entry.written >= 60.0):
            return []
        return [self._give(entry, Change.UPDATED, (graver or returned) and self._told(entry.incident), now)]

    def recover(self, entry: Entry, now: float) -> list[Effect]:
        """The condition has gone, or the node has been rebooted: believe it after the recovery time."""
        if entry.incident.state is IncidentState.RECOVERING:
            return []
        entry.incident = msgspec.structs.replace(entry.incident, state=IncidentState.RECOVERING, updated=now)
        return [self._give(entry, Change.UPDATED, False, now)]

    def end(self, entry: Entry, now: float, why: str) -> list[Effect]:
        return self._end(entry, now, why, tell=self._told(entry.incident))

    def tick(self, now: float, silent: frozenset[str] = frozenset()) -> list[Effect]:
        """End what has been quiet or healthy for long enough. Of a node that is ``silent`` nobody can say that it is
        healthy."""
        settings, effects = self._settings, list[Effect]()
        for entry in list(self._entries.values()):
            incident = entry.incident
            idle = now - incident.updated
            if incident.state is IncidentState.RECOVERING:
                if idle >= settings.recovery and incident.node not in silent:
                    effects += self.end(entry, now, f"healthy for {settings.recovery / 60:.0f} minutes")
            elif entry.clears or incident.action is Action.REPLACE:
                continue
            elif idle >= (settings.cause_quiet if incident.role is Role.CAUSE else settings.quiet):
                effects += self.end(entry, now, f"not seen again for {idle / 3600:.0f} h")
        return effects

    def rename(self, old: Subject, new: Subject, labels: dict[str, str]) -> list[Effect]:
        """The same GPU by its real name: incidents opened under its PCI address go on under its UUID."""
        effects: list[Effect] = []
        for entry in self.on(old):
            self._drop(entry)
            entry.incident = msgspec.structs.replace(entry.incident, subjects=(new,), labels=labels)
            self._add(entry)
            effects.append(self._give(entry, Change.UPDATED, False))
        return effects

    def _end(self, entry: Entry, now: float, why: str, tell: bool) -> list[Effect]:
        self._drop(entry)
        entry.incident = msgspec.structs.replace(
            entry.incident, state=IncidentState.CLOSED, closed=now, updated=now, closing=why
        )
        return [self._give(entry, Change.CLOSED, tell, now)]

    def _give(self, entry: Entry, change: Change, notify: bool, now: float | None = None) -> IncidentChanged:
        entry.number += 1
        entry.written = entry.incident.updated if now is None else now
        return IncidentChanged(change, entry.incident, entry.number, notify)

    def _told(self, incident: Incident) -> bool:
        return incident.role is not Role.SYMPTOM and incident.severity >= self._settings.notify_from

    def _add(self, entry: Entry) -> None:
        self._entries[entry.incident.id] = entry
        self._by_subject.setdefault(entry.incident.subjects[0], []).append(entry.incident.id)

    def _drop(self, entry: Entry) -> None:
        subject = entry.incident.subjects[0]
        del self._entries[entry.incident.id]
        self._by_subject[subject].remove(entry.incident.id)
        if not self._by_subject[subject]:
            del self._by_subject[subject]


def _bounded(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """How it began and how it stands; the middle is in the count."""
    return evidence if len(evidence) <= _FIRST + _LAST else evidence[:_FIRST] + evidence[-_LAST:]
