"""Alerts on their way: planned with the incident in one transaction, delivered until the receiver has them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from detectord.core.model import Alert
from detectord.core.ports import Delivery, IncidentChanged, Outcome, Outgoing, Sink, Store

# Waits in seconds after each failed attempt, after Standard Webhooks.
SCHEDULE: Final = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
BATCH: Final = 64


def next_due(tries: int, now: float, delivery: Delivery, spread: Callable[[float, float], float]) -> float | None:
    """When to try again after attempt number ``tries`` (from 1); None when there is no further attempt. ``spread``
    draws from a range, so that receivers that come back are not met by everything at once."""
    if delivery.outcome is not Outcome.RETRY or tries > len(SCHEDULE):
        return None
    wait = SCHEDULE[tries - 1] * spread(0.9, 1.1)
    return now + max(wait, delivery.after or 0.0)


def alert_of(changed: IncidentChanged, now: float) -> Alert:
    """The alert about a change; its id is the same however often the change is told."""
    incident = changed.incident
    name = f"{incident.id}-{changed.number}"
    return Alert(id=name, change=changed.change, at=now, incident=incident, advice=changed.advice)


class Outbox:
    """Drains the store through the sinks. Each sink has its own turn: a slow one holds up only itself."""

    def __init__(self, store: Store, sinks: Sequence[Sink], rng: random.Random | None = None) -> None:
        self._store = store
        self._sinks: Mapping[str, Sink] = {sink.name: sink for sink in sinks}
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._wakes = {name: asyncio.Event() for name in self._sinks}
        self.stats: Counter[tuple[str, str]] = Counter()

    def plan(self, alert: Alert, now: float) -> list[Outgoing]:
        """What the sinks want of an alert, to be stored with the incident."""
        bodies = ((sink.name, sink.render(alert)) for sink in self._sinks.values())
        return [Outgoing(alert.id, name, body, now, now) for name, body in bodies if body is not None]

    def notify(self) -> None:
        """Something new is due."""
        for wake in self._wakes.values():
            wake.set()

    async def drain(self, now: float) -> int:
        """One attempt for everything that is due; gives how many were tried."""
        return sum(await asyncio.gather(*(self._turn(sink, now) for sink in self._sinks.values())))

    async def _turn(self, sink: Sink, now: float) -> int:
        due = self._store.due(sink.name, now, BATCH)
        for outgoing in due:
            delivery = await sink.deliver(outgoing, now)
            again = next_due(outgoing.tries + 1, now, delivery, self._rng.uniform)
            if delivery.outcome is Outcome.RETRY and again is None:
                delivery = Delivery(Outcome.REJECTED, f"given up: {delivery.reason}")
            self.stats[sink.name, delivery.outcome.value] += 1
            self._store.settle(outgoing, delivery, again)
        return len(due)

    async def run(self, clock: Callable[[], float], idle: float = 1.0) -> None:
        """Deliver for ever, each sink at its own pace; wakes when notified and every ``idle`` seconds."""
        async with asyncio.TaskGroup() as group:
            for sink in self._sinks.values():
                group.create_task(self._serve(sink, clock, idle))

    async def _serve(self, sink: Sink, clock: Callable[[], float], idle: float) -> None:
        wake = self._wakes[sink.name]
        while True:
            if await self._turn(sink, clock()) == BATCH:
                continue
            try:
                async with asyncio.timeout(idle):
                    await wake.wait()
            except TimeoutError:
                continue
            finally:
                wake.clear()

    async def close(self) -> None:
        for sink in self._sinks.values():
            await sink.close()
