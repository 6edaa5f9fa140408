"""The scorer's own health for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from detectord import __version__
from detectord.core.model import Severity
from detectord.scorer.engine import Engine
from detectord.scorer.outbox import Outbox
from detectord.scorer.service import Service

_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)


class ScorerHealth(Collector):
    """``delay`` takes the seconds from an event on its node to its storage here."""

    def __init__(self, registry: CollectorRegistry) -> None:
        Gauge("detectord_build_info", "The version that runs.", ["version"], registry=registry).labels(__version__).set(
            1
        )
        self.delay = Histogram(
            "detectord_scorer_detection_delay_seconds", "From the event on its node to the scorer.",
            buckets=_BUCKETS, registry=registry,
        )  # fmt: skip
        self._open = Gauge("detectord_scorer_open_incidents", "Open incidents.", ["severity"], registry=registry)
        self._nodes = Gauge("detectord_scorer_nodes", "Nodes known.", registry=registry)
        self._excluded = Gauge("detectord_scorer_excluded_nodes", "Nodes advised out of service.", registry=registry)
        self._tick = Gauge(
            "detectord_scorer_last_tick_timestamp_seconds", "When the last tick ended.", registry=registry
        )
        self._queue = Gauge("detectord_scorer_queued_messages", "Messages received, not yet judged.", registry=registry)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sent: Counter[tuple[str, str]] = Counter()
        registry.register(self)

    def refresh(self, service: Service, engine: Engine, outbox: Outbox, waiting: Callable[[], int]) -> None:
        found = Counter(incident.severity for incident in engine.open_incidents)
        for severity in Severity:
            self._open.labels(severity.name.lower()).set(found[severity])
        self._nodes.set(len(engine.fleet))
        self._excluded.set(len(engine.exclusions.exclude))
        self._tick.set(service.last_tick)
        self._queue.set(waiting())
        self._counts, self._sent = service.counts, outbox.stats

    def collect(self) -> list[CounterMetricFamily]:
        labels = {"messages": "channel", "refused": "reason", "alerts": "change"}
        families = {
            name: CounterMetricFamily(f"detectord_scorer_{name}_total", f"Counted {name}.", labels=[label])
            for name, label in labels.items()
        }
        for (name, value), count in self._counts.items():
            families[name].add_metric([value], count)
        sent = CounterMetricFamily("detectord_scorer_deliveries_total", "Deliveries.", labels=["sink", "outcome"])
        for key, count in self._sent.items():
            sent.add_metric(list(key), count)
        return [*families.values(), sent]
