"""A simulated fleet through the very same engine, store and outbox, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from detectord.core import wire
from detectord.core.model import (
    Alert,
    Birth,
    Change,
    Event,
    Incident,
    NodeStatus,
    Provenance,
    Report,
    Subject,
    SubjectKind,
)
from detectord.core.ports import Effect, IncidentChanged, LogRecord, LogSignal, Outgoing, Signal, Store
from detectord.scorer.outbox import alert_of
from detectord.sim.fleet import Fleet, SimNode
from detectord.sim.scenario import Injection, Scenario, plan
from detectord.sim.score import Score, score


class Judge(Protocol):
    """The engine, as far as a dry run needs it."""

    def handle(self, message: Birth | Report | Event | NodeStatus, now: float) -> list[Effect]: ...
    def tick(self, now: float) -> list[Effect]: ...


class Outlet(Protocol):
    """The outbox, as far as a dry run needs it."""

    def plan(self, alert: Alert, now: float) -> list[Outgoing]: ...
    async def drain(self, now: float) -> int: ...


@dataclass(slots=True)
class Result:
    scenario: Scenario
    score: Score
    alerts: list[Alert]
    reports: int


@dataclass(slots=True)
class DryRun:
    """``run`` plays the scenario once. Messages pass through their bytes, as they would through a broker."""

    scenario: Scenario
    engine: Judge
    store: Store
    outbox: Outlet
    signals: Sequence[Signal]
    log_signals: Sequence[LogSignal]
    on_alert: Callable[[Alert], None] = lambda alert: None
    on_progress: Callable[[float], None] = lambda seconds: None
    alerts: list[Alert] = field(default_factory=list)
    reports: int = 0

    async def run(self) -> Result:
        fleet = Fleet(self.scenario, self.signals)
        injections = plan(self.scenario)
        rng = np.random.default_rng([self.scenario.seed, 2])
        # What happens between reports, by time; the counter keeps things of the same instant in order.
        order = itertools.count()
        queue: list[tuple[float, int, Callable[[float], list[Effect]]]] = []
        for injection in injections:
            self._schedule(queue, order, fleet, injection, rng)
        heapq.heapify(queue)
        start, step = self.scenario.start, self.scenario.interval
        await self._commit([e for node in fleet.nodes for e in self._deliver(fleet.birth(node, start), start)], start)
        for tick in range(1, int(self.scenario.duration / step) + 1):
            now = start + tick * step
            while queue and queue[0][0] <= now:
                at, _, happen = heapq.heappop(queue)
                await self._commit(happen(at), at)
            effects: list[Effect] = []
            for _, report in fleet.reports(now):
                self.reports += 1
                effects += self._deliver(report, now)
            effects += self.engine.tick(now)
            await self._commit(effects, now)
            self.on_progress(tick * step)
        notified = _first_told(self.alerts)
        return Result(self.scenario, score(fleet, injections, notified), self.alerts, self.reports)

    def _schedule(
        self,
        queue: list[tuple[float, int, Callable[[float], list[Effect]]]],
        order: Iterable[int],
        fleet: Fleet,
        injection: Injection,
        rng: np.random.Generator,
    ) -> None:
        numbers = iter(order)
        node = fleet.nodes[injection.node]

        def strike(at: float) -> list[Effect]:
            fleet.apply(injection)
            return []

        def repair(at: float) -> list[Effect]:
            return [*self._deliver(fleet.reboot(node), at), *self._deliver(fleet.birth(node, at), at)]

        queue.append((injection.at, next(numbers), strike))
        written = arrived = injection.at
        for line in injection.kind.lines:
            written += line.after
            text = line.text.format(pci=node.addresses[injection.gpu], pid=injection.pid, link=f"{injection.link:02d}")
            # From the kernel's ring through agent and broker to the scorer;
            # and one node's lines never overtake each other.
            arrived = max(arrived, written + float(rng.uniform(0.05, 0.8)))
            queue.append((arrived, next(numbers), self._line(node, written, text)))
        if injection.repaired is not None:
            queue.append((injection.repaired, next(numbers), repair))

    def _line(self, node: SimNode, written: float, text: str) -> Callable[[float], list[Effect]]:
        def arrive(at: float) -> list[Effect]:
            node.kernel_sequence += 1
            record = LogRecord(node.boot_id, node.kernel_sequence, written, text, priority=4, from_kernel=False)
            return [effect for event in self._events(node, record, at) for effect in self._deliver(event, at)]

        return arrive

    def _events(self, node: SimNode, record: LogRecord, seen: float) -> Iterable[Event]:
        devices = dict(zip((address + ".0" for address in node.addresses), node.uuids, strict=True))
        found = [one for signal in self.log_signals for one in signal.observe(record)]
        for part, one in enumerate(found):
            name = devices.get(one.device, f"pci:{one.device}" if one.device else node.name)
            kind = one.subject_kind if one.device else SubjectKind.NODE
            yield Event(
                node=node.name,
                boot_id=record.boot_id,
                sequence=record.sequence,
                part=str(part),
                subject=Subject(node.name, kind, name),
                kind=one.kind,
                at=record.at,
                seen=seen,
                detail=one.detail,
                provenance=Provenance.INJECTED,
            )

    def _deliver(self, message: wire.NodeMessage, now: float) -> list[Effect]:
        topic = wire.topic("dry-run", message)
        return self.engine.handle(wire.decode(topic, wire.encode(message)), now)

    async def _commit(self, effects: list[Effect], now: float) -> None:
        if not effects:
            return
        outgoing: list[Outgoing] = []
        for effect in effects:
            if isinstance(effect, IncidentChanged) and effect.notify:
                alert = alert_of(effect, now)
                self.alerts.append(alert)
                self.on_alert(alert)
                outgoing += self.outbox.plan(alert, now)
        self.store.save(effects, outgoing)
        if outgoing:
            await self.outbox.drain(now)


def _first_told(alerts: Sequence[Alert]) -> list[Incident]:
    """Each incident as it was when somebody was first told of it, unless that was only its end."""
    first: dict[str, Incident] = {}
    for alert in alerts:
        if alert.change is not Change.CLOSED:
            first.setdefault(alert.incident.id, alert.incident)
    return list(first.values())
