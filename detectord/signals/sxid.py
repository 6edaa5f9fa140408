"""SXIDs of the kernel log: what the driver says went wrong with an NVSwitch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from detectord.core.model import Action, Detail, Event, FaultClass, Role, Severity, SubjectKind, Verdict
from detectord.core.ports import LogRecord, Observation
from detectord.formats import catalogue, nvrm

# These lines follow the one with the severity word and say more about the same error.
_FOLLOWS = re.compile(r"(Severity \d|Data \{)", re.IGNORECASE)


class SxidSignal:
    name: Final = "sxid"
    kinds: Final = frozenset({"sxid"})

    def observe(self, record: LogRecord) -> Iterable[Observation]:
        for found in nvrm.find(record.text):
            if found.kind == "sxid" and found.code is not None:
                detail: Detail = {"code": found.code, "text": found.text}
                yield Observation(
                    "sxid", SubjectKind.SWITCH, found.pci, f"{found.code} {nvrm.repeats_as(found.text)}", detail
                )

    def verdict(self, event: Event) -> Verdict:
        code, text = int(event.detail["code"]), str(event.detail.get("text", ""))
        entry = catalogue.sxids().get(code)
        fatal = text.lower().startswith("fatal")
        words = "Fatal" if fatal else "Non-fatal" if text.lower().startswith("non-fatal") else "unsaid"
        if _FOLLOWS.match(text):
            role, severity, action = Role.NOTICE, Severity.INFO, Action.NONE
        elif fatal:
            role, severity, action = Role.CAUSE, Severity.CRITICAL, Action.DRAIN
        elif words == "Non-fatal":
            role, severity, action = Role.NOTICE, Severity.INFO, Action.INVESTIGATE
        else:
            role, severity, action = Role.CAUSE, Severity.WARNING, Action.INVESTIGATE
        return Verdict(
            fault=f"sxid-{code}",
            title=f"SXID {code}: {entry.name if entry else 'unknown NVSwitch error'} ({words})",
            fault_class=FaultClass.NVLINK,
            severity=severity,
            action=action,
            role=role,
            immediate=entry.severity if entry else "",
        )


LOG_SIGNAL: Final = SxidSignal()
