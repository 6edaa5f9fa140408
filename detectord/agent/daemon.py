"""The agent: rounds on a schedule, kernel events at once, everything kept until the scorer has it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from detectord import __version__
from detectord.agent.events import EventMaker
from detectord.agent.round import Rounds
from detectord.agent.spool import Spool
from detectord.core import wire
from detectord.core.errors import UnavailableError, WireError
from detectord.core.model import Birth, Event, Item, NodeStatus, Reading, Report, SubjectKind
from detectord.core.ports import Host, KernelLog, LogRecord, Message, Transport


class Notifier(Protocol):
    """What systemd is told."""

    def ready(self) -> None: ...
    def progress(self, status: str) -> None: ...
    def stopping(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """``interval`` between reports, ``deadline`` of one subject's questions and ``resend`` of unacknowledged events are
    in seconds."""

    cluster: str
    node: str
    boot_id: str
    interval: float = 5.0
    deadline: float = 2.0
    resend: float = 15.0
    batch: int = 200
    ring: int = 120
    inventory_every: int = 60


@dataclass(slots=True)
class Agent:
    """``run`` ends when ``stop`` is set, after everything that could be drained was."""

    settings: AgentSettings
    host: Host
    kernel_log: KernelLog | None
    rounds: Rounds
    maker: EventMaker
    spool: Spool
    transport: Transport
    notifier: Notifier
    clock: Callable[[], float]
    rng: random.Random
    limits: dict[str, float] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    counts: Counter[str] = field(default_factory=Counter)
    last_report: float = 0.0
    _inventory: tuple[Item, ...] = ()
    _unsupported: tuple[Reading, ...] = ()
    _sequence: int = 0
    _reports: deque[Report] = field(default_factory=deque)
    _sent: dict[str, float] = field(default_factory=dict)
    _fresh: asyncio.Event = field(default_factory=asyncio.Event)
    _position: tuple[str, int] | None = None

    async def run(self) -> None:
        self._inventory = self.spool.inventory
        self.maker.learn(self._inventory)
        await self._look()
        tasks = [
            asyncio.create_task(one) for one in (self._report(), self._deliver(), self._listen(), self._read_log())
        ]
        stopping = asyncio.create_task(self.stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in [*tasks, stopping]:
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            await self._drain()

    async def _drain(self) -> None:
        self.notifier.stopping()
        self.spool.add(self.maker.flush(), self._position)
        try:
            async with asyncio.timeout(5.0):
                await self._send_events()
                await self._publish(NodeStatus(node=self.settings.node, session=self.spool.session, online=False,
                                               reason="stop"), retain=True, qos=1)  # fmt: skip
        except (TimeoutError, UnavailableError):
            self.counts["drained_late"] += 1
        finally:
            if self.kernel_log is not None:
                await self.kernel_log.close()
            await self.host.close()

    # ---- what is said on every connection --------------------------------------------------------------------
    async def greet(self) -> None:
        """Birth, online, and what nobody has acknowledged. Called by the transport after each connection."""
        self._sent.clear()
        await self._publish(self._birth(), retain=True, qos=1)
        status = NodeStatus(node=self.settings.node, session=self.spool.session, online=True)
        await self._publish(status, retain=True, qos=1)
        await self._send_events()

    def _birth(self) -> Birth:
        return Birth(
            node=self.settings.node,
            session=self.spool.session,
            boot_id=self.settings.boot_id,
            at=self.clock(),
            interval=self.settings.interval,
            version=__version__,
            metric_sets=tuple(self.rounds.metric_sets.values()),
            inventory=self._inventory,
            limits=self.limits,
            readings=self._unsupported,
        )

    async def _publish(
        self, message: wire.NodeMessage, retain: bool = False, qos: int = 0, expiry: int | None = None
    ) -> None:
        topic = wire.topic(self.settings.cluster, message)
        await self.transport.publish(Message(topic, wire.encode(message), retain, qos, expiry))

    # ---- reports ---------------------------------------------------------------------------------------------
    async def _look(self) -> None:
        """What is in this machine. An empty answer where there was a full one is NVML's death, not the GPUs'."""
        items = tuple(await self.host.inventory())
        if items and items != self._inventory:
            self._inventory = items
            self.spool.inventory = items
            self.maker.learn(items)

    async def _report(self) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        # 10,000 agents that were started by one command must not report in one instant.
        due = loop.time() + self.rng.uniform(0, min(settings.interval, 2.0))
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + settings.interval, loop.time())
            await self._round()

    async def _round(self) -> None:
        settings = self.settings
        known = (self._inventory, self._unsupported)
        if self._sequence % settings.inventory_every == settings.inventory_every - 1:
            await self._look()
        gpus = [item.subject for item in self._inventory if item.subject.kind is SubjectKind.GPU]
        at = self.clock()
        taken = await self.rounds.take(gpus, settings.deadline)
        self._sequence += 1
        self._unsupported = taken.unsupported
        report = Report(
            node=settings.node,
            session=self.spool.session,
            boot_id=settings.boot_id,
            sequence=self._sequence,
            at=at,
            blocks=taken.blocks,
            readings=taken.readings,
        )
        self._reports.append(report)
        if len(self._reports) > settings.ring:
            self._reports.popleft()
            self.counts["reports_dropped"] += 1
        self.counts["rounds"] += 1
        self.last_report = at
        if self._sequence == 1:
            self.notifier.ready()
        self.notifier.progress(f"{self._sequence} reports, {len(gpus)} GPUs, {len(self.spool)} events waiting")
        try:
            if (self._inventory, self._unsupported) != known:
                await self._publish(self._birth(), retain=True, qos=1)
            while self._reports:
                await self._publish(self._reports[0], expiry=int(4 * settings.interval) + 1)
                self._reports.popleft()
        except UnavailableError:
            self.counts["offline_rounds"] += 1

    # ---- events ----------------------------------------------------------------------------------------------
    async def _read_log(self) -> None:
        if self.kernel_log is None:
            await asyncio.Event().wait()
            return
        async for record in self.kernel_log.records():
            if isinstance(record, LogRecord):
                self._position = (record.boot_id, record.sequence)
            events = self.maker.take(record)
            if events:
                self._keep(events)
            self.counts["log_records"] += 1

    def _keep(self, events: Sequence[Event]) -> None:
        self.spool.add(events, self._position)
        self.counts["events"] += len(events)
        self._fresh.set()

    async def _deliver(self) -> None:
        """Send events as they come, and again what is not acknowledged; keep the position at least every few
        seconds."""
        saved = self._position
        while True:
            try:
                async with asyncio.timeout(min(self.settings.resend, 5.0)):
                    await self._fresh.wait()
            except TimeoutError:
                over = self.maker.tick(self.clock())
                if over or self._position != saved:
                    self.spool.add(over, self._position)
                    saved = self._position
            self._fresh.clear()
            try:
                await self._send_events()
            except UnavailableError:
                self.counts["offline_events"] += 1

    async def _send_events(self) -> None:
        now = asyncio.get_running_loop().time()
        for event in self.spool.pending(self.settings.batch):
            if now - self._sent.get(event.key, -1e9) >= self.settings.resend:
                self._sent[event.key] = now
                await self._publish(event, qos=1)

    async def _listen(self) -> None:
        """Receipts: what the scorer has stored may be forgotten."""
        async for message in self.transport.messages():
            try:
                keys = wire.decode_received(message.payload).keys
            except WireError as error:
                self.counts["refused_" + error.reason] += 1
                continue
            self.spool.forget(keys)
            for key in keys:
                self._sent.pop(key, None)
            if len(self.spool):
                self._fresh.set()
