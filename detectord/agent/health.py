"""The agent's own health for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from detectord import __version__
from detectord.agent.daemon import Agent


class AgentHealth(Collector):
    """Counters are read from the agent at each scrape; gauges are set by ``refresh``."""

    def __init__(self, registry: CollectorRegistry, agent: Agent, connected: Callable[[], bool]) -> None:
        self._agent, self._connected = agent, connected
        Gauge("detectord_build_info", "The version that runs.", ["version"], registry=registry).labels(__version__).set(
            1
        )
        self._last = Gauge(
            "detectord_agent_last_report_timestamp_seconds", "When the last report was taken.", registry=registry
        )
        self._waiting = Gauge(
            "detectord_agent_spool_events", "Events the scorer has not stored yet.", registry=registry
        )
        self._up = Gauge("detectord_agent_connected_ratio", "1 while the broker is connected.", registry=registry)
        registry.register(self)

    def refresh(self) -> None:
        self._last.set(self._agent.last_report)
        self._waiting.set(len(self._agent.spool))
        self._up.set(float(self._connected()))

    def collect(self) -> list[CounterMetricFamily]:
        agent = self._agent
        totals = {
            "rounds": ("Reports taken.", agent.counts["rounds"]),
            "events": ("Events found in the kernel log.", agent.counts["events"]),
            "log_records": ("Records read from the kernel log.", agent.counts["log_records"]),
            "reports_dropped": ("Reports dropped while the broker was away.", agent.counts["reports_dropped"]),
            "spool_dropped": ("Events dropped because the spool was full.", agent.spool.dropped),
        }
        families = [
            CounterMetricFamily(f"detectord_agent_{name}_total", words, value=value)
            for name, (words, value) in totals.items()
        ]
        lost = CounterMetricFamily("detectord_agent_log_lost_total", "Kernel records lost.", labels=["reason"])
        for reason, count in agent.maker.lost.items():
            lost.add_metric([reason], count)
        refused = CounterMetricFamily("detectord_agent_events_refused_total", "Events refused.", labels=["reason"])
        for reason, count in agent.maker.refused.items():
            refused.add_metric([reason], count)
        return [*families, lost, refused]
