"""The dry run as one HTML file that opens without network: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import resources

import jinja2

from detectord.core.model import Alert, Change
from detectord.sim.scenario import Scenario
from detectord.sim.score import Score


def clock(at: float) -> str:
    """Simulated time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def render(scenario: Scenario, score: Score, alerts: Sequence[Alert], words: Callable[[Alert], str]) -> str:
    """``words`` says an alert in the words of the log, so that the page and the log never differ."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(resources.files("detectord.sim").joinpath("report.html").read_text("utf-8"))
    latencies = score.latencies
    return template.render(
        scenario=scenario,
        score=score,
        alerts=alerts,
        words=words,
        clock=clock,
        hours=max(1, round(scenario.duration / 3600)),
        median=statistics.median(latencies) if latencies else None,
        slowest=latencies[-1] if latencies else None,
        marks=_marks(scenario, score, alerts),
    )


def _marks(scenario: Scenario, score: Score, alerts: Sequence[Alert]) -> list[dict[str, str | float]]:
    def x(at: float) -> float:
        return round(40 + 940 * (at - scenario.start) / scenario.duration, 1)

    marks: list[dict[str, str | float]] = []
    for finding in score.findings:
        colour = "#2e7d32" if finding.incident else "#c62828"
        label = f"{finding.injection.kind.name} on {finding.node} at {clock(finding.injection.at)}"
        marks.append({"x": x(finding.injection.at), "y": 32, "colour": colour, "label": label})
    false = {incident.id for incident in score.false}
    for alert in alerts:
        if alert.change is Change.OPENED:
            colour = "#b26a00" if alert.incident.id in false else "#1565c0"
            label = f"{alert.incident.title} on {alert.incident.node} at {clock(alert.at)}"
            marks.append({"x": x(alert.at), "y": 87, "colour": colour, "label": label})
    return marks
