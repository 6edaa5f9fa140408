"""What detectord makes of a pasted kernel log, a dictionary a recognised line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from detectord.core.model import Event, Scalar, Subject, SubjectKind
from detectord.core.ports import LogSignal
from detectord.formats import nvrm
from detectord.signals import off_bus, sxid, xid

_SIGNALS: dict[str, LogSignal] = {
    "xid": xid.LOG_SIGNAL,
    "sxid": sxid.LOG_SIGNAL,
    "fallen_off": off_bus.LOG_SIGNAL,
}


def logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(number of the first line, text): an indented line continues the one before it, a JSON line of journald is its
    message, and the driver's three-line off-bus message is one."""
    number, held = 0, ""
    for at, line in enumerate(lines, 1):
        text = _message(line.rstrip("\r\n"))
        continues = held and (text[:1] in (" ", "\t") or _off_bus_goes_on(held, text))
        if continues:
            held += "\n" + text
        else:
            if held:
                yield number, held
            number, held = at, text
    if held:
        yield number, held


def _off_bus_goes_on(held: str, text: str) -> bool:
    return "The NVIDIA GPU" in held and "fallen off" not in held and "NVRM:" in text and held.count("\n") < 3


def _message(line: str) -> str:
    if not line.startswith("{") or '"MESSAGE"' not in line:
        return line
    try:
        message = json.loads(line)["MESSAGE"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return line
    # journald gives a message that is no UTF-8 as a list of bytes.
    if isinstance(message, list):
        return bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
    return str(message)


def parse_kernel_log(lines: Iterable[str]) -> Iterator[dict[str, Scalar | None]]:
    """Recognised lines with line_number, kind, code, pci_bdf, pid, process, name, class, severity, action, cause_of."""
    for number, text in logical_lines(lines):
        for found in nvrm.find(text):
            verdict = _SIGNALS[found.kind].verdict(_event(found))
            yield {
                "line_number": number,
                "kind": found.kind,
                "code": found.code,
                "pci_bdf": found.pci,
                "pid": found.pid,
                "process": found.process,
                "name": verdict.title,
                "class": verdict.fault_class.value,
                "severity": verdict.severity.name.lower(),
                "action": verdict.action.value,
                "cause_of": found.cause_of,
            }


def _event(found: nvrm.Found) -> Event:
    subject = Subject("-", SubjectKind.GPU, f"pci:{found.pci}")
    return Event(
        node="-", boot_id="", sequence=0, subject=subject, kind=found.kind, at=0.0, seen=0.0, detail=xid.details(found)
    )
