"""Lines that say a GPU has fallen off the bus without an XID 79 of their own (newer drivers print only these)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from detectord.core.model import Action, Event, FaultClass, Severity, SubjectKind, Verdict
from detectord.core.ports import LogRecord, Observation
from detectord.formats import nvrm


class OffBusSignal:
    name: Final = "off_bus"
    kinds: Final = frozenset({"fallen_off"})

    def observe(self, record: LogRecord) -> Iterable[Observation]:
        for found in nvrm.find(record.text):
            if found.kind == "fallen_off":
                yield Observation("fallen_off", SubjectKind.GPU, found.pci, "fallen_off", {"text": found.text})

    def verdict(self, event: Event) -> Verdict:
        """The same fault as XID 79, so that both lines are one incident."""
        return Verdict(
            fault="xid-79",
            title="GPU has fallen off the bus",
            fault_class=FaultClass.PCIE,
            severity=Severity.CRITICAL,
            action=Action.REBOOT,
            immediate="RESTART_BM",
            investigate="CONTACT_SUPPORT",
        )


LOG_SIGNAL: Final = OffBusSignal()
