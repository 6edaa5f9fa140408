from __future__ import annotations

import math
import struct

import msgspec
import pytest

from detectord.core import wire
from detectord.core.errors import WireError
from detectord.core.model import Birth, Block, Event, Metric, NodeStatus, Report, Subject, SubjectKind

GPU = SubjectKind.GPU


def report_of(gpus: int = 8, width: int = 40) -> Report:
    def block(kind: SubjectKind, names: list[str], columns: int) -> Block:
        metrics = wire.metric_set(kind, [Metric(name=f"{kind}_metric_{i}_ratio", help="") for i in range(columns)])
        return wire.block(metrics, [(name, [float(i) for i in range(columns)]) for name in names])

    uuids = [f"GPU-{i:08x}-0000-0000-0000-000000000000" for i in range(gpus)]
    blocks = (
        block(GPU, uuids, width),
        block(SubjectKind.MOUNT, [f"/mnt/checkpoints-{i}" for i in range(5)], 40),
        block(SubjectKind.NODE, ["node-0001"], 30),
    )
    return Report(
        node="node-0001", session=3, boot_id="b", sequence=7, at=1.5, blocks=blocks, jobs=dict.fromkeys(uuids, "1234")
    )


def test_a_report_of_eight_gpus_with_forty_metrics_stays_under_six_kilobytes() -> None:
    assert len(wire.encode(report_of())) < 6000


def test_every_kind_of_message_survives_the_wire() -> None:
    event = Event(
        node="n", boot_id="b", sequence=1, subject=Subject("n", GPU, "GPU-1"), kind="xid", at=1.0, seen=2.0,
        detail={"code": 79, "text": "off the bus", "ratio": 0.5, "solo": True},
    )  # fmt: skip
    birth = Birth(node="n", session=1, boot_id="b", at=1.0, interval=5.0, version="0")
    for message in (report_of(), event, birth, NodeStatus(node="n", session=1, online=True)):
        assert wire.decode(wire.topic("c", message), wire.encode(message)) == message


def test_unknown_fields_are_ignored() -> None:
    payload = msgspec.msgpack.encode({"node": "n", "session": 1, "online": True, "added_later": [1]})
    assert wire.decode("detectord/v1/c/n/status", payload) == NodeStatus(node="n", session=1, online=True)


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("detectord/v1/c/n/report", b"\xff\x00garbage", "malformed"),
        ("detectord/v1/c/n/report", b"", "malformed"),
        ("detectord/v2/c/n/report", b"", "version"),
        ("detectord/v1/c/n/nonsense", b"", "topic"),
        ("other/v1/c/n/report", b"", "topic"),
        ("detectord/v1/c/_scorer/report", b"", "topic"),
        ("detectord/v1/c/n/report", b"\x00" * (wire.MAX_BYTES + 1), "size"),
        ("detectord/v1/c/other/report", wire.encode(report_of()), "node"),
    ],
)
def test_what_is_not_as_its_topic_promises_is_refused_with_a_reason(topic: str, payload: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.decode(topic, payload)
    assert caught.value.reason == reason


def test_times_that_are_no_numbers_and_blocks_of_a_wrong_size_are_refused() -> None:
    good = report_of()
    torn = msgspec.structs.replace(good.blocks[0], values=good.blocks[0].values[:-3])
    for bad in (
        msgspec.structs.replace(good, at=math.nan),
        msgspec.structs.replace(good, at=math.inf),
        msgspec.structs.replace(good, blocks=(torn,)),
    ):
        with pytest.raises(WireError):
            wire.decode(wire.topic("c", bad), wire.encode(bad))


def test_a_block_packs_row_by_row_and_refuses_a_row_of_another_width() -> None:
    columns = wire.metric_set(GPU, [Metric(name="a_celsius", help=""), Metric(name="b_watts", help="")])
    packed = wire.block(columns, [("x", [1.0, 2.0]), ("y", [3.0, 4.0])])
    assert struct.unpack("<4d", packed.values) == (1.0, 2.0, 3.0, 4.0)
    with pytest.raises(ValueError):
        wire.block(columns, [("x", [1.0])])
