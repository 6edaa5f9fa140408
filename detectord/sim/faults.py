"""What can go wrong in a simulated fleet, as the kernel would tell of it.

A fault is a list of kernel lines with the seconds between them, and what becomes of the GPU. A nuisance is the
same, but nothing is broken: it must wake nobody. The lines are in the driver's print shapes; what a reader makes of
them is the reader's business.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Effect(enum.Enum):
    """What the GPU or node does after the lines."""

    KEEPS_RUNNING = "keeps running"
    STOPS_WORKING = "stops working"
    LEAVES_THE_BUS = "leaves the bus"
    NODE_GOES_SILENT = "node goes silent"


@dataclass(frozen=True, slots=True)
class Line:
    after: float
    text: str


@dataclass(frozen=True, slots=True)
class FaultKind:
    """``lines`` hold ``{pci}`` (``0000:1b:00``), ``{pid}`` and ``{link}``. ``harmless`` marks a nuisance."""

    name: str
    lines: tuple[Line, ...]
    effect: Effect
    harmless: bool = False


def _xid(after: float, rest: str) -> Line:
    return Line(after, "NVRM: Xid (PCI:{pci}): " + rest)


_PREEMPTED = _xid(0.4, "45, pid={pid}, name=python3, Ch 0000000b")

FAULTS: tuple[FaultKind, ...] = (
    FaultKind(
        "off-bus",
        (
            _xid(0.0, "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
            Line(0.0, "NVRM: GPU {pci}.0: GPU has fallen off the bus."),
            _xid(0.2, "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        ),
        Effect.LEAVES_THE_BUS,
    ),
    FaultKind(
        "uncontained-ecc",
        (
            _xid(0.0, "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected"),
            _xid(0.1, "95, pid={pid}, name=python3, Uncontained: LTC TAG. RST: Yes, D-RST: No"),
            _PREEMPTED,
            _xid(0.1, "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        ),
        Effect.STOPS_WORKING,
    ),
    FaultKind(
        "gsp-timeout",
        (
            _xid(0.0, "119, pid={pid}, name=python3, Timeout after 6s of waiting for RPC response from GPU GSP!"),
            _xid(6.0, "119, pid={pid}, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU GSP!"),
            _xid(0.5, "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        ),
        Effect.STOPS_WORKING,
    ),
    FaultKind(
        "nvlink-down",
        (
            _xid(
                0.0,
                "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link {link} "
                "(0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            ),
            _xid(0.1, "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"),
            _xid(0.3, "45, pid={pid}, name=python3, Ch 00000001 caused by previous Xid 149"),
        ),
        Effect.STOPS_WORKING,
    ),
    FaultKind(
        "remap-failure",
        (_xid(0.0, "64, pid='<unknown>', name=<unknown>, Row Remapper: failed to record a remapping entry"),),
        Effect.KEEPS_RUNNING,
    ),
    FaultKind(
        "microcontroller-halt",
        (_xid(0.0, "62, pid={pid}, name=python3, 20b4(2e64) 8503f1e6 1f2ae3c0"), _PREEMPTED),
        Effect.STOPS_WORKING,
    ),
    FaultKind(
        "context-switch-timeout",
        (
            _xid(0.0, "109, pid={pid}, name=python3, Ch 00000013, errorString CTX SWITCH TIMEOUT, Info 0x2c014"),
            _PREEMPTED,
        ),
        Effect.STOPS_WORKING,
    ),
    FaultKind("host-hang", (), Effect.NODE_GOES_SILENT),
)

NUISANCES: tuple[FaultKind, ...] = (
    FaultKind(
        "illegal-access",
        (
            _xid(
                0.0, "31, pid={pid}, name=python3, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 faulted"
            ),
            _xid(0.1, "43, pid={pid}, name=python3, Ch 0000000a"),
        ),
        Effect.KEEPS_RUNNING,
        harmless=True,
    ),
    FaultKind(
        "shader-exception",
        (
            _xid(0.0, "13, pid={pid}, name=python3, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range"),
            _PREEMPTED,
        ),
        Effect.KEEPS_RUNNING,
        harmless=True,
    ),
    FaultKind("preemptive-cleanup", (_PREEMPTED,), Effect.KEEPS_RUNNING, harmless=True),
)
