"""MessagePack on MQTT topics: ``detectord/v1/<cluster>/<node>/{birth,report,event,status}``.

The scorer speaks under ``detectord/v1/<cluster>/_scorer/{alert,exclusions}`` and acknowledges stored events under
``.../_scorer/received/<node>``. Decoding never trusts: a topic of another version, a node that is not its topic's,
a block whose size does not fit its columns are a ``WireError`` with a reason.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from detectord.core.errors import WireError
from detectord.core.model import Birth, Block, Event, Metric, MetricSet, NodeStatus, Report, SubjectKind

VERSION: Final = "v1"
MAX_BYTES: Final = 1 << 20
SCORER: Final = "_scorer"
NodeMessage: TypeAlias = Birth | Report | Event | NodeStatus

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[str, msgspec.msgpack.Decoder[NodeMessage]] = {
    "birth": msgspec.msgpack.Decoder(Birth),
    "report": msgspec.msgpack.Decoder(Report),
    "event": msgspec.msgpack.Decoder(Event),
    "status": msgspec.msgpack.Decoder(NodeStatus),
}
_channels: dict[type, str] = {Birth: "birth", Report: "report", Event: "event", NodeStatus: "status"}


class Received(msgspec.Struct, frozen=True):
    """The scorer's word that it has stored these events; ``keys`` are ``Event.key``."""

    keys: tuple[str, ...]


_received = msgspec.msgpack.Decoder(Received)


def topic(cluster: str, message: NodeMessage) -> str:
    return f"detectord/{VERSION}/{cluster}/{message.node}/{_channels[type(message)]}"


def scorer_topic(cluster: str, *parts: str) -> str:
    return "/".join(("detectord", VERSION, cluster, SCORER, *parts))


def encode(message: NodeMessage | Received) -> bytes:
    return _encoder.encode(message)


def decode_received(payload: bytes) -> Received:
    try:
        return _received.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise WireError("malformed", f"not a receipt: {error}") from error


def decode(topic: str, payload: bytes) -> NodeMessage:
    """Read a node's message, or raise ``WireError`` with reason ``topic``, ``version``, ``size``, ``malformed``,
    ``node`` or ``value``."""
    parts = topic.split("/")
    if len(parts) != 5 or parts[0] != "detectord":
        raise WireError("topic", f"{topic!r} is not a topic of detectord")
    _, version, _, node, channel = parts
    if version != VERSION:
        raise WireError("version", f"{topic!r} speaks {version}, this scorer {VERSION}; upgrade the older one")
    decoder = _decoders.get(channel)
    if decoder is None or node == SCORER:
        raise WireError("topic", f"{topic!r} is no channel of a node")
    if len(payload) > MAX_BYTES:
        raise WireError("size", f"{len(payload)} bytes on {topic!r}, at most {MAX_BYTES}")
    try:
        message = decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError("malformed", f"{topic!r}: {error}") from error
    if message.node != node:
        raise WireError("node", f"{topic!r} carries a message of node {message.node!r}")
    _check(message)
    return message


def _check(message: NodeMessage) -> None:
    match message:
        case Event():
            if message.subject.node != message.node:
                raise WireError("node", f"event of {message.node!r} about node {message.subject.node!r}")
            if not (math.isfinite(message.at) and math.isfinite(message.seen)) or message.count < 1:
                raise WireError("value", f"event {message.key}: time or count is no sane number")
        case Report():
            if not math.isfinite(message.at):
                raise WireError("value", f"report of {message.node!r}: time is no number")
            for block in message.blocks:
                if len(block.values) % 8 or (block.subjects and len(block.values) % (8 * len(block.subjects))):
                    raise WireError("size", f"block {block.kind} of {message.node!r}: {len(block.values)} bytes")
        case Birth():
            if not math.isfinite(message.at) or not 0 < message.interval < 86400:
                raise WireError("value", f"birth of {message.node!r}: time or interval is no sane number")
        case NodeStatus():
            pass


def metric_set(kind: SubjectKind, metrics: Sequence[Metric]) -> MetricSet:
    """The same names in the same order are the same set, on every node and in every version."""
    text = "\n".join((kind.value, *(metric.name for metric in metrics)))
    return MetricSet(hashlib.sha256(text.encode()).hexdigest()[:12], kind, tuple(metrics))


def block(columns: MetricSet, rows: Iterable[tuple[str, Sequence[float]]]) -> Block:
    """Pack rows of (subject id, one value a column)."""
    width = len(columns.metrics)
    subjects: list[str] = []
    values: list[float] = []
    for subject, row in rows:
        if len(row) != width:
            raise ValueError(f"{subject}: {len(row)} values for {width} columns")
        subjects.append(subject)
        values.extend(row)
    packed = struct.pack(f"<{len(values)}d", *values)
    return Block(kind=columns.kind, metric_set=columns.id, subjects=tuple(subjects), values=packed)
