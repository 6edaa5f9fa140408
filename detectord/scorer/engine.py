"""The pure heart of the scorer: a message or a tick goes in, effects come out. Reads no clock: ``now`` is an argument.

Whatever a node says, the engine goes on: what cannot be believed becomes a ``Refused`` with a reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from detectord.core.model import (
    Action,
    Birth,
    Event,
    Evidence,
    Exclusions,
    Incident,
    NodeStatus,
    Provenance,
    Report,
    Status,
    Subject,
    SubjectKind,
    Verdict,
)
from detectord.core.ports import Effect, EventKept, ExclusionsChanged, IncidentChanged, Limit, Refused, Saved
from detectord.judges import limits as limit_judge
from detectord.judges import silence
from detectord.scorer import findings
from detectord.scorer.exclusion import advise
from detectord.scorer.incidents import KERNEL_LOG, Book
from detectord.scorer.nodes import Fleet, Node
from detectord.scorer.panel import Panel, Updated
from detectord.scorer.settings import EngineSettings

Classify = Mapping[str, Callable[[Event], Verdict]]


class Engine:
    def __init__(
        self, settings: EngineSettings, limits: Sequence[Limit], classify: Classify, saved: Saved | None = None
    ) -> None:
        saved = saved or Saved()
        self.settings = settings
        self.panel = Panel()
        self.fleet = Fleet()
        self.exclusions = saved.exclusions or Exclusions(at=0.0, cap_nodes=0, fleet_nodes=0)
        self._limits = tuple(limits)
        self._classify = classify
        self._book = Book(settings, saved.incidents)
        self._keys: OrderedDict[str, None] = OrderedDict.fromkeys(saved.event_keys)
        self._complained: dict[tuple[str, str], float] = {}

    @property
    def open_incidents(self) -> list[Incident]:
        return list(self._book)

    def handle(self, message: Birth | Report | Event | NodeStatus, now: float) -> list[Effect]:
        match message:
            case Event():
                effects = self._event(message, now)
            case Report():
                effects = self._report(message, now)
            case Birth():
                effects = self._birth(message, now)
            case NodeStatus():
                effects = self._status(message, now)
        return self._advised(effects, now)

    def tick(self, now: float) -> list[Effect]:
        heard, patience = self.fleet.times()
        late = silence.overdue(heard, patience, now).nonzero()[0]
        silent = frozenset(self.fleet.at(int(index)).name for index in late)
        effects = self._silence(now) + self._book.tick(now, silent)
        expired = any(advice.expires <= now for advice in self.exclusions.exclude)
        return self._advised(effects, now, force=expired)

    # ---- events ----------------------------------------------------------------------------------------------
    def _event(self, event: Event, now: float) -> list[Effect]:
        if event.key in self._keys:
            self._keys.move_to_end(event.key)
            return []
        injected = event.provenance is Provenance.INJECTED
        if injected and not self.settings.allow_injected:
            return [Refused(event.node, "injected", f"{event.kind} of {event.node} was written by a process")]
        self._keys[event.key] = None
        if len(self._keys) > self.settings.remember_keys:
            self._keys.popitem(last=False)
        node = self.fleet.get(event.node, now)
        kept = EventKept(event, max(0.0, now - event.at))
        classify = self._classify.get(event.kind)
        if classify is None:
            return [kept]
        subject = self._real(node, event.subject)
        evidence = Evidence(
            at=event.at,
            judge=KERNEL_LOG,
            subject=subject,
            verdict=classify(event),
            text=str(event.detail.get("text", event.kind)),
            value=float(event.count),
            detail=event.detail,
            provenance=event.provenance,
        )
        labels = node.labels.get(subject, {})
        return [kept, *self._book.see(evidence, now, event.key, labels, event.count)]

    def _real(self, node: Node, subject: Subject) -> Subject:
        """A GPU by its UUID, when the inventory knows the PCI address."""
        if subject.kind is SubjectKind.GPU and subject.id.startswith("pci:"):
            return node.by_address.get(subject.id.removeprefix("pci:"), subject)
        return subject

    # ---- births and farewells --------------------------------------------------------------------------------
    def _birth(self, birth: Birth, now: float) -> list[Effect]:
        node = self.fleet.get(birth.node, now)
        if birth.session < node.session and birth.boot_id == node.boot_id:
            return self._refuse(birth.node, "old-session", f"birth of session {birth.session}", now)
        for columns in birth.metric_sets:
            self.panel.learn(columns)
        rebooted = node.born_as(birth)
        self.fleet.hear(node, now)
        self.fleet.expect(node, self.settings.silence_factor * birth.interval + self.settings.silence_grace)
        effects: list[Effect] = []
        for address, subject in node.by_address.items():
            alias = Subject(node.name, SubjectKind.GPU, f"pci:{address}")
            effects += self._book.rename(alias, subject, node.labels[subject])
        if rebooted:
            node.misses.clear()
            node.unread.clear()
            for entry in self._book.of(node.name):
                # A reboot mends no part that has to be replaced.
                if entry.incident.action is not Action.REPLACE:
                    effects += self._book.recover(entry, now)
        return effects + self._speaks(node, now)

    def _status(self, status: NodeStatus, now: float) -> list[Effect]:
        node = self.fleet.get(status.node, now)
        if status.session < node.session:
            return []
        node.online = status.online
        if not status.online and status.reason == "stop":
            node.stopped = now
        elif not status.online:
            # The broker has given the node up: silence counts from here, not from its next missed report.
            heard, patience = self.fleet.times()
            left = self.settings.silence_grace
            self.fleet.expect(node, min(float(patience[node.index]), now - float(heard[node.index]) + left))
        return []

    # ---- reports ---------------------------------------------------------------------------------------------
    def _report(self, report: Report, now: float) -> list[Effect]:
        node = self.fleet.get(report.node, now)
        if why := node.fresh(report):
            return self._refuse(report.node, why, f"report {report.sequence} of session {report.session}", now)
        self.fleet.hear(node, now)
        node.online, node.stopped = True, None
        effects = self._speaks(node, now)
        skew = report.at - now
        if abs(skew) > self.settings.clock_skew:
            effects += self._found(node, findings.clock_skew(node.subject, skew, report.at), now, clears=True)
        else:
            effects += self._gone(node.subject, findings.CLOCK_SKEW.fault, now)
        for block in report.blocks:
            updated = self.panel.update(report.node, block)
            if updated is None:
                effects += self._refuse(report.node, "unknown-metric-set", f"{block.kind} {block.metric_set}", now)
                continue
            if updated.infinite:
                effects += self._refuse(report.node, "infinite", f"{updated.infinite} values", now)
            effects += self._limit(node, updated, report.at, now)
            if block.kind is SubjectKind.GPU:
                effects += self._missing(node, set(updated.subjects), report.at, now)
        return effects + self._unread(node, report, now)

    def _limit(self, node: Node, updated: Updated, at: float, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for hit in limit_judge.judge(updated.names, updated.values, updated.before, self._limits):
            subject = updated.subjects[hit.row]
            if hit.inside:
                evidence = findings.limit(subject, hit, at)
                effects += self._found(node, evidence, now, clears=hit.limit.clears and not hit.limit.rises)
            elif not hit.limit.rises:
                effects += self._gone(subject, hit.limit.verdict.fault, now)
        return effects

    def _missing(self, node: Node, present: set[Subject], at: float, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for subject in node.gpus():
            if subject in present:
                if node.misses.pop(subject, 0):
                    effects += self._gone(subject, findings.GPU_MISSING.fault, now)
                continue
            node.misses[subject] = node.misses.get(subject, 0) + 1
            if node.misses[subject] == self.settings.persistence:
                effects += self._found(node, findings.gpu_missing(subject, node.misses[subject], at), now, clears=True)
        return effects

    def _unread(self, node: Node, report: Report, now: float) -> list[Effect]:
        bad = {
            reading.subject: reading
            for reading in report.readings
            if reading.status in (Status.FAILED, Status.LATE)
            and reading.subject.kind is SubjectKind.GPU
            and reading.subject.node == node.name
        }
        effects: list[Effect] = []
        for subject in [subject for subject in node.unread if subject not in bad]:
            del node.unread[subject]
            effects += self._gone(subject, findings.GPU_UNREADABLE.fault, now)
        for subject, reading in bad.items():
            node.unread[subject] = node.unread.get(subject, 0) + 1
            if node.unread[subject] == self.settings.persistence:
                effects += self._found(node, findings.gpu_unreadable(subject, reading, report.at), now, clears=True)
        return effects

    # ---- silence ---------------------------------------------------------------------------------------------
    def _silence(self, now: float) -> list[Effect]:
        heard, patience = self.fleet.times()
        late = [self.fleet.at(int(index)) for index in silence.overdue(heard, patience, now).nonzero()[0]]
        nodes = [node for node in late if node.stopped is None or now - node.stopped > self.settings.planned_stop]
        if silence.is_broker(len(nodes), len(self.fleet), self.settings.broker_share):
            fleet = Subject(findings.FLEET, SubjectKind.NODE, findings.FLEET)
            return self._found(None, findings.fleet_silent(fleet, len(nodes), len(self.fleet), now), now, clears=True)
        effects = self._gone(
            Subject(findings.FLEET, SubjectKind.NODE, findings.FLEET), findings.FLEET_SILENT.fault, now
        )
        for node in nodes:
            known = any(findings.NODE_SILENT.fault in entry.faults for entry in self._book.on(node.subject))
            if not known:
                since = now - float(heard[node.index])
                effects += self._found(node, findings.node_silent(node.subject, since, now), now, clears=True)
        return effects

    def _speaks(self, node: Node, now: float) -> list[Effect]:
        return self._gone(node.subject, findings.NODE_SILENT.fault, now)

    # ---- shared ----------------------------------------------------------------------------------------------
    def _found(self, node: Node | None, evidence: Evidence, now: float, clears: bool = False) -> list[Effect]:
        labels = node.labels.get(evidence.subject, {}) if node else {}
        return self._book.see(evidence, now, evidence.judge, labels, clears=clears)

    def _gone(self, subject: Subject, fault: str, now: float) -> list[Effect]:
        return [
            effect
            for entry in self._book.on(subject)
            if fault == entry.incident.fault and entry.clears
            for effect in self._book.recover(entry, now)
        ]

    def _refuse(self, node: str, reason: str, detail: str, now: float) -> list[Effect]:
        """Said at most once a minute for a node and reason; a flood of nonsense must not become a flood of effects."""
        last = self._complained.get((node, reason))
        if last is not None and now - last < 60.0:
            return []
        if len(self._complained) > 100_000:
            self._complained.clear()
        self._complained[node, reason] = now
        return [Refused(node, reason, detail)]

    def _advised(self, effects: list[Effect], now: float, force: bool = False) -> list[Effect]:
        """Work out the advice again when an incident has changed, and put it beside the incidents it follows from."""
        if not force and not any(isinstance(effect, IncidentChanged) for effect in effects):
            return effects
        fresh = advise(self._book, len(self.fleet), now, self.settings)
        advice = {one.node: one for one in (*fresh.exclude, *fresh.withheld)}
        told: list[Effect] = [
            IncidentChanged(one.change, one.incident, one.number, one.notify, advice.get(one.incident.node))
            if isinstance(one, IncidentChanged)
            else one
            for one in effects
        ]
        if msgspec.structs.replace(fresh, at=self.exclusions.at) != self.exclusions:
            self.exclusions = fresh
            told.append(ExclusionsChanged(fresh))
        return told
