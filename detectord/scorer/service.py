"""The shell around the engine: messages in, one transaction a batch, then receipts, alerts and advice out."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from detectord.core import wire
from detectord.core.errors import UnavailableError, WireError
from detectord.core.model import Event
from detectord.core.ports import (
    Effect,
    EventKept,
    ExclusionsChanged,
    IncidentChanged,
    Message,
    Outgoing,
    Refused,
    Store,
    Transport,
)
from detectord.scorer.engine import Engine
from detectord.scorer.outbox import Outbox, alert_of

BATCH = 256


class Inbox(Transport, Protocol):
    """A transport whose waiting messages can be taken in one go."""

    def take(self, most: int) -> list[Message]: ...


class Log(Protocol):
    def warning(self, event: str, **fields: object) -> object: ...


class Service:
    """``run`` serves until it is cancelled. ``counts`` and ``delays`` feed the metrics."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        outbox: Outbox,
        transport: Inbox,
        cluster: str,
        clock: Callable[[], float],
        log: Log,
        observe: Callable[[float], None] = lambda delay: None,
    ) -> None:
        self._engine, self._store, self._outbox, self._transport = engine, store, outbox, transport
        self._cluster, self._clock, self._log, self._observe = cluster, clock, log, observe
        self.counts: Counter[tuple[str, str]] = Counter()
        self.last_tick = 0.0
        self.on_tick: Callable[[], None] = lambda: None
        self._lock = asyncio.Lock()
        self._said: dict[str, float] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive())
            group.create_task(self._tick())
            group.create_task(self._outbox.run(self._clock))

    async def _receive(self) -> None:
        async for first in self._transport.messages():
            await self.process([first, *self._transport.take(BATCH - 1)])

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(1.0)
            ticks += 1
            async with self._lock:
                now = self._clock()
                await self._commit(self._engine.tick(now), {}, now)
                self.last_tick = now
                self.on_tick()
                if ticks % 600 == 0:
                    self._store.prune(now)

    async def process(self, batch: Sequence[Message]) -> None:
        """Judge a batch, store all that follows from it, and only then acknowledge its events."""
        async with self._lock:
            now = self._clock()
            effects: list[Effect] = []
            receipts: dict[str, list[str]] = defaultdict(list)
            for message in batch:
                try:
                    decoded = wire.decode(message.topic, message.payload)
                except WireError as error:
                    self._refuse(error.reason, str(error), now)
                    continue
                self.counts["messages", type(decoded).__name__.lower()] += 1
                effects += self._engine.handle(decoded, now)
                if isinstance(decoded, Event):
                    # Also what was refused or known before: it must not be sent again for ever.
                    receipts[decoded.node].append(decoded.key)
            await self._commit(effects, receipts, now)

    async def _commit(self, effects: list[Effect], receipts: dict[str, list[str]], now: float) -> None:
        outgoing: list[Outgoing] = []
        publish: list[Message] = []
        for effect in effects:
            match effect:
                case IncidentChanged(notify=True):
                    alert = alert_of(effect, now)
                    outgoing += self._outbox.plan(alert, now)
                    topic = wire.scorer_topic(self._cluster, "alert")
                    publish.append(Message(topic, msgspec.json.encode(alert), qos=1))
                    self.counts["alerts", effect.change.value] += 1
                case ExclusionsChanged(exclusions=exclusions):
                    topic = wire.scorer_topic(self._cluster, "exclusions")
                    publish.append(Message(topic, msgspec.json.encode(exclusions), retain=True, qos=1))
                case EventKept(delay=delay):
                    self._observe(delay)
                case Refused(reason=reason, detail=detail):
                    self._refuse(reason, detail, now)
                case _:
                    pass
        if effects:
            await self._save(effects, outgoing)
        if outgoing:
            self._outbox.notify()
        for node, keys in receipts.items():
            topic = wire.scorer_topic(self._cluster, "received", node)
            publish.append(Message(topic, wire.encode(wire.Received(tuple(keys))), qos=1))
        for message in publish:
            try:
                await self._transport.publish(message)
            except UnavailableError as error:
                # A receipt that is lost is asked for again; advice is published again on the next connection.
                self._refuse("unpublished", str(error), now)

    async def _save(self, effects: list[Effect], outgoing: list[Outgoing]) -> None:
        """A disk that is full or locked is waited for: nothing is acknowledged before it is stored."""
        while True:
            try:
                self._store.save(effects, outgoing)
            except sqlite3.OperationalError as error:
                self._refuse("unstored", f"the store cannot write ({error}); waiting", self._clock())
                await asyncio.sleep(1.0)
            else:
                return

    async def greet(self) -> None:
        """Called on each connection: the advice that stands."""
        topic = wire.scorer_topic(self._cluster, "exclusions")
        body = msgspec.json.encode(self._engine.exclusions)
        await self._transport.publish(Message(topic, body, retain=True, qos=1))

    def _refuse(self, reason: str, detail: str, now: float) -> None:
        """Counted always, logged at most once a minute for a reason."""
        self.counts["refused", reason] += 1
        if now - self._said.get(reason, -1e9) >= 60.0:
            self._said[reason] = now
            self._log.warning("refused", reason=reason, detail=detail[:300], total=self.counts["refused", reason])
