"""What is known of each node: who it is, when it was last heard, which GPUs it has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from detectord.core.model import Birth, Report, Subject, SubjectKind


@dataclass(slots=True)
class Node:
    """``index`` is its place in the fleet's arrays. ``misses`` counts, for a GPU, reports in a row that lacked it;
    ``unread`` those in which it could not be read."""

    name: str
    index: int
    session: int = -1
    boot_id: str = ""
    sequence: int = -1
    online: bool = True
    born: bool = False
    stopped: float | None = None
    by_address: dict[str, Subject] = field(default_factory=dict)
    labels: dict[Subject, dict[str, str]] = field(default_factory=dict)
    misses: dict[Subject, int] = field(default_factory=dict)
    unread: dict[Subject, int] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return Subject(self.name, SubjectKind.NODE, self.name)

    def born_as(self, birth: Birth) -> bool:
        """Take in a birth; true when the node has been rebooted since the last one."""
        rebooted = self.boot_id not in ("", birth.boot_id)
        self.session, self.boot_id, self.born, self.online, self.stopped = (
            birth.session,
            birth.boot_id,
            True,
            True,
            None,
        )
        self.sequence = -1
        gpus = {item.subject: item.labels for item in birth.inventory if item.subject.node == self.name}
        # A GPU that is missing at a re-birth of the same boot is still owed; after a reboot the inventory is the truth.
        self.labels = gpus if rebooted else {**self.labels, **gpus}
        self.by_address = {
            labels["pci"]: subject
            for subject, labels in self.labels.items()
            if subject.kind is SubjectKind.GPU and "pci" in labels
        }
        return rebooted

    def fresh(self, report: Report) -> str:
        """Empty when the report is news, otherwise why it is not."""
        if report.session < self.session:
            return "old-session"
        if report.session == self.session and report.sequence <= self.sequence:
            return "duplicate-report"
        self.session, self.sequence = report.session, report.sequence
        return ""

    def gpus(self) -> list[Subject]:
        return [subject for subject in self.labels if subject.kind is SubjectKind.GPU]


class Fleet:
    """All nodes, with the times that silence is judged by as arrays of shape (nodes,)."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._order: list[Node] = []
        self._heard = np.full(64, np.inf)
        self._patience = np.full(64, np.inf)

    def __len__(self) -> int:
        return len(self._order)

    def get(self, name: str, now: float) -> Node:
        if name not in self.nodes:
            index = len(self._order)
            if index == len(self._heard):
                more = np.full(index, np.inf)
                self._heard, self._patience = np.append(self._heard, more), np.append(self._patience, more)
            self.nodes[name] = Node(name, index)
            self._order.append(self.nodes[name])
            self._heard[index] = now
        return self.nodes[name]

    def hear(self, node: Node, now: float) -> None:
        self._heard[node.index] = now

    def expect(self, node: Node, patience: float) -> None:
        """From now on the node may be silent for ``patience`` seconds."""
        self._patience[node.index] = patience

    def times(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return self._heard[: len(self)], self._patience[: len(self)]

    def at(self, index: int) -> Node:
        return self._order[index]
