"""One round: every signal asks about every subject, each on its own, and the answers become a report's blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from detectord.core import wire
from detectord.core.errors import InputError
from detectord.core.model import Block, Metric, MetricSet, Reading, Status, Subject, SubjectKind
from detectord.core.ports import Answer, Answers, Host, Per, Question, Row, Signal


@dataclass(frozen=True, slots=True)
class Round:
    """``readings`` are those that were not ok; ``unsupported`` is what this machine cannot be watched for."""

    blocks: tuple[Block, ...]
    readings: tuple[Reading, ...]
    unsupported: tuple[Reading, ...]


class Rounds:
    """The columns of each kind are the metrics of all its signals, in the order the signals were found."""

    def __init__(self, host: Host, signals: Sequence[Signal], node: str) -> None:
        self._host, self._signals = host, tuple(signals)
        self._node = Subject(node, SubjectKind.NODE, node)
        self.metric_sets: dict[SubjectKind, MetricSet] = {}
        self._offsets: dict[str, int] = {}
        for kind in SubjectKind:
            metrics: list[Metric] = []
            for signal in self._signals:
                if signal.kind is kind:
                    self._offsets[signal.name] = len(metrics)
                    metrics += signal.metrics
            if metrics:
                self.metric_sets[kind] = wire.metric_set(kind, metrics)

    async def take(self, gpus: Sequence[Subject], deadline: float) -> Round:
        """Ask about the node and each GPU at once; ``deadline`` is in seconds for each of them."""
        subjects = [(self._node, Per.NODE), *((gpu, Per.GPU) for gpu in gpus)]
        parts = await asyncio.gather(*(self._ask(subject, per, deadline) for subject, per in subjects))
        rows: dict[SubjectKind, dict[str, list[float]]] = {}
        readings: list[Reading] = []
        for (subject, per), answers in zip(subjects, parts, strict=True):
            for signal in self._signals:
                if signal.per is per:
                    readings += _readings(signal, subject, answers)
                    for row in self._rows(signal, subject, answers, readings):
                        self._put(rows, signal, row)
        blocks = tuple(
            wire.block(self.metric_sets[kind], sorted(values.items())) for kind, values in rows.items() if values
        )
        return Round(
            blocks,
            tuple(reading for reading in readings if reading.status is not Status.UNSUPPORTED),
            tuple(reading for reading in readings if reading.status is Status.UNSUPPORTED),
        )

    async def _ask(self, subject: Subject, per: Per, deadline: float) -> Answers:
        questions: list[Question] = []
        for signal in self._signals:
            if signal.per is per:
                questions += [question for question in signal.questions if question not in questions]
        return await self._host.ask(subject, questions, deadline) if questions else {}

    def _rows(self, signal: Signal, subject: Subject, answers: Answers, readings: list[Reading]) -> list[Row]:
        """A signal that cannot understand what it got has failed for this subject, and for nothing else."""
        mine: Mapping[Question, Answer] = {
            question: answers.get(question, Answer(Status.FAILED, error="not answered"))
            for question in signal.questions
        }
        try:
            return list(signal.rows(subject, mine))
        except (InputError, ValueError, TypeError, LookupError, ArithmeticError) as error:
            text = f"{type(error).__name__}: {error}"[:200]
            readings.append(Reading(signal.name, subject, "rows", Status.FAILED, error=text))
            return []

    def _put(self, rows: dict[SubjectKind, dict[str, list[float]]], signal: Signal, row: Row) -> None:
        width = len(self.metric_sets[signal.kind].metrics)
        values = rows.setdefault(signal.kind, {}).setdefault(row.subject.id, [float("nan")] * width)
        start = self._offsets[signal.name]
        values[start : start + len(row.values)] = row.values


def _readings(signal: Signal, subject: Subject, answers: Answers) -> list[Reading]:
    return [
        Reading(signal.name, subject, _name(question), answer.status, answer.took, answer.error[:200])
        for question in signal.questions
        if (answer := answers.get(question)) is not None and answer.status is not Status.OK
    ]


def _name(question: Question) -> str:
    return str(getattr(question, "path", "") or getattr(question, "function", ""))
