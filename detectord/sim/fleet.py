"""A fleet of B200 nodes as its agents would report it: inventory, values and kernel lines, in virtual time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from detectord.core import wire
from detectord.core.model import Birth, Block, Item, MetricSet, NodeStatus, Report, Subject, SubjectKind
from detectord.core.ports import Signal
from detectord.sim.faults import Effect
from detectord.sim.scenario import Injection, Scenario

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class SimNode:
    """One node: ``gone`` GPUs have left the bus, ``stopped`` ones do no work, ``mute`` nodes say nothing."""

    name: str
    uuids: tuple[str, ...]
    addresses: tuple[str, ...]
    session: int = 1
    boots: int = 0
    sequence: int = 0
    kernel_sequence: int = 0
    mute: bool = False
    gone: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)

    @property
    def boot_id(self) -> str:
        return hashlib.md5(f"{self.name}/{self.boots}".encode(), usedforsecurity=False).hexdigest()

    def inventory(self) -> tuple[Item, ...]:
        return tuple(
            Item(
                Subject(self.name, SubjectKind.GPU, uuid),
                {"pci": address + ".0", "index": str(index), "model": "NVIDIA B200", "serial": f"165{uuid[4:12]}"},
            )
            for index, (uuid, address) in enumerate(zip(self.uuids, self.addresses, strict=True))
            if index not in self.gone
        )


class Fleet:
    """All nodes and what they would say. Values come from a physical picture that knows nothing of any judge."""

    def __init__(self, scenario: Scenario, signals: Sequence[Signal]) -> None:
        self.scenario = scenario
        self._rng = np.random.default_rng([scenario.seed, 1])
        kinds = (SubjectKind.GPU, SubjectKind.NODE)
        self.columns: dict[SubjectKind, MetricSet] = {
            kind: wire.metric_set(
                kind, [metric for signal in signals if signal.kind is kind for metric in signal.metrics]
            )
            for kind in kinds
        }
        self.nodes = [self._node(index) for index in range(scenario.nodes)]
        shape = (scenario.nodes, scenario.gpus)
        self._cooling = self._rng.normal(0.0, 2.0, shape) + np.linspace(-1.5, 1.5, scenario.gpus)
        self._draw = self._rng.normal(0.0, 12.0, shape)
        self._interrupts = self._rng.uniform(8000, 12000, scenario.nodes)

    def _node(self, index: int) -> SimNode:
        uuids = []
        for gpu in range(self.scenario.gpus):
            text = hashlib.md5(f"{self.scenario.seed}/{index}/{gpu}".encode(), usedforsecurity=False).hexdigest()
            uuids.append(f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
        addresses = tuple(f"0000:{0x1B + 0x11 * gpu:02x}:00" for gpu in range(self.scenario.gpus))
        return SimNode(f"node-{index + 1:04d}", tuple(uuids), addresses)

    def birth(self, node: SimNode, at: float) -> Birth:
        return Birth(
            node=node.name,
            session=node.session,
            boot_id=node.boot_id,
            at=at,
            interval=self.scenario.interval,
            version="simulated",
            metric_sets=tuple(self.columns.values()),
            inventory=node.inventory(),
        )

    def apply(self, injection: Injection) -> None:
        """The GPU or node does what the fault makes it do."""
        node = self.nodes[injection.node]
        match injection.kind.effect:
            case Effect.LEAVES_THE_BUS:
                node.gone.add(injection.gpu)
            case Effect.STOPS_WORKING:
                node.stopped.add(injection.gpu)
            case Effect.NODE_GOES_SILENT:
                node.mute = True
            case Effect.KEEPS_RUNNING:
                pass

    def reboot(self, node: SimNode) -> NodeStatus:
        """Everything works again after a reboot; gives the farewell of the session that ends."""
        farewell = NodeStatus(node=node.name, session=node.session, online=False, reason="stop")
        node.gone.clear()
        node.stopped.clear()
        node.mute = False
        node.boots += 1
        node.session += 1
        node.sequence = node.kernel_sequence = 0
        return farewell

    def reports(self, at: float) -> Iterator[tuple[SimNode, Report]]:
        """One report of each node that still speaks, taken around ``at``."""
        gpu_values = self._gpu_values(at)
        node_values = self._node_values(at)
        gpus, host = self.columns[SubjectKind.GPU], self.columns[SubjectKind.NODE]
        for index, node in enumerate(self.nodes):
            if node.mute:
                continue
            node.sequence += 1
            present = [gpu for gpu in range(self.scenario.gpus) if gpu not in node.gone]
            yield (
                node,
                Report(
                    node=node.name,
                    session=node.session,
                    boot_id=node.boot_id,
                    sequence=node.sequence,
                    at=at,
                    blocks=(
                        _block(gpus, [node.uuids[gpu] for gpu in present], gpu_values[index, present]),
                        _block(host, [node.name], node_values[index : index + 1]),
                    ),
                    jobs={node.uuids[gpu]: "pretraining" for gpu in present},
                ),
            )

    def _gpu_values(self, at: float) -> Floats:
        """Shape (nodes, gpus, metrics). A metric this picture does not know is NaN."""
        shape = (self.scenario.nodes, self.scenario.gpus)
        since = at - self.scenario.start
        saving = since % 1800 < 60
        load = np.full(shape, 0.12 if saving else 0.97) + self._rng.normal(0, 0.01, shape)
        for row, node in enumerate(self.nodes):
            load[row, list(node.stopped)] = 0.0
        load = load.clip(0.0, 1.0)
        power = 190 + 760 * load + self._draw + self._rng.normal(0, 6, shape)
        room = 24 + 2.5 * np.sin(2 * np.pi * since / 86400)
        core = room + 0.042 * power + self._cooling + self._rng.normal(0, 0.4, shape)
        zero = np.zeros(shape)
        known = {
            "gpu_core_temperature_celsius": core,
            "gpu_memory_temperature_celsius": core + 6 + self._rng.normal(0, 0.5, shape),
            "gpu_power_watts": power,
            "gpu_power_limit_watts": np.full(shape, 1000.0),
            "gpu_utilisation_ratio": load,
            "gpu_memory_utilisation_ratio": 0.6 * load,
            "gpu_memory_used_bytes": np.full(shape, 165e9),
            "gpu_memory_total_bytes": np.full(shape, 192e9),
            "gpu_sm_clock_hertz": np.where(load > 0.05, 1.87e9, 1.2e8),
            "gpu_memory_clock_hertz": np.full(shape, 3.996e9),
            "gpu_recovery_action_code": zero,
        }
        unknown = np.full(shape, np.nan)
        return _columns(self.columns[SubjectKind.GPU], known, unknown)

    def _node_values(self, at: float) -> Floats:
        since = at - self.scenario.start
        known = {
            "node_interrupts_total": self._interrupts * since,
            "node_context_switches_total": 3 * self._interrupts * since,
            "node_uptime_seconds": np.full(self.scenario.nodes, 40 * 86400.0 + since),
        }
        unknown = np.full(self.scenario.nodes, np.nan)
        return _columns(self.columns[SubjectKind.NODE], known, unknown)


def _columns(columns: MetricSet, known: dict[str, Floats], unknown: Floats) -> Floats:
    if not columns.metrics:
        return np.empty((*unknown.shape, 0))
    return np.stack([known.get(metric.name, unknown) for metric in columns.metrics], axis=-1)


def _block(columns: MetricSet, subjects: Sequence[str], values: Floats) -> Block:
    return Block(
        kind=columns.kind,
        metric_set=columns.id,
        subjects=tuple(subjects),
        values=np.ascontiguousarray(values, dtype="<f8").tobytes(),
    )
