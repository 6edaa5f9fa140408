"""XIDs of the kernel log: what the driver says went wrong with a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from detectord.core.model import Action, Event, FaultClass, Role, Scalar, Severity, SubjectKind, Verdict
from detectord.core.ports import LogRecord, Observation
from detectord.formats import catalogue, nvrm

_ACTIONS: Final = {
    "RESET_GPU": Action.RESET, "WORKFLOW_XID_48": Action.RESET, "RESTART_BM": Action.REBOOT,
    "RESTART_VM": Action.REBOOT, "RESTART_APP": Action.RESTART_APP, "UPDATE_SWFW": Action.UPDATE_SOFTWARE,
    "IGNORE": Action.NONE,
}  # fmt: skip
_CLASSES: Final[dict[FaultClass, frozenset[int]]] = {
    FaultClass.GPU_MEMORY: frozenset({48, 63, 64, 92, 94, 95, 140, 156, 157, 160, 161, 171, 172, 177}),
    FaultClass.NVLINK: frozenset({74, 121, 136, 137, *range(144, 151), 155, 173}),
    FaultClass.PCIE: frozenset({79, 167}),
    FaultClass.POWER: frozenset({54, 162, 163, 164, 165}),
    FaultClass.DRIVER: frozenset({38, 46, 62, 109, 110, 119, 120, 143, 151, 158, 168, 169}),
}
_RECOVERY: Final = {
    "none": Action.NONE, "gpu reset required": Action.RESET, "node reboot required": Action.REBOOT,
    "drain p2p": Action.DRAIN, "drain and reset": Action.DRAIN,
}  # fmt: skip
_RECOVERY_TO: Final = re.compile(r"\bto\s+0x[0-9a-f]+\s*\(([^)]*)\)", re.IGNORECASE)
_RESETS: Final = re.compile(r"\bRST: (Yes|No), D-RST: (Yes|No)", re.IGNORECASE)
# Codes whose meaning the buckets do not carry: said by hand, each for the reason beside it.
_PRECURSOR: Final = frozenset({63, 92, 163, 157, 161, 121})  # the GPU still works; the number to watch has moved
_DETAIL: Final = frozenset({171, 172})  # say more about a 48 that has been or will be printed
_SYMPTOM: Final = frozenset({45, 137})  # follow from something else on this GPU or on a peer


class XidSignal:
    name: Final = "xid"
    kinds: Final = frozenset({"xid"})

    def observe(self, record: LogRecord) -> Iterable[Observation]:
        for found in nvrm.find(record.text):
            if found.kind == "xid" and found.code is not None:
                yield Observation(
                    "xid", SubjectKind.GPU, found.pci, f"{found.code} {nvrm.repeats_as(found.text)}", details(found)
                )

    def verdict(self, event: Event) -> Verdict:
        return verdict(event.detail)


def details(found: nvrm.Found) -> dict[str, Scalar]:
    """code, text, and of pid, process, cause_of, MIG ids and NVLink fields what the line has."""
    detail: dict[str, Scalar] = {"code": found.code or 0, "text": found.text, **found.mig}
    for name in ("pid", "process", "cause_of"):
        if (value := getattr(found, name)) is not None:
            detail[name] = value
    if found.code is not None and 144 <= found.code <= 150:
        detail.update(catalogue.nvlink_fields(found.code, found.text))
    return detail


def verdict(detail: dict[str, Scalar]) -> Verdict:
    """What an XID means, of its event's detail (``code``, ``text`` and the decoded fields)."""
    code, text = int(detail["code"]), str(detail.get("text", ""))
    entry = catalogue.xids().get(code)
    known = entry or catalogue.Xid(code, f"unknown XID {code}")
    action = _ACTIONS.get(known.immediate, Action.INVESTIGATE)
    role, severity = _standing(known, action)
    title, immediate, investigate = f"XID {code}: {known.name}", known.immediate, known.investigate
    if entry is None:
        title = f"unknown XID {code}"
    if code == 154:
        action, role, severity = _recovery(text)
        immediate = _target(text) or "unreadable"
        title = f"XID 154: GPU recovery action is now {immediate}"
    elif code == 79:
        severity = Severity.CRITICAL
    elif code in (94, 95) and (resets := _RESETS.search(text)):
        if resets[2].lower() == "yes":
            action, role, severity = Action.DRAIN, Role.CAUSE, Severity.ERROR
        elif resets[1].lower() == "yes":
            action, role, severity = Action.RESET, Role.CAUSE, Severity.ERROR
    elif 144 <= code <= 150:
        rule = catalogue.nvlink_rule(code, detail, str(detail.get("driver", "")))
        action, role, severity = _nvlink(rule, str(detail.get("severity_word", "")))
        if rule is not None:
            immediate, investigate = rule.resolution, rule.investigatory
        title += f" ({detail['unit']}, link {detail['link']})" if "unit" in detail else ""
    return Verdict(
        fault=f"xid-{code}",
        title=title,
        fault_class=_class(code, known.hint),
        severity=severity,
        action=action,
        role=role,
        cause_of=f"xid-{detail['cause_of']}" if "cause_of" in detail else "",
        immediate=immediate,
        investigate=investigate,
    )


def _standing(known: catalogue.Xid, action: Action) -> tuple[Role, Severity]:
    if known.code in _SYMPTOM:
        return Role.SYMPTOM, Severity.INFO
    if known.code in _PRECURSOR:
        return Role.NOTICE, Severity.WARNING
    if known.code in _DETAIL:
        return Role.SYMPTOM, Severity.INFO
    if known.hint in ("app", "contained"):
        return Role.APPLICATION, Severity.INFO
    if action in (Action.RESET, Action.REBOOT):
        return Role.CAUSE, Severity.ERROR
    if action is Action.NONE or known.hint in ("unused", "info"):
        return Role.NOTICE, Severity.INFO
    return Role.CAUSE, Severity.WARNING


def _target(text: str) -> str:
    match = _RECOVERY_TO.search(text)
    return match[1].strip() if match else ""


def _recovery(text: str) -> tuple[Action, Role, Severity]:
    action = _RECOVERY.get(_target(text).lower(), Action.INVESTIGATE)
    if action is Action.NONE:
        return action, Role.NOTICE, Severity.INFO
    return action, Role.CAUSE, Severity.WARNING if action is Action.INVESTIGATE else Severity.ERROR


def _nvlink(rule: catalogue.NvlinkRule | None, word: str) -> tuple[Action, Role, Severity]:
    """A rule decides; without one the severity word of the line does; without that nobody can say."""
    if rule is not None:
        if rule.resolution == "RESET_GPU":
            return Action.RESET, Role.CAUSE, Severity.ERROR
        if rule.resolution == "IGNORE" and word != "Fatal":
            return Action.NONE, Role.NOTICE, Severity.INFO
        return Action.INVESTIGATE, Role.CAUSE, Severity.WARNING
    if word == "Fatal":
        return Action.RESET, Role.CAUSE, Severity.ERROR
    if word == "Nonfatal":
        return Action.NONE, Role.NOTICE, Severity.INFO
    return Action.INVESTIGATE, Role.CAUSE, Severity.WARNING


def _class(code: int, hint: str) -> FaultClass:
    for fault_class, codes in _CLASSES.items():
        if code in codes:
            return fault_class
    return FaultClass.SOFTWARE if hint == "app" else FaultClass.GPU


LOG_SIGNAL: Final = XidSignal()
