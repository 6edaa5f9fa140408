from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectord.core import wire
from detectord.core.model import (
    Action,
    Birth,
    Change,
    Event,
    FaultClass,
    IncidentState,
    Item,
    Metric,
    NodeStatus,
    Provenance,
    Reading,
    Report,
    Role,
    Severity,
    Status,
    Subject,
    SubjectKind,
    Verdict,
)
from detectord.core.ports import Effect, EventKept, ExclusionsChanged, IncidentChanged, Limit, Refused, Saved
from detectord.scorer.engine import Engine
from detectord.scorer.settings import EngineSettings
from detectord.signals import discover_logs

T = 1_800_000_000.0
COLUMNS = wire.metric_set(SubjectKind.GPU, [Metric(name="gpu_failed_flag", help=""), Metric(name="e_total", help="")])
REPLACE = Verdict(fault="remap-failed", title="remapping failed", fault_class=FaultClass.GPU_MEMORY,
                  severity=Severity.CRITICAL, action=Action.REPLACE)  # fmt: skip
RISEN = Verdict(fault="ecc", title="uncorrected ECC", fault_class=FaultClass.GPU_MEMORY, severity=Severity.ERROR,
                action=Action.RESET)  # fmt: skip
LIMITS = (Limit("gpu_failed_flag", REPLACE, low=1.0, clears=True), Limit("e_total", RISEN, low=1.0, rises=True))
CLASSIFY = {kind: signal.verdict for signal in discover_logs() for kind in signal.kinds}


def engine(saved: Saved | None = None, **changes: Any) -> Engine:
    return Engine(EngineSettings(**changes), LIMITS, CLASSIFY, saved)


def gpu(node: str = "n1", index: int = 0) -> Subject:
    return Subject(node, SubjectKind.GPU, f"GPU-{node}-{index}")


def birth(node: str = "n1", boot: str = "b1", session: int = 1, gpus: int = 2, at: float = T) -> Birth:
    inventory = tuple(Item(gpu(node, i), {"pci": f"0000:{i + 1:02x}:00.0", "index": str(i)}) for i in range(gpus))
    return Birth(node=node, session=session, boot_id=boot, at=at, interval=5.0, version="t", metric_sets=(COLUMNS,),
                 inventory=inventory)  # fmt: skip


def report(sequence: int, at: float, node: str = "n1", gpus: int = 2, flag: float = 0.0, total: float = 0.0,
           readings: tuple[Reading, ...] = ()) -> Report:  # fmt: skip
    rows = [(gpu(node, i).id, [flag if i == 0 else 0.0, total if i == 0 else 0.0]) for i in range(gpus)]
    return Report(node=node, session=1, boot_id="b1", sequence=sequence, at=at, blocks=(wire.block(COLUMNS, rows),),
                  readings=readings)  # fmt: skip


def xid(code: int, sequence: int, at: float = T, node: str = "n1", index: int = 0, text: str = "x",
        provenance: Provenance = Provenance.KERNEL, **detail: Any) -> Event:  # fmt: skip
    subject = Subject(node, SubjectKind.GPU, f"pci:0000:{index + 1:02x}:00.0")
    return Event(node=node, boot_id="b1", sequence=sequence, subject=subject, kind="xid", at=at, seen=at,
                 detail={"code": code, "text": text, **detail}, provenance=provenance)  # fmt: skip


def changes(effects: list[Effect]) -> list[IncidentChanged]:
    return [effect for effect in effects if isinstance(effect, IncidentChanged)]


def test_an_xid_opens_one_told_incident_on_the_gpus_uuid_and_proposes_its_node() -> None:
    one = engine()
    one.handle(birth(), T)
    effects = one.handle(xid(79, 1), T + 0.5)
    (opened,) = changes(effects)
    assert (opened.change, opened.notify) == (Change.OPENED, True)
    assert opened.incident.subjects == (gpu(),)
    assert opened.incident.labels["index"] == "0"
    assert opened.advice is not None
    assert opened.advice.action is Action.REBOOT
    assert one.exclusions.exclude[0].node == "n1"
    assert any(isinstance(effect, EventKept) and effect.delay == 0.5 for effect in effects)


def test_the_same_event_twice_has_no_effect_the_second_time_even_after_a_restart() -> None:
    one = engine()
    one.handle(birth(), T)
    (opened,) = changes(one.handle(xid(79, 1), T))
    assert one.handle(xid(79, 1), T + 1) == []
    saved = Saved(incidents=((opened.incident, opened.number),), event_keys=(xid(79, 1).key,))
    again = engine(saved)
    assert again.handle(xid(79, 1), T + 2) == []
    assert [incident.id for incident in again.open_incidents] == [opened.incident.id]


def test_a_hundred_thousand_repeats_are_one_incident_with_a_count_and_few_effects() -> None:
    one = engine()
    one.handle(birth(), T)
    effects: list[IncidentChanged] = []
    for number in range(100_000):
        effects += changes(one.handle(xid(119, number), T + number * 0.0006))
    (incident,) = one.open_incidents
    assert incident.count == 100_000
    assert len(incident.evidence) <= 8
    assert len(effects) < 50
    assert sum(effect.notify for effect in effects) == 1


def test_symptoms_attach_to_their_cause_before_and_after_it() -> None:
    one = engine()
    one.handle(birth(), T)
    early = changes(one.handle(xid(45, 1), T))
    assert [change.notify for change in early] == [False]
    opened = changes(one.handle(xid(48, 2), T + 1))
    assert [change.change for change in opened] == [Change.OPENED, Change.CLOSED]
    one.handle(xid(45, 3, cause_of=48), T + 2)
    (incident,) = one.open_incidents
    assert (incident.fault, incident.count) == ("xid-48", 2)


def test_a_graver_recovery_action_is_told_as_an_update_of_the_same_incident() -> None:
    one = engine()
    one.handle(birth(), T)
    (opened,) = changes(one.handle(xid(119, 1), T))
    text = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (updated,) = changes(one.handle(xid(154, 2, text=text), T + 1))
    assert updated.incident.id == opened.incident.id
    assert (updated.change, updated.notify, updated.incident.action) == (Change.UPDATED, True, Action.REBOOT)


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 94])
def test_application_xids_symptoms_and_notices_never_exclude(code: int) -> None:
    one = engine()
    one.handle(birth(), T)
    one.handle(xid(code, 1), T)
    assert one.exclusions.exclude == ()


def test_an_injected_event_is_refused_unless_allowed_and_even_then_excludes_nobody() -> None:
    one = engine()
    assert isinstance(one.handle(xid(79, 1, provenance=Provenance.INJECTED), T)[0], Refused)
    allowed = engine(allow_injected=True)
    allowed.handle(birth(), T)
    (opened,) = changes(allowed.handle(xid(79, 1, provenance=Provenance.INJECTED), T))
    assert opened.incident.provenance is Provenance.INJECTED
    assert not allowed.exclusions.exclude
    (real,) = changes(allowed.handle(xid(79, 2), T + 1))
    assert real.incident.id != opened.incident.id
    (advice,) = allowed.exclusions.exclude
    assert advice.incidents == (real.incident.id,)


def test_an_incident_opened_under_a_pci_address_goes_on_under_the_uuid() -> None:
    one = engine()
    (opened,) = changes(one.handle(xid(79, 1), T))
    assert opened.incident.subjects[0].id == "pci:0000:01:00.0"
    one.handle(birth(), T + 1)
    (incident,) = one.open_incidents
    assert (incident.id, incident.subjects) == (opened.incident.id, (gpu(),))
    one.handle(xid(79, 2), T + 2)
    assert [incident.count for incident in one.open_incidents] == [2]


def test_a_reboot_and_ten_healthy_minutes_end_a_cause_and_its_advice() -> None:
    one = engine()
    one.handle(birth(), T)
    one.handle(xid(79, 1), T)
    one.handle(birth(boot="b2", session=2), T + 100)
    assert [incident.state for incident in one.open_incidents] == [IncidentState.RECOVERING]
    assert one.exclusions.exclude == ()
    healthy = msgspec.structs.replace(report(1, T + 690), session=2, boot_id="b2")
    one.handle(healthy, T + 690)
    closed = changes(one.tick(T + 100 + 601))
    assert [(change.change, change.notify) for change in closed] == [(Change.CLOSED, True)]
    assert "healthy" in closed[0].incident.closing


def test_a_repaired_node_that_says_nothing_is_not_called_healthy() -> None:
    one = engine()
    one.handle(birth(), T)
    one.handle(xid(79, 1), T)
    one.handle(birth(boot="b2", session=2), T + 100)
    assert all(change.change is not Change.CLOSED for change in changes(one.tick(T + 2000)))
    assert "xid-79" in {incident.fault for incident in one.open_incidents}


def test_a_fault_that_returns_while_recovering_reopens_the_same_incident() -> None:
    one = engine()
    one.handle(birth(), T)
    (opened,) = changes(one.handle(xid(79, 1), T))
    one.handle(birth(boot="b2", session=2), T + 100)
    (back,) = changes(one.handle(xid(79, 2), T + 200))
    assert (back.incident.id, back.incident.state, back.notify) == (opened.incident.id, IncidentState.OPEN, True)


def test_a_crossed_limit_and_a_risen_counter_are_certain_and_a_reset_is_no_rise() -> None:
    one = engine(join_causes=False)
    one.handle(birth(), T)
    assert changes(one.handle(report(1, T, total=7.0), T)) == []
    assert changes(one.handle(report(2, T + 5, total=3.0), T + 5)) == []
    (risen,) = changes(one.handle(report(3, T + 10, total=4.0), T + 10))
    assert risen.incident.fault == "ecc"
    (flagged,) = changes(one.handle(report(4, T + 15, total=4.0, flag=1.0), T + 15))
    assert (flagged.incident.fault, flagged.incident.action) == ("remap-failed", Action.REPLACE)


def test_a_gpu_absent_from_three_reports_of_a_speaking_node_is_missing() -> None:
    one = engine()
    one.handle(birth(), T)
    told = [changes(one.handle(report(i, T + i, gpus=2 if i == 0 else 1), T + i)) for i in range(4)]
    assert [len(one) for one in told] == [0, 0, 0, 1]
    assert told[3][0].incident.fault == "gpu-missing"


def test_a_gpu_that_does_not_answer_three_times_is_unreadable_and_not_excluded() -> None:
    one = engine()
    one.handle(birth(), T)
    late = Reading("gpu_thermal", gpu(), "nvmlDeviceGetTemperature", Status.LATE, 2.0, "no answer within 2 s")
    told = [changes(one.handle(report(i, T + i, readings=(late,)), T + i)) for i in range(3)]
    assert told[2][0].incident.fault == "gpu-unreadable"
    assert one.exclusions.exclude == ()


def test_a_silent_node_is_told_once_and_recovers_when_it_speaks() -> None:
    one = engine()
    for name in ("n1", "n2", "n3", "n4"):
        one.handle(birth(name), T)
    for tick in range(0, 100, 5):
        for name in ("n2", "n3", "n4"):
            one.handle(report(tick, T + tick, node=name), T + tick)
    (silent,) = changes(one.tick(T + 100))
    assert (silent.incident.node, silent.incident.fault, silent.notify) == ("n1", "node-silent", True)
    assert changes(one.tick(T + 101)) == []
    one.handle(report(1, T + 110), T + 110)
    assert one.open_incidents[0].state is IncidentState.RECOVERING


def test_a_node_that_said_goodbye_is_not_silent_for_the_planned_time() -> None:
    one = engine()
    one.handle(birth(), T)
    one.handle(NodeStatus(node="n1", session=1, online=False, reason="stop"), T)
    assert changes(one.tick(T + 800)) == []
    assert changes(one.tick(T + 1000)) != []


def test_most_of_the_fleet_silent_at_once_is_one_incident_about_the_way_to_us() -> None:
    one = engine()
    for number in range(10):
        one.handle(birth(f"n{number}"), T)
    (fleet,) = changes(one.tick(T + 1000))
    assert fleet.incident.fault == "fleet-silent"


def test_the_cap_withholds_what_is_too_much() -> None:
    one = engine(cap_share=0.1, cap_nodes=8)
    for number in range(20):
        one.handle(birth(f"n{number}"), T)
    for number in range(5):
        one.handle(xid(79, 1, node=f"n{number}"), T + number)
    assert [advice.node for advice in one.exclusions.exclude] == ["n0", "n1"]
    assert [advice.node for advice in one.exclusions.withheld] == ["n2", "n3", "n4"]
    assert "cap" in one.exclusions.withheld[0].withheld


def test_advice_expires() -> None:
    one = engine(advice_ttl=100.0)
    one.handle(birth(), T)
    one.handle(xid(79, 1), T)
    assert one.exclusions.exclude
    effects = one.tick(T + 101)
    assert any(isinstance(effect, ExclusionsChanged) for effect in effects)
    assert one.exclusions.exclude == ()


def test_values_that_are_no_numbers_unknown_columns_and_wrong_times_are_refused_or_read_sanely() -> None:
    one = engine()
    refused = one.handle(report(1, T), T)
    assert [effect.reason for effect in refused if isinstance(effect, Refused)] == ["unknown-metric-set"]
    one.handle(birth(), T)
    bad = one.handle(report(2, T + 1, flag=math.inf), T + 1)
    assert [effect.reason for effect in bad if isinstance(effect, Refused)] == ["infinite"]
    assert changes(one.handle(report(3, T + 2, flag=math.nan), T + 2)) == []
    again = one.handle(report(3, T + 2), T + 3)
    assert [effect.reason for effect in again if isinstance(effect, Refused)] == ["duplicate-report"]
    (jump,) = changes(one.handle(report(4, T + 36000), T + 5))
    assert (jump.incident.fault, jump.incident.role) == ("clock-skew", Role.NOTICE)
    assert changes(one.tick(T + 10)) == []


NODES = st.sampled_from(["n1", "n2"])
messages = st.lists(
    st.one_of(
        st.builds(lambda n, s, b: birth(n, b, s), NODES, st.integers(0, 3), st.sampled_from("ab")),
        st.builds(
            lambda n, q, g, f, t: report(q, T + q, n, g, f, t),
            st.sampled_from(["n1", "n2"]), st.integers(0, 30), st.integers(0, 3),
            st.sampled_from([0.0, 1.0, math.nan, math.inf, -5.0]), st.floats(-10, 10),
        ),
        st.builds(
            lambda c, q, n, p: xid(c, q, node=n, provenance=p),
            st.sampled_from([13, 45, 48, 63, 79, 94, 95, 119, 154, 9999]), st.integers(0, 30), NODES,
            st.sampled_from(list(Provenance)),
        ),
        st.builds(lambda n, o, r: NodeStatus(node=n, session=1, online=o, reason=r), st.sampled_from(["n1", "n3"]),
                  st.booleans(), st.sampled_from(["", "will", "stop"])),
        st.floats(0, 90_000),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(messages)
def test_any_sequence_is_survived_loses_no_open_incident_and_gives_the_same_twice(sequence: list[Any]) -> None:
    def play() -> tuple[list[Effect], Engine]:
        one, now, seen = engine(allow_injected=True), T, list[Effect]()
        for item in sequence:
            now += item if isinstance(item, float) else 1.0
            seen += one.tick(now) if isinstance(item, float) else one.handle(item, now)
        return seen, one

    first, one = play()
    second, _ = play()
    assert msgspec.msgpack.encode([repr(effect) for effect in first]) == msgspec.msgpack.encode(
        [repr(effect) for effect in second]
    )
    opened = {change.incident.id for change in changes(first) if change.change is Change.OPENED}
    closed = {change.incident.id for change in changes(first) if change.change is Change.CLOSED}
    assert opened - closed == {incident.id for incident in one.open_incidents}


def test_a_recovery_action_that_comes_first_takes_the_name_of_its_cause() -> None:
    one = engine()
    one.handle(birth(), T)
    one.handle(xid(154, 1, text="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"), T)
    one.handle(xid(119, 2), T + 1)
    (incident,) = one.open_incidents
    assert (incident.fault, incident.fault_class) == ("xid-119", FaultClass.DRIVER)
