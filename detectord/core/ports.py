"""The seams: what the pure parts ask of the world, and what a plugin gives.

A signal is a module of ``detectord.signals`` with one of two constants at its top level: ``SIGNAL`` (a ``Signal``)
or ``LOG_SIGNAL`` (a ``LogSignal``). A sink, a transport and a store are classes that fit the protocols below.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from detectord.core.model import (
    Advice,
    Alert,
    Change,
    Event,
    Exclusions,
    Incident,
    Item,
    Metric,
    Scalar,
    Status,
    Subject,
    SubjectKind,
    Verdict,
)


# ---- reading -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class FileQuestion:
    """The bytes of a file below the host's root, such as ``proc/self/mountstats``."""

    path: str


@dataclass(frozen=True, slots=True)
class NvmlQuestion:
    """One call of pynvml on a device's handle: ``function(handle, *args)``. The answer is a number, a text, a
    tuple or a mapping of field names to numbers (a structure)."""

    function: str
    args: tuple[int, ...] = ()


Question: TypeAlias = FileQuestion | NvmlQuestion
Value: TypeAlias = "bytes | float | int | str | tuple[Value, ...] | dict[str, Value]"


@dataclass(frozen=True, slots=True)
class Answer:
    """``value`` is None unless ``status`` is ok. ``took`` is in seconds."""

    status: Status
    value: Value | None = None
    took: float = 0.0
    error: str = ""


Answers: TypeAlias = Mapping[Question, Answer]


class Per(enum.StrEnum):
    """Of whom a signal's questions are asked."""

    NODE = "node"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Row:
    subject: Subject
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """A certainty about one metric: inside [low, high] the verdict holds. With ``rises`` the rise of a counter
    since the previous report is looked at instead of its value. ``clears`` says the incident may close when the
    value has left the range (a latch is closed by an operator or a reboot)."""

    metric: str
    verdict: Verdict
    low: float = float("-inf")
    high: float = float("inf")
    rises: bool = False
    clears: bool = True


class Signal(Protocol):
    """How to read, what it yields, which limits are certain. Reads nothing itself: it asks, then understands.

    ``rows`` gets the answers to ``questions`` about ``subject`` (the node, or one GPU when ``per`` is GPU) and
    gives one row for each subject it has learned of; a value that could not be had is NaN. It raises
    ``InputError`` when an answer cannot be understood at all.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> SubjectKind: ...
    @property
    def per(self) -> Per: ...
    @property
    def metrics(self) -> tuple[Metric, ...]: ...
    @property
    def limits(self) -> tuple[Limit, ...]: ...
    @property
    def questions(self) -> tuple[Question, ...]: ...
    def rows(self, subject: Subject, answers: Answers) -> Iterable[Row]: ...


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of the kernel log. ``at`` is wall time in seconds; ``from_kernel`` is false when a process wrote
    it (facility other than 0)."""

    boot_id: str
    sequence: int
    at: float
    text: str
    priority: int = 4
    from_kernel: bool = True


@dataclass(frozen=True, slots=True)
class Observation:
    """What a log signal found in a record. ``device`` is a PCI address ``0000:3b:00.0`` or empty for the node;
    ``repeat`` is equal for lines that say the same thing again."""

    kind: str
    subject_kind: SubjectKind
    device: str
    repeat: str
    detail: dict[str, Scalar] = field(default_factory=dict)


class LogSignal(Protocol):
    """Finds observations in kernel-log records, and says what the events made of them mean."""

    @property
    def name(self) -> str: ...
    @property
    def kinds(self) -> frozenset[str]: ...
    def observe(self, record: LogRecord) -> Iterable[Observation]: ...
    def verdict(self, event: Event) -> Verdict: ...


class Host(Protocol):
    """A machine. ``ask`` never raises for what a question runs into: that is in the answer."""

    async def ask(self, subject: Subject, questions: Sequence[Question], deadline: float) -> Answers: ...
    async def inventory(self) -> Sequence[Item]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that were overwritten before they could be read, or lines that were no records."""

    count: int
    reason: str
    boot_id: str
    after: int


class KernelLog(Protocol):
    """Records in order, each once; ends only when closed."""

    def records(self) -> AsyncIterator[LogRecord | Lost]: ...
    async def close(self) -> None: ...


# ---- moving --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    payload: bytes
    retain: bool = False
    qos: int = 0
    expiry: int | None = None


class Transport(Protocol):
    """``publish`` raises ``UnavailableError`` when the message could not be handed over."""

    async def publish(self, message: Message) -> None: ...
    def messages(self) -> AsyncIterator[Message]: ...


# ---- deciding ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class IncidentChanged:
    """``number`` counts the changes of this incident; ``notify`` is false for changes nobody is to be told of."""

    change: Change
    incident: Incident
    number: int
    notify: bool
    advice: Advice | None = None


@dataclass(frozen=True, slots=True)
class ExclusionsChanged:
    exclusions: Exclusions


@dataclass(frozen=True, slots=True)
class EventKept:
    event: Event
    delay: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was not believed; ``reason`` is a short word for a counter's label."""

    node: str
    reason: str
    detail: str


Effect: TypeAlias = IncidentChanged | ExclusionsChanged | EventKept | Refused


# ---- keeping and telling -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outgoing:
    """One alert on its way to one sink. ``body`` is sent as it is; ``tries`` counts attempts so far."""

    id: str
    sink: str
    body: bytes
    created: float
    due: float
    tries: int = 0


class Outcome(enum.StrEnum):
    DELIVERED = "delivered"
    RETRY = "retry"
    REJECTED = "rejected"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Delivery:
    """``after`` is the wait in seconds that the receiver asked for (Retry-After)."""

    outcome: Outcome
    reason: str = ""
    after: float | None = None


@runtime_checkable
class Sink(Protocol):
    """``render`` is pure and None when this alert is not for this sink. ``deliver`` never raises for what the
    receiver does: that is in the delivery."""

    @property
    def name(self) -> str: ...
    def render(self, alert: Alert) -> bytes | None: ...
    async def deliver(self, outgoing: Outgoing, now: float) -> Delivery: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Saved:
    """What a scorer takes up again after a restart. ``event_keys`` are the most recent, oldest first."""

    incidents: tuple[tuple[Incident, int], ...] = ()
    event_keys: tuple[str, ...] = ()
    exclusions: Exclusions | None = None


class Store(Protocol):
    """One writer. ``save`` is one transaction: after it returns, all of it outlives a kill -9."""

    def load(self) -> Saved: ...
    def save(self, effects: Sequence[Effect], outgoing: Sequence[Outgoing]) -> None: ...
    def due(self, sink: str, now: float, limit: int) -> list[Outgoing]: ...
    def settle(self, outgoing: Outgoing, delivery: Delivery, next_due: float | None) -> None: ...
    def incidents(self, *, open_only: bool, limit: int) -> list[Incident]: ...
    def prune(self, now: float) -> None: ...
    def close(self) -> None: ...
