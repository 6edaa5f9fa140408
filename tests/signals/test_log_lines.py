from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectord.core.model import Action, Event, FaultClass, Role, Scalar, Severity, Subject, SubjectKind
from detectord.core.ports import LogRecord
from detectord.formats import catalogue, nvrm
from detectord.signals import discover_logs, off_bus, xid
from detectord.signals.log_lines import parse_kernel_log

HERE = Path(__file__).resolve().parent
SAMPLES = [
    json.loads(line) for line in (HERE.parent / "samples/kernel-log/lines.jsonl").read_text().splitlines() if line
]
CORPUS = HERE.parents[2] / "shared/data/kernel-log/cases.jsonl"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["line"][:40])
def test_a_line_is_read_as_its_sample_says(sample: dict[str, Any]) -> None:
    rows = [
        [row["kind"], row["code"], row["pci_bdf"], row["pid"], row["process"], row["severity"], row["action"]]
        for row in parse_kernel_log(sample["line"].splitlines())
    ]
    assert rows == ([] if sample["want"] is None else [sample["want"]])


def test_every_line_of_the_field_corpus_is_read_as_expected() -> None:
    """The corpus is beside the project on some machines only; the samples above cover the same forms."""
    cases = [json.loads(line) for line in CORPUS.read_text().splitlines()] if CORPUS.exists() else []
    for case in cases:
        expected = case["expected"]
        rows = [(row["kind"], row["code"], row["pci_bdf"], row["pid"], row["process"]) for row in
                parse_kernel_log(case["line"].splitlines())]  # fmt: skip
        wanted = tuple(expected[key] for key in ("kind", "code", "pci_bdf", "pid", "process"))
        assert rows == ([] if expected["kind"] == "none" else [wanted]), case["id"]


def test_several_xids_in_one_record_are_all_found() -> None:
    text = "usb 1-1: new NVRM: Xid (PCI:0000:01:00): 48, DBE NVRM: Xid (PCI:0000:02:00): 95, Uncontained"
    assert [(found.code, found.pci) for found in nvrm.find(text)] == [(48, "0000:01:00.0"), (95, "0000:02:00.0")]


def test_line_numbers_are_those_of_the_pasted_text() -> None:
    text = ["nothing", "NVRM: Xid (PCI:0000:01:00): 79, off", "", "NVRM: Xid (PCI:0000:01:00): 45, Ch 1"]
    assert [row["line_number"] for row in parse_kernel_log(text)] == [2, 4]


def event_of(detail: dict[str, Scalar], kind: str = "xid") -> Event:
    subject = Subject("n", SubjectKind.GPU, "GPU-1")
    return Event(node="n", boot_id="b", sequence=1, subject=subject, kind=kind, at=0, seen=0, detail=detail)


@pytest.mark.parametrize("code", [13, 31, 43, 94, 32, 69])
def test_application_xids_never_ask_for_more_than_a_restart(code: int) -> None:
    verdict = xid.LOG_SIGNAL.verdict(event_of({"code": code, "text": "x"}))
    assert verdict.role is Role.APPLICATION
    assert verdict.action in (Action.NONE, Action.RESTART_APP)
    assert verdict.severity is Severity.INFO


def test_xid_45_is_a_symptom_and_names_its_cause() -> None:
    verdict = xid.LOG_SIGNAL.verdict(event_of({"code": 45, "text": "Ch 1", "cause_of": 149}))
    assert (verdict.role, verdict.cause_of) == (Role.SYMPTOM, "xid-149")


def test_an_off_bus_line_and_xid_79_are_one_fault() -> None:
    line = off_bus.LOG_SIGNAL.verdict(event_of({"text": "x"}, "fallen_off"))
    code = xid.LOG_SIGNAL.verdict(event_of({"code": 79, "text": "x"}))
    assert (line.fault, line.action, line.severity) == (code.fault, code.action, code.severity)


def test_every_catalogued_code_has_a_verdict_with_a_title_and_a_class() -> None:
    for code in [*catalogue.xids(), 5000]:
        verdict = xid.LOG_SIGNAL.verdict(event_of({"code": code, "text": ""}))
        assert verdict.title
        assert isinstance(verdict.fault_class, FaultClass)


def test_nvlink_fields_are_decoded_and_an_error_the_driver_was_told_to_fake_is_visible() -> None:
    text = "NETIR_LINK_EVT  Fatal   XC0 i1 Link 09 (0x025525c6 0x00000001 0x0)"
    fields = catalogue.nvlink_fields(149, text)
    assert fields["link"] == 9
    assert fields["severity_word"] == "Fatal"
    assert fields["intr_info"] == 0x025525C6
    assert fields["error_status"] == 1
    assert fields["link_down_reason"] == 0x025525C6 >> 20 & 0x3F
    assert fields["injected_by_driver"] is True


def test_the_nvlink_rule_depends_on_the_drivers_layout() -> None:
    fields: dict[str, Scalar] = {"unit": "RLW_CTRL", "intr_info": 0b0000_0011, "error_status": 0x80000000}
    assert catalogue.nvlink_rule(145, fields, "580.65.06") is not None
    assert catalogue.nvlink_rule(145, fields, "570.10") is None


def test_repeats_differ_in_numbers_alone() -> None:
    a = nvrm.repeats_as("pid=12, name=foo, Timeout after 6s of waiting (0x12 0x4)")
    b = nvrm.repeats_as("pid=99, name=bar baz, Timeout after 7s of waiting (0x9 0xff)")
    assert a == b


def test_the_uuid_line_gives_the_pair() -> None:
    line = "NVRM: GPU at PCI:0000:91:00: GPU-dde87686-dcf2-c61e-bf69-000000000001"
    assert nvrm.uuid_pair(line) == ("0000:91:00.0", "GPU-dde87686-dcf2-c61e-bf69-000000000001")
    assert nvrm.uuid_pair("nothing of the kind") is None


def test_the_three_signals_of_the_kernel_log_are_found_by_looking() -> None:
    assert {"xid", "sxid", "off_bus"} <= {signal.name for signal in discover_logs()}


@given(st.text(alphabet=st.sampled_from("NVRM: Xid(PC0123456789abf.),\n SXid=pid<>nvswtch-fallen off the bus")))
def test_no_text_makes_a_signal_fail(text: str) -> None:
    record = LogRecord("b", 1, 0.0, text)
    for signal in discover_logs():
        for found in signal.observe(record):
            assert signal.verdict(event_of(dict(found.detail), found.kind)).fault
    list(parse_kernel_log(text.splitlines()))
