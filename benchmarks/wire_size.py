"""Size of a report and the time to decode it to arrays."""

from __future__ import annotations

import timeit

import numpy as np

from detectord.core import wire
from detectord.core.model import Block, Metric, Report, SubjectKind


def report() -> Report:
    """8 GPUs of 40 metrics, 5 mounts of 40, the node with 30."""
    shapes = (
        (SubjectKind.GPU, [f"GPU-{i:08x}-0000-0000-0000-000000000000" for i in range(8)], 40),
        (SubjectKind.MOUNT, [f"/mnt/checkpoints-{i}" for i in range(5)], 40),
        (SubjectKind.NODE, ["node-0001"], 30),
    )
    blocks: list[Block] = []
    for kind, names, width in shapes:
        columns = wire.metric_set(kind, [Metric(name=f"{kind}_{i}_ratio", help="") for i in range(width)])
        blocks.append(wire.block(columns, [(name, [float(i) for i in range(width)]) for name in names]))
    return Report(node="node-0001", session=1, boot_id="b" * 36, sequence=1, at=1.8e9, blocks=tuple(blocks))


def main() -> None:
    one = report()
    topic, payload = wire.topic("c", one), wire.encode(one)

    def decode() -> None:
        message = wire.decode(topic, payload)
        assert isinstance(message, Report)
        for block in message.blocks:
            np.frombuffer(block.values, "<f8").reshape(len(block.subjects), -1)

    runs = sorted(timeit.repeat(decode, number=2000, repeat=7))
    print(f"report size                      {len(payload):>8} bytes")
    print(f"decode to arrays, median of 7    {runs[3] / 2000 * 1e6:>8.1f} microseconds")
