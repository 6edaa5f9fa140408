"""The only place that constructs parts and joins them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from detectord.config import Config, secret
from detectord.core.errors import ConfigError
from detectord.core.model import Alert, Exclusions, Severity
from detectord.core.ports import Limit, Sink

if TYPE_CHECKING:
    from detectord.sim.dryrun import Result
    from detectord.sim.scenario import Scenario


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
    limits: list[Limit] = [limit for signal in signals for limit in signal.limits]
    classify = {kind: signal.verdict for signal in log_signals for kind in signal.kinds}
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
    import structlog

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
