"""The nouns of detectord, frozen.

Times are seconds since the Unix epoch by the clock of the node that took the value, unless a field says
otherwise. Nothing in here reads a clock, a file or a socket.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

Scalar: TypeAlias = str | int | float | bool
Detail: TypeAlias = dict[str, Scalar]


class SubjectKind(enum.StrEnum):
    NODE = "node"
    GPU = "gpu"
    MOUNT = "mount"
    PORT = "port"
    SWITCH = "switch"


class Subject(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Something that can fail. A GPU's id is its UUID, or ``pci:0000:3b:00.0`` while the UUID is unknown;
    a mount's id is its mount point; a node's id is its own name; a switch's id is ``pci:`` and its address."""

    node: str
    kind: SubjectKind
    id: str


class MetricKind(enum.StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Compare(enum.StrEnum):
    """With what a value may be compared."""

    NOTHING = "nothing"
    PEERS = "peers"
    PAST = "past"
    BOTH = "both"


class Bad(enum.StrEnum):
    """Which direction is bad."""

    HIGH = "high"
    LOW = "low"
    EITHER = "either"
    NONE = "none"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number a signal yields. ``name`` ends in its unit; ``step`` is the smallest difference that matters."""

    name: str
    help: str
    kind: MetricKind = MetricKind.GAUGE
    compare: Compare = Compare.NOTHING
    bad: Bad = Bad.NONE
    step: float = 0.0


class Status(enum.StrEnum):
    """How a look ended. None of these is zero, and none is absence."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    LATE = "late"


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """How one question of one signal about one subject went. ``took`` is in seconds."""

    signal: str
    subject: Subject
    question: str
    status: Status
    took: float = 0.0
    error: str = ""


class FaultClass(enum.StrEnum):
    GPU = "gpu"
    GPU_MEMORY = "gpu-memory"
    NVLINK = "nvlink"
    PCIE = "pcie"
    THERMAL = "thermal"
    POWER = "power"
    DRIVER = "driver"
    SOFTWARE = "software"
    STORAGE = "storage"
    NETWORK = "network"
    HOST = "host"
    SILENT = "silent"


class Severity(enum.IntEnum):
    INFO = 0
    WARNING = 1
    ERROR = 2
    CRITICAL = 3


class Action(enum.StrEnum):
    """What to do, from the mildest to the gravest. Only the last four may take a node out of service."""

    NONE = "none"
    INVESTIGATE = "investigate"
    RESTART_APP = "restart-app"
    UPDATE_SOFTWARE = "update-software"
    RESET = "reset"
    REBOOT = "reboot"
    DRAIN = "drain"
    REPLACE = "replace"


EXCLUDING_ACTIONS = frozenset({Action.RESET, Action.REBOOT, Action.DRAIN, Action.REPLACE})


class Role(enum.StrEnum):
    """What a piece of evidence is: only a cause may exclude a node."""

    CAUSE = "cause"
    SYMPTOM = "symptom"
    APPLICATION = "application"
    NOTICE = "notice"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a signal says an event or a crossed limit means. ``fault`` names the fault in a stable short form
    (``xid-79``); ``immediate`` and ``investigate`` are the vendor's own words for what to do."""

    fault: str
    title: str
    fault_class: FaultClass
    severity: Severity
    action: Action
    role: Role = Role.CAUSE
    cause_of: str = ""
    immediate: str = ""
    investigate: str = ""


class Provenance(enum.StrEnum):
    KERNEL = "kernel"
    DRIVER = "driver"
    AGENT = "agent"
    INJECTED = "injected"
    REPLAYED = "replayed"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened once (or ``count`` times in a row).

    (``node``, ``boot_id``, ``sequence``, ``part``) identifies it for ever: ``sequence`` is the kernel record's
    number, or for events of the agent's own the spool's; ``part`` tells several events of one record apart.
    ``at`` is when it happened and ``seen`` when the agent read it, both by the node's clock.
    """

    node: str
    boot_id: str
    sequence: int
    subject: Subject
    kind: str
    at: float
    seen: float
    part: str = ""
    severity: Severity = Severity.INFO
    detail: Detail = {}
    provenance: Provenance = Provenance.KERNEL
    count: int = 1

    @property
    def key(self) -> str:
        return f"{self.node}/{self.boot_id}/{self.sequence}/{self.part}"


class MetricSet(msgspec.Struct, frozen=True):
    """The columns of a block: ``id`` is a hash of the names, see ``wire.metric_set``."""

    id: str
    kind: SubjectKind
    metrics: tuple[Metric, ...]


class Item(msgspec.Struct, frozen=True):
    """One subject of the inventory and its labels: for a GPU ``pci``, ``index``, ``model``, ``serial``."""

    subject: Subject
    labels: dict[str, str] = {}


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Values of all subjects of a kind, shape (len(subjects), len(metrics)), row by row, as little-endian
    float64; NaN where there is no value (``Report.readings`` says why)."""

    kind: SubjectKind
    metric_set: str
    subjects: tuple[str, ...]
    values: bytes


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """Said once a session, retained: who speaks, and in which columns. ``readings`` holds what this node cannot
    be watched for (unsupported)."""

    node: str
    session: int
    boot_id: str
    at: float
    interval: float
    version: str
    metric_sets: tuple[MetricSet, ...] = ()
    inventory: tuple[Item, ...] = ()
    limits: dict[str, float] = {}
    readings: tuple[Reading, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One round of an agent. ``sequence`` counts rounds within a session; ``jobs`` maps a GPU's id to its job."""

    node: str
    session: int
    boot_id: str
    sequence: int
    at: float
    blocks: tuple[Block, ...] = ()
    readings: tuple[Reading, ...] = ()
    jobs: dict[str, str] = {}


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Online at connect, offline as the last will (``reason`` "will") or on a clean stop (``reason`` "stop")."""

    node: str
    session: int
    online: bool
    reason: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for an incident. For an event ``value`` is its count; for a limit the value seen, beside
    ``expected`` in words. ``judge`` names who said so."""

    at: float
    judge: str
    subject: Subject
    verdict: Verdict
    text: str
    metric: str = ""
    value: float = 0.0
    expected: str = ""
    detail: Detail = {}
    provenance: Provenance = Provenance.KERNEL


class IncidentState(enum.StrEnum):
    OPEN = "open"
    RECOVERING = "recovering"
    CLOSED = "closed"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator reads. ``subjects[0]`` is where the fault is; ``labels`` are that subject's labels."""

    id: str
    node: str
    subjects: tuple[Subject, ...]
    fault: str
    title: str
    fault_class: FaultClass
    severity: Severity
    action: Action
    role: Role
    state: IncidentState
    opened: float
    updated: float
    closed: float | None = None
    count: int = 1
    confidence: float = 1.0
    provenance: Provenance = Provenance.KERNEL
    evidence: tuple[Evidence, ...] = ()
    labels: dict[str, str] = {}
    closing: str = ""
    immediate: str = ""
    investigate: str = ""


class Change(enum.StrEnum):
    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """That a node be taken out of service, why, and until when the advice holds. ``withheld`` says why a wish
    to exclude is not advice (the cap); empty when the advice stands."""

    node: str
    action: Action
    because: tuple[str, ...]
    incidents: tuple[str, ...]
    since: float
    expires: float
    owner: str = "detectord"
    withheld: str = ""


class Exclusions(msgspec.Struct, frozen=True, kw_only=True):
    """All advice that stands and all that was withheld, at a time, with the cap that was applied."""

    at: float
    cap_nodes: int
    fleet_nodes: int
    exclude: tuple[Advice, ...] = ()
    withheld: tuple[Advice, ...] = ()


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What goes to a sink. ``id`` is stable over retries: incident id, change and number of the change."""

    id: str
    change: Change
    at: float
    incident: Incident
    advice: Advice | None = None
