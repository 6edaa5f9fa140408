"""Kernel records become events: by the log signals, with the GPU's UUID, repeats counted instead of sent."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from detectord.core.model import Event, Item, Provenance, Severity, Subject, SubjectKind
from detectord.core.ports import LogRecord, LogSignal, Lost, Observation
from detectord.formats.nvrm import uuid_pair

WINDOW = 60.0
MOST_OPEN = 10_000


@dataclass(slots=True)
class _Repeat:
    """A line that has been sent; ``last`` is the newest of ``count`` repeats that have not."""

    until: float
    last: Event | None = None
    count: int = 0


class EventMaker:
    """``clock`` gives the node's time. Refused and lost records are counted in ``refused`` and ``lost``."""

    def __init__(
        self, node: str, signals: Sequence[LogSignal], clock: Callable[[], float], accept_injected: bool = False
    ) -> None:
        self._node, self._signals, self._clock, self._accept = node, signals, clock, accept_injected
        self._devices: dict[str, str] = {}
        self._open: OrderedDict[tuple[str, str, str, bool], _Repeat] = OrderedDict()
        self.refused: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def learn(self, inventory: Sequence[Item]) -> None:
        """Which UUID is at which PCI address."""
        for item in inventory:
            if item.subject.kind is SubjectKind.GPU and "pci" in item.labels:
                self._devices[item.labels["pci"]] = item.subject.id

    def take(self, record: LogRecord | Lost) -> list[Event]:
        """The events of one record that are news."""
        if isinstance(record, Lost):
            self.lost[record.reason] += record.count
            return [self._lost(record)]
        if record.from_kernel and (pair := uuid_pair(record.text)) is not None:
            self._devices[pair[0]] = pair[1]
        found = [one for signal in self._signals for one in signal.observe(record)]
        if found and not record.from_kernel and not self._accept:
            self.refused["injected"] += len(found)
            return []
        news = []
        for part, one in enumerate(found):
            event = self._event(record, one, str(part))
            key = (event.subject.id, one.kind, one.repeat, record.from_kernel)
            known = self._open.get(key)
            if known is not None and record.at < known.until:
                known.last, known.count = event, known.count + 1
                continue
            if known is not None and (late := self._summary(known)) is not None:
                news.append(late)
            self._open[key] = _Repeat(record.at + WINDOW)
            self._open.move_to_end(key)
            if len(self._open) > MOST_OPEN:
                _, oldest = self._open.popitem(last=False)
                if (late := self._summary(oldest)) is not None:
                    news.append(late)
            news.append(event)
        return news

    def tick(self, now: float) -> list[Event]:
        """Repeats whose minute is over, each as one event with its count."""
        over = [key for key, repeat in self._open.items() if repeat.until <= now]
        events = (self._summary(self._open.pop(key)) for key in over)
        return [event for event in events if event is not None]

    def flush(self) -> list[Event]:
        """All repeats, at the end."""
        return self.tick(float("inf"))

    def _summary(self, repeat: _Repeat) -> Event | None:
        return None if repeat.last is None else msgspec.structs.replace(repeat.last, count=repeat.count)

    def _event(self, record: LogRecord, one: Observation, part: str) -> Event:
        if one.device and one.subject_kind is SubjectKind.GPU:
            subject = Subject(self._node, one.subject_kind, self._devices.get(one.device, f"pci:{one.device}"))
        elif one.device:
            subject = Subject(self._node, one.subject_kind, f"pci:{one.device}")
        else:
            subject = Subject(self._node, SubjectKind.NODE, self._node)
        return Event(
            node=self._node,
            boot_id=record.boot_id,
            sequence=record.sequence,
            part=part,
            subject=subject,
            kind=one.kind,
            at=record.at,
            seen=self._clock(),
            detail=one.detail,
            provenance=Provenance.KERNEL if record.from_kernel else Provenance.INJECTED,
        )

    def _lost(self, lost: Lost) -> Event:
        now = self._clock()
        return Event(
            node=self._node,
            boot_id=lost.boot_id,
            sequence=lost.after,
            part=lost.reason,
            subject=Subject(self._node, SubjectKind.NODE, self._node),
            kind="log_lost",
            at=now,
            seen=now,
            severity=Severity.WARNING,
            detail={"count": lost.count, "reason": lost.reason},
            provenance=Provenance.AGENT,
        )
