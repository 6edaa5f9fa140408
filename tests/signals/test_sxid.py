from __future__ import annotations

import pytest

from detectord.core.model import Action, Event, Role, Severity, Subject, SubjectKind
from detectord.core.ports import LogRecord
from detectord.signals.sxid import LOG_SIGNAL

HEAD = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, "


@pytest.mark.parametrize(
    ("text", "role", "severity", "action"),
    [
        ("Fatal, Link 48 LTSSM Fault Up", Role.CAUSE, Severity.CRITICAL, Action.DRAIN),
        ("Non-fatal, Link 48 LTSSM Fault Up", Role.NOTICE, Severity.INFO, Action.INVESTIGATE),
        ("Severity 1 Engine instance 48 Sub-engine instance 00", Role.NOTICE, Severity.INFO, Action.NONE),
        ("Data {0x10000000, 0x00000000}", Role.NOTICE, Severity.INFO, Action.NONE),
    ],
)
def test_only_the_line_that_says_fatal_is_a_cause(text: str, role: Role, severity: Severity, action: Action) -> None:
    (seen,) = LOG_SIGNAL.observe(LogRecord("b", 1, 0.0, HEAD + text))
    assert (seen.subject_kind, seen.device) == (SubjectKind.SWITCH, "0000:05:00.0")
    subject = Subject("n", SubjectKind.SWITCH, f"pci:{seen.device}")
    event = Event(
        node="n", boot_id="b", sequence=1, subject=subject, kind=seen.kind, at=0.0, seen=0.0, detail=seen.detail
    )
    verdict = LOG_SIGNAL.verdict(event)
    assert (verdict.fault, verdict.role, verdict.severity, verdict.action) == ("sxid-20034", role, severity, action)
