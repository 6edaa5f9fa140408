"""What the scorer itself concludes, in the words an operator reads."""

from __future__ import annotations

from typing import Final

from detectord.core.model import (
    Action,
    Evidence,
    FaultClass,
    Provenance,
    Reading,
    Role,
    Severity,
    Subject,
    Verdict,
)
from detectord.judges.limits import Hit

FLEET: Final = "_fleet"
NODE_SILENT: Final = Verdict(
    fault="node-silent", title="node is silent", fault_class=FaultClass.SILENT, severity=Severity.ERROR,
    action=Action.INVESTIGATE,
)  # fmt: skip
FLEET_SILENT: Final = Verdict(
    fault="fleet-silent", title="many nodes fell silent at once: look at the broker or the network first",
    fault_class=FaultClass.SILENT, severity=Severity.CRITICAL, action=Action.INVESTIGATE,
)  # fmt: skip
GPU_MISSING: Final = Verdict(
    fault="gpu-missing", title="GPU is gone from the node", fault_class=FaultClass.PCIE, severity=Severity.CRITICAL,
    action=Action.REBOOT,
)  # fmt: skip
GPU_UNREADABLE: Final = Verdict(
    fault="gpu-unreadable", title="GPU does not answer the driver", fault_class=FaultClass.DRIVER,
    severity=Severity.ERROR, action=Action.INVESTIGATE,
)  # fmt: skip
CLOCK_SKEW: Final = Verdict(
    fault="clock-skew", title="clock of the node is wrong", fault_class=FaultClass.HOST, severity=Severity.WARNING,
    action=Action.INVESTIGATE, role=Role.NOTICE,
)  # fmt: skip


def _evidence(judge: str, subject: Subject, verdict: Verdict, at: float, text: str, value: float) -> Evidence:
    return Evidence(
        at=at, judge=judge, subject=subject, verdict=verdict, text=text, value=value, provenance=Provenance.AGENT
    )


def node_silent(subject: Subject, seconds: float, now: float) -> Evidence:
    return _evidence("silence", subject, NODE_SILENT, now, f"nothing heard for {seconds:.0f} s", seconds)


def fleet_silent(subject: Subject, silent: int, fleet: int, now: float) -> Evidence:
    text = f"{silent} of {fleet} nodes are silent"
    return _evidence("silence", subject, FLEET_SILENT, now, text, float(silent))


def gpu_missing(subject: Subject, reports: int, at: float) -> Evidence:
    text = f"absent from {reports} reports in a row of a node that speaks"
    return _evidence("presence", subject, GPU_MISSING, at, text, float(reports))


def gpu_unreadable(subject: Subject, reading: Reading, at: float) -> Evidence:
    text = f"{reading.signal}: {reading.question} {reading.status.value}: {reading.error}"
    return _evidence("presence", subject, GPU_UNREADABLE, at, text, reading.took)


def clock_skew(subject: Subject, skew: float, at: float) -> Evidence:
    ahead = "ahead of" if skew > 0 else "behind"
    return _evidence("clock", subject, CLOCK_SKEW, at, f"{abs(skew):.0f} s {ahead} the scorer", skew)


def limit(subject: Subject, hit: Hit, at: float) -> Evidence:
    low, high = hit.limit.low, hit.limit.high
    words = "rose by" if hit.limit.rises else "is"
    return Evidence(
        at=at,
        judge="limits",
        subject=subject,
        verdict=hit.limit.verdict,
        text=f"{hit.limit.metric} {words} {hit.value:g}",
        metric=hit.limit.metric,
        value=hit.value,
        expected=f"outside {low:g} to {high:g}",
        provenance=Provenance.DRIVER,
    )
