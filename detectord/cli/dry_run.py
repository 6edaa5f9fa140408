"""``detectord dry-run``: a simulated fleet with injected faults through the very same scorer."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detectord.core.model import Alert, Change

if TYPE_CHECKING:
    from rich.console import Console

    from detectord.sim.dryrun import Result


def dry_run(
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="simulated nodes")] = 63,
    gpus: Annotated[int, typer.Option(min=1, max=16, help="GPUs a node")] = 8,
    hours: Annotated[float, typer.Option(min=1, max=24 * 60, help="simulated hours")] = 24,
    interval: Annotated[float, typer.Option(min=1, max=600, help="simulated seconds between reports")] = 30,
    faults: Annotated[int, typer.Option(min=0, max=1000, help="faults to inject")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="the same seed gives the same run")] = 1,
    report: Annotated[Path, typer.Option(help="where to write the HTML report")] = Path("detectord-report.html"),
) -> None:
    """Simulate a fleet, inject faults, print every alert, and say what was found. Exit code 1 if a fault was missed.

    Example: detectord dry-run --nodes 8 --hours 6 --seed 7
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from detectord import wiring
    from detectord.sim.report import render
    from detectord.sim.scenario import Scenario
    from detectord.sinks.words import describe

    scenario = Scenario(nodes, gpus, hours * 3600, interval, faults, nuisances=max(1, faults) - 1, seed=seed)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{nodes} simulated nodes of {gpus} GPUs, {hours:g} hours, seed {seed}; nothing real is touched\n")
    began = time.monotonic()
    columns = (
        TextColumn("simulated"),
        BarColumn(),
        TextColumn("{task.completed:.1f} of {task.total:g} h"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=hours)
        result = asyncio.run(
            wiring.run_dry(
                scenario,
                on_alert=lambda alert: _say(console, alert, describe(alert)),
                on_progress=lambda seconds: progress.update(task, completed=seconds / 3600),
            )
        )
    report.write_text(render(scenario, result.score, result.alerts, describe), encoding="utf-8")
    _summary(console, result, time.monotonic() - began)
    console.print(f"report     {report.resolve()}")
    if result.score.missed:
        raise typer.Exit(1)


def _say(console: Console, alert: Alert, words: str) -> None:
    from detectord.sim.report import clock

    colour = {Change.OPENED: "bold red", Change.UPDATED: "yellow", Change.CLOSED: "green"}[alert.change]
    console.print(f"[{colour}]{clock(alert.at)} {alert.change.value}[/]", end="  ")
    console.print(words, markup=False)


def _summary(console: Console, result: Result, seconds: float) -> None:
    score = result.score
    console.print(f"\n{result.reports:,} reports judged in {seconds:.1f} s")
    console.print(f"injected   {len(score.findings)}, and {score.nuisances} harmless bursts that must wake nobody")
    console.print(f"detected   {len(score.detected)}")
    console.print(f"missed     {len(score.missed)}")
    for finding in score.missed:
        console.print(f"           {finding.injection.kind.name} on {finding.node} GPU {finding.gpu or '-'}")
    console.print(f"false      {len(score.false)}")
    for incident in score.false:
        console.print(f"           {incident.title} on {incident.node}")
    if score.latencies:
        middle, slowest = statistics.median(score.latencies), score.latencies[-1]
        console.print(f"latency    median {middle:.1f} s, slowest {slowest:.1f} s (simulated)")
