"""NVIDIA's kernel lines: XID, SXID and "fallen off the bus", found anywhere in a text.

The driver prints with a continuation prefix, so its text may follow another driver's unfinished line and one record
may hold several XIDs: nothing is anchored at a line's start. Shapes after the open kernel modules (kernel_rc.c): the
address is ``PCI:%04x:%02x:%02x``, optionally followed by MIG ids; pid and name are optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from detectord.core.model import Scalar

_BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
_LINE = re.compile(
    r"(?:NVRM:\s*(?P<xid>Xid)|nvidia-nvswitch\d+:\s*(?P<sxid>SXid))\s*"
    rf"\(\s*(?:PCI:)?(?P<bdf>{_BDF})(?P<mig>(?:\s+GPU-(?:CI|I):\d+)*)\s*\)\s*:\s*(?P<code>\d{{1,5}})\b(?P<rest>[^\n]*(?:\n(?!.*NVRM:)[^\n]*)*)",
    re.IGNORECASE,
)
_OFF_BUS = re.compile(
    rf"NVRM:\s*(?:GPU\s+(?P<short>{_BDF}):\s*GPU\s+has\s+fallen\s+off\s+the\s+bus"
    rf"|The\s+NVIDIA\s+GPU\s+(?P<long>{_BDF})(?=(?:.|\n){{0,300}}?fallen\s+off\s+the\s+bus))",
    re.IGNORECASE,
)
_PID = re.compile(r"\bpid=(\d{1,10})\b")
_NAME = re.compile(r"\bname=([^,]+)")
_CAUSED = re.compile(r"caused by previous Xid (\d{1,5})\b", re.IGNORECASE)
_MIG = re.compile(r"GPU-(CI|I):(\d{1,5})\b", re.IGNORECASE)
_PAIR = re.compile(rf"NVRM:\s*GPU at (?:PCI:)?(?P<bdf>{_BDF}):\s*(?P<uuid>GPU-[0-9a-f-]{{36}})", re.IGNORECASE)
_NEXT = re.compile(r"(?:NVRM:\s*Xid|nvidia-nvswitch\d+:)", re.IGNORECASE)
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class Found:
    """``kind`` is xid, sxid or fallen_off (then ``code`` is None); ``pci`` is ``0000:3b:00.0``."""

    kind: str
    code: int | None
    pci: str
    pid: int | None = None
    process: str | None = None
    cause_of: int | None = None
    text: str = ""
    mig: dict[str, Scalar] = field(default_factory=dict)


def normal_address(text: str) -> str:
    """``0000:3b:00.0`` of any spelling: NVML's eight-digit domain, upper case, with or without a function."""
    parts = text.lower().split(":")
    *domain, bus, device = parts
    # `00000000:00:1f.0` and `PCI:00000000:00:1F.0` have an eight-digit domain of which the last four digits count.
    number = domain[-1][-4:] if domain else "0000"
    return f"{number}:{bus}:{device.partition('.')[0]}.0"


def find(text: str) -> Iterator[Found]:
    """All XIDs, SXIDs and off-bus lines of a text, in order. Cheap for text that holds none."""
    folded = text.casefold()
    if "nvrm" in folded or "sxid" in folded:
        yield from _xids(text)
        if "fallen" in folded:
            for match in _OFF_BUS.finditer(text):
                yield Found("fallen_off", None, normal_address(match["short"] or match["long"]), text=_trim(text))


def _xids(text: str) -> Iterator[Found]:
    at = 0
    while match := _LINE.search(text, at):
        start, at = match.start("rest"), match.end("rest")
        # The pattern's tail has swallowed the next one of the same record.
        if following := _NEXT.search(text, start, at):
            at = following.start()
        yield _found(match, text[start:at])


def _found(match: re.Match[str], rest: str) -> Found:
    # pid and name are the driver's only directly behind the code; elsewhere they are part of the message.
    pid = _PID.search(rest)
    name = _NAME.search(rest)
    process = name[1].strip() if name else None
    caused = _CAUSED.search(rest)
    return Found(
        kind="xid" if match["xid"] else "sxid",
        code=int(match["code"]),
        pci=normal_address(match["bdf"]),
        pid=int(pid[1]) if pid else None,
        process=None if process in (None, "<unknown>", "'<unknown>'") else process,
        cause_of=int(caused[1]) if caused else None,
        text=_trim(rest.lstrip(", ")),
        mig={f"mig_{kind.lower()}": int(number) for kind, number in _MIG.findall(match["mig"])},
    )


def _trim(text: str) -> str:
    return " ".join(text.split())[:MAX_TEXT]


def uuid_pair(text: str) -> tuple[str, str] | None:
    """(PCI address, GPU UUID) of the line that the driver logs once before a GPU's first XID."""
    if "GPU at" not in text:
        return None
    match = _PAIR.search(text)
    return (normal_address(match["bdf"]), match["uuid"].replace("gpu-", "GPU-")) if match else None


def repeats_as(text: str) -> str:
    """The text without what differs between two lines that say the same: numbers, process names."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", re.sub(r"name=[^,]+", "name=", text.lower()))
