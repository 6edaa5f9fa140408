from __future__ import annotations

import pytest

from detectord import wiring
from detectord.core.model import Alert
from detectord.sim.dryrun import Result
from detectord.sim.faults import FAULTS
from detectord.sim.report import render
from detectord.sim.scenario import Scenario, plan
from detectord.sim.score import score
from detectord.sinks.words import describe

SMALL = Scenario(nodes=16, duration=4 * 3600.0, faults=8, nuisances=5, seed=3)


async def run(scenario: Scenario, told: list[Alert] | None = None) -> Result:
    return await wiring.run_dry(scenario, (told if told is not None else []).append, lambda seconds: None)


@pytest.mark.parametrize("seed", [3, 4, 5])
async def test_every_injected_fault_is_found_on_its_gpu_and_harmless_bursts_wake_nobody(seed: int) -> None:
    result = await run(Scenario(nodes=16, duration=4 * 3600.0, faults=8, nuisances=5, seed=seed))
    assert len(result.score.findings) == 8
    assert result.score.missed == ()
    assert result.score.false == ()


async def test_the_same_seed_gives_the_same_alerts() -> None:
    first, second = await run(SMALL), await run(SMALL)
    assert [describe(alert) for alert in first.alerts] == [describe(alert) for alert in second.alerts]
    assert [alert.id for alert in first.alerts] == [alert.id for alert in second.alerts]


async def test_a_detector_that_says_nothing_misses_everything_and_one_that_errs_is_false() -> None:
    """The score must be able to be bad, or its being good would mean nothing."""
    result = await run(SMALL)
    from detectord.signals import discover
    from detectord.sim.fleet import Fleet

    fleet, injections = Fleet(SMALL, discover()), plan(SMALL)
    nothing = score(fleet, injections, [])
    assert (len(nothing.missed), len(nothing.detected)) == (8, 0)
    swapped = Fleet(Scenario(nodes=16, seed=99), discover())
    wrong = score(swapped, injections, [finding.incident for finding in result.score.findings if finding.incident])
    assert len(wrong.false) >= 7


def test_a_day_has_at_least_six_kinds_of_xid_and_a_node_breaks_once() -> None:
    broken = [one for one in plan(Scenario()) if not one.kind.harmless]
    assert len({one.kind.name for one in broken if one.kind.lines}) >= 6
    assert len({one.node for one in broken}) == len(broken)
    assert {one.kind for one in broken} == set(FAULTS)


async def test_the_report_stands_alone_and_escapes_what_it_quotes() -> None:
    result = await run(SMALL)
    page = render(SMALL, result.score, result.alerts, lambda alert: "<script>alert(1)</script>")
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page
