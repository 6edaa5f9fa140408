"""The only place that constructs parts and joins them."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from detectord.config import Config, secret
from detectord.core import wire
from detectord.core.errors import ConfigError, UnavailableError
from detectord.core.model import Alert, Exclusions, Item, NodeStatus, Severity
from detectord.core.ports import Host, KernelLog, Limit, Message, Sink

if TYPE_CHECKING:
    from detectord.sim.dryrun import Result
    from detectord.sim.scenario import Scenario
    from detectord.transport.mqtt import MqttSettings


async def run_dry(
    scenario: Scenario, on_alert: Callable[[Alert], None], on_progress: Callable[[float], None]
) -> Result:
    """The simulated fleet through the engine, a SQLite file and the outbox; the file is thrown away."""
    from detectord.scorer.engine import Engine
    from detectord.scorer.outbox import Outbox
    from detectord.scorer.settings import EngineSettings
    from detectord.signals import discover, discover_logs
    from detectord.sim.dryrun import DryRun
    from detectord.store.sqlite import SqliteStore

    signals, log_signals = discover(), discover_logs()
    settings = EngineSettings(allow_injected=True, dry_run=True)
    limits: list[Limit] = [limit for one in signals for limit in one.limits]
    classify = {kind: one.verdict for one in log_signals for kind in one.kinds}
    with tempfile.TemporaryDirectory(prefix="detectord-") as folder:
        store = SqliteStore(Path(folder) / "dry-run.db")
        outbox = Outbox(store, [], random.Random(scenario.seed))  # noqa: S311 - jitter of a simulation
        try:
            engine = Engine(settings, limits, classify, store.load())
            run = DryRun(scenario, engine, store, outbox, signals, log_signals, on_alert, on_progress)
            return await run.run()
        finally:
            await outbox.close()
            store.close()


def sinks(config: Config) -> list[Sink]:
    """The log and every webhook of the configuration. Raises ``ConfigError``."""
    from detectord.sinks.log import LogSink
    from detectord.sinks.webhook import WebhookSink

    names = [webhook.name for webhook in config.webhook]
    if len(set(names)) != len(names) or "log" in names:
        raise ConfigError("webhook: every webhook needs a name of its own, and none may be called 'log'")
    return [
        LogSink(structlog.get_logger()),
        *(
            WebhookSink(
                name=webhook.name,
                url=webhook.url,
                secrets=[secret(path) for path in webhook.secret_files],
                form=webhook.form,
                cluster=config.cluster,
                min_severity=Severity[webhook.from_severity.upper()],
                timeout=webhook.timeout,
            )
            for webhook in config.webhook
        ),
    ]


def read_exclusions(config: Config, database: Path | None) -> Exclusions:
    """The advice that stands, from a scorer's database."""
    from detectord.store.sqlite import read_exclusions as read

    found = read(database or config.scorer.database)
    return found or Exclusions(at=0.0, cap_nodes=0, fleet_nodes=0)


def run_agent(config: Config) -> None:
    """Watch this node until SIGTERM."""
    asyncio.run(_agent(config))


def run_scorer(config: Config) -> None:
    """Judge the fleet until SIGTERM."""
    asyncio.run(_scorer(config))


async def _agent(config: Config) -> None:
    from prometheus_client import CollectorRegistry

    from detectord.agent.daemon import Agent, AgentSettings
    from detectord.agent.events import EventMaker
    from detectord.agent.health import AgentHealth
    from detectord.agent.round import Rounds
    from detectord.agent.spool import Spool
    from detectord.host.exporter import Exporter
    from detectord.host.files import FileHost, boot_id
    from detectord.host.notify import SystemdNotifier
    from detectord.signals import discover, discover_logs
    from detectord.transport.mqtt import MqttTransport

    options = config.agent
    boot = boot_id(options.root)
    signals = [one for one in discover() if one.name not in options.signals_off]
    host = FileHost(options.node, options.root)
    spool = Spool(options.state / "agent.db", options.spool_megabytes << 20, time.time())
    maker = EventMaker(options.node, discover_logs(), time.time, options.accept_injected)
    settings = AgentSettings(config.cluster, options.node, boot, options.interval, options.nvml_deadline)
    receipts = wire.scorer_topic(config.cluster, "received", options.node)
    client = f"detectord-agent-{config.cluster}-{options.node}"
    transport = MqttTransport(
        _mqtt(config, client, ((receipts, 1),), _will(config, spool.session)), on_trouble=_trouble("broker")
    )
    agent = Agent(
        settings, host, kernel_log(config, boot, spool.position), Rounds(host, signals, options.node), maker, spool,
        transport, SystemdNotifier(), time.time, random.Random(),  # noqa: S311 - jitter, no secret
    )  # fmt: skip
    transport.on_connect = agent.greet
    side = [transport.run()]
    if options.metrics:
        registry = CollectorRegistry()
        health = AgentHealth(registry, agent, lambda: transport.connected)
        side.append(Exporter(options.metrics, registry, health.refresh).run())
    try:
        await _serve(agent.run(), side, agent.stop)
    finally:
        spool.close()


async def _scorer(config: Config) -> None:
    from prometheus_client import CollectorRegistry

    from detectord.host.exporter import Exporter
    from detectord.host.notify import SystemdNotifier
    from detectord.scorer.engine import Engine
    from detectord.scorer.health import ScorerHealth
    from detectord.scorer.outbox import Outbox
    from detectord.scorer.service import Service
    from detectord.scorer.settings import EngineSettings
    from detectord.signals import discover, discover_logs
    from detectord.store.sqlite import SqliteStore
    from detectord.transport.mqtt import MqttTransport

    options = config.scorer
    store = SqliteStore(options.database, options.database_megabytes << 20, options.retention_days * 86400)
    outbox = Outbox(store, sinks(config))
    settings = EngineSettings(
        allow_injected=options.accept_injected,
        join_causes=options.join_causes,
        notify_from=Severity[options.notify_from.upper()],
        advice_ttl=config.exclusion.hours * 3600,
        cap_share=config.exclusion.cap_share,
        cap_nodes=config.exclusion.cap_nodes,
    )
    limits = [limit for one in discover() for limit in one.limits]
    classify = {kind: one.verdict for one in discover_logs() for kind in one.kinds}
    engine = Engine(settings, limits, classify, store.load())
    topics = tuple((f"detectord/{wire.VERSION}/{config.cluster}/+/{name}", 1) for name in ("birth", "event", "status"))
    reports = (f"detectord/{wire.VERSION}/{config.cluster}/+/report", 0)
    client = f"detectord-scorer-{config.cluster}"
    transport = MqttTransport(_mqtt(config, client, (*topics, reports), None), on_trouble=_trouble("broker"))
    registry = CollectorRegistry()
    health = ScorerHealth(registry)
    log = structlog.get_logger()
    service = Service(engine, store, outbox, transport, config.cluster, time.time, log, health.delay.observe)
    transport.on_connect = service.greet
    notifier = SystemdNotifier()
    service.on_tick = lambda: notifier.progress(f"{len(engine.fleet)} nodes, {len(engine.open_incidents)} open")
    side = [transport.run()]
    if options.metrics:
        refresh = functools.partial(health.refresh, service, engine, outbox, lambda: transport.waiting)
        side.append(Exporter(options.metrics, registry, refresh).run())
    notifier.ready()
    try:
        await _serve(service.run(), side, None)
    finally:
        notifier.stopping()
        await outbox.close()
        store.close()


async def _serve(main: Coroutine[None, None, None], side: list[Coroutine[None, None, None]],
                 stop: asyncio.Event | None) -> None:  # fmt: skip
    """Run ``main`` with what goes on beside it until it ends or SIGTERM or SIGINT comes; the side goes on until
    ``main`` has drained."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(main)
    others = [asyncio.create_task(one) for one in side]
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set if stop is not None else task.cancel)
    try:
        await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
        for one in others:
            if one.done():
                # Nothing beside the main part ends by itself, other than by an error that must be seen.
                task.cancel()
                one.result()
        if not task.cancelled():
            await task
    except asyncio.CancelledError:
        return
    finally:
        for one in others:
            one.cancel()
        await asyncio.gather(task, *others, return_exceptions=True)


def kernel_log(config: Config, boot: str, position: tuple[str, int] | None) -> KernelLog:
    """The source of the configuration; ``auto`` is /dev/kmsg, otherwise journald."""
    from detectord.host.journald import JournaldLog
    from detectord.host.kmsg import FileKernelLog, KmsgLog

    source = config.agent.kernel_log
    if source == "kmsg" or (source == "auto" and os.access("/dev/kmsg", os.R_OK)):
        return KmsgLog(position=position, boot_id=boot)
    if source in ("journald", "auto"):
        return JournaldLog()
    return FileKernelLog(Path(source), position, boot)


def _mqtt(
    config: Config, client: str, subscriptions: tuple[tuple[str, int], ...], will: Message | None
) -> MqttSettings:
    from detectord.transport.mqtt import MqttSettings

    options = config.mqtt
    return MqttSettings(
        host=options.host,
        port=options.port,
        client_id=client,
        username=options.username,
        password=secret(options.password_file) if options.password_file else "",
        ca_file=str(options.ca_file or ""),
        cert_file=str(options.cert_file or ""),
        key_file=str(options.key_file or ""),
        keepalive=options.keepalive,
        will=will,
        subscriptions=subscriptions,
    )


def _will(config: Config, session: int) -> Message:
    status = NodeStatus(node=config.agent.node, session=session, online=False, reason="will")
    return Message(wire.topic(config.cluster, status), wire.encode(status), retain=True, qos=1)


def _trouble(what: str) -> Callable[[str], None]:
    log = structlog.get_logger()
    return lambda reason: log.warning(what, reason=reason)


def write_kmsg(text: str) -> None:
    """As a process, at level warning: the kernel notes that it was not the kernel."""
    try:
        with Path("/dev/kmsg").open("wb", buffering=0) as device:
            device.write(f"<12>{text}\n".encode())
    except OSError as error:
        raise UnavailableError(
            f"/dev/kmsg: cannot be written ({error.strerror}); root may, or use --via file"
        ) from error


def append_line(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written ({error.strerror})") from error


def pci_address(config: Config, gpu: str) -> str:
    """The PCI address of a GPU named by index, UUID or address."""
    from detectord.formats.nvrm import normal_address
    from detectord.host.files import FileHost

    if re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(\.[0-7])?", gpu):
        return normal_address(gpu)
    items = asyncio.run(_inventory(FileHost(config.agent.node, config.agent.root)))
    for item in items:
        if gpu in (item.subject.id, item.labels["index"]):
            return item.labels["pci"]
    known = ", ".join(item.labels["index"] for item in items) or "none"
    raise ConfigError(f"--gpu {gpu}: no such GPU here (known: {known}); give a PCI address such as 0000:3b:00.0")


async def _inventory(host: Host) -> Sequence[Item]:
    return await host.inventory()
