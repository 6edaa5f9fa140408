"""The fleet as columns: for each kind of subject one matrix of the last values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from detectord.core.model import Block, MetricSet, Subject, SubjectKind

Floats = npt.NDArray[np.float64]


class Table:
    """Subjects by metrics; grows geometrically, so that memory is at most twice what the fleet needs."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.subjects: list[Subject] = []
        self._columns: dict[str, int] = {}
        self._rows: dict[Subject, int] = {}
        self._now = np.full((64, 16), np.nan)

    @property
    def values(self) -> Floats:
        return self._now[: len(self.subjects), : len(self.names)]

    def columns(self, names: tuple[str, ...]) -> npt.NDArray[np.intp]:
        for name in names:
            if name not in self._columns:
                self._columns[name] = len(self.names)
                self.names.append(name)
        self._fit()
        return np.array([self._columns[name] for name in names], dtype=np.intp)

    def rows(self, subjects: list[Subject]) -> npt.NDArray[np.intp]:
        for subject in subjects:
            if subject not in self._rows:
                self._rows[subject] = len(self.subjects)
                self.subjects.append(subject)
        self._fit()
        return np.array([self._rows[subject] for subject in subjects], dtype=np.intp)

    def put(self, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp], values: Floats) -> Floats:
        """Store ``values`` of shape (rows, columns); gives the values that were there before, of the same shape."""
        at = np.ix_(rows, columns)
        before = self._now[at]
        self._now[at] = values
        return before

    def _fit(self) -> None:
        height, width = self._now.shape
        if len(self.subjects) <= height and len(self.names) <= width:
            return
        while height < len(self.subjects):
            height *= 2
        while width < len(self.names):
            width *= 2
        grown = np.full((height, width), np.nan)
        grown[: self._now.shape[0], : self._now.shape[1]] = self._now
        self._now = grown


@dataclass(frozen=True, slots=True)
class Updated:
    """What a block has changed: ``values`` and ``before`` have the shape (subjects, names)."""

    subjects: tuple[Subject, ...]
    names: tuple[str, ...]
    values: Floats
    before: Floats
    infinite: int


@dataclass(slots=True)
class Panel:
    tables: dict[SubjectKind, Table] = field(default_factory=dict)
    _sets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def learn(self, columns: MetricSet) -> None:
        self._sets[columns.id] = tuple(metric.name for metric in columns.metrics)

    def update(self, node: str, block: Block) -> Updated | None:
        """Take in a block; None when nobody has said what its columns are, or its size does not fit them. An infinity
        is no measurement: it becomes NaN and is counted."""
        names = self._sets.get(block.metric_set)
        if names is None or len(block.values) != 8 * len(names) * len(block.subjects):
            return None
        values = np.frombuffer(block.values, dtype="<f8").reshape(len(block.subjects), len(names))
        infinite = int(np.isinf(values).sum())
        if infinite:
            values = np.where(np.isinf(values), np.nan, values)
        table = self.tables.setdefault(block.kind, Table())
        subjects = [Subject(node, block.kind, name) for name in block.subjects]
        before = table.put(table.rows(subjects), table.columns(names), values)
        return Updated(tuple(subjects), names, values, before, infinite)
