"""What is known of each XID, NVLink5 XID (144-150) and SXID. Source: NVIDIA's public catalogue of October 2025, as
facts in ``data/*.json``; an unknown code is unknown, not absent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from detectord.core.model import Scalar


class Xid(msgspec.Struct, frozen=True):
    """``immediate`` and ``investigate`` are NVIDIA's bucket names; ``hint`` is this project's grouping."""

    code: int
    name: str
    immediate: str = ""
    investigate: str = ""
    hint: str = "unknown"


class Sxid(msgspec.Struct, frozen=True):
    code: int
    name: str
    severity: str


class NvlinkRule(msgspec.Struct, frozen=True):
    """In ``intrinfo_v1`` (drivers before R575) and ``intrinfo_v2`` each character is one bit, the highest first."""

    xid: int
    unit: str
    intrinfo_v1: str
    intrinfo_v2: str
    error_status: str
    link_down_reason: int | None
    resolution: str
    investigatory: str
    severity: str
    local_effect: str


def _load(name: str) -> bytes:
    return resources.files("detectord.formats").joinpath(f"data/{name}.json").read_bytes()


@cache
def xids() -> Mapping[int, Xid]:
    return {entry.code: entry for entry in msgspec.json.decode(_load("xid"), type=list[Xid])}


@cache
def sxids() -> Mapping[int, Sxid]:
    return {entry.code: entry for entry in msgspec.json.decode(_load("sxid"), type=list[Sxid])}


@cache
def _rules() -> tuple[NvlinkRule, ...]:
    rows: list[dict[str, Any]] = json.loads(_load("nvlink5"))
    for row in rows:
        row["link_down_reason"] = int(row["link_down_reason"]) if row["link_down_reason"] not in (None, "") else None
    return tuple(msgspec.convert(row, NvlinkRule) for row in rows)


_FIELDS = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]+)\s+(?P<word>Fatal|Nonfatal|Non-fatal)\s+XC\s*(?P<xc>\d)\s+i\s*(?P<i>\d{1,4})\s+"
    r"Link\s+(?P<link>-?\d{1,4})\b\s*(?:[(\[](?P<data>[0-9a-fx\s]+))?",
    re.IGNORECASE,
)
_WORD = re.compile(r"\b0x([0-9a-f]{1,8})\b", re.IGNORECASE)


def nvlink_fields(code: int, text: str) -> dict[str, Scalar]:
    """unit, severity_word, link, intr_info, error_status and (149) link_down_reason of an NVLink5 XID's text; empty
    when the text is not of that form. ``injected_by_driver`` says that the driver was told to pretend."""
    match = _FIELDS.search(text)
    if match is None:
        return {}
    numbers = [int(word, 16) for word in _WORD.findall(match["data"] or "")]
    fields: dict[str, Scalar] = {
        "unit": match["unit"].upper(),
        "severity_word": "Fatal" if match["word"].lower() == "fatal" else "Nonfatal",
        "link": int(match["link"]),
        "cross_contained": match["xc"] == "1",
    }
    if match["i"] == "1":
        fields["injected_by_driver"] = True
    if numbers:
        fields["intr_info"] = numbers[0]
        if code == 149:
            fields["link_down_reason"] = numbers[0] >> 20 & 0x3F
    if len(numbers) > 1:
        fields["error_status"] = numbers[1]
    return fields


def nvlink_rule(code: int, fields: Mapping[str, Scalar], driver: str = "") -> NvlinkRule | None:
    """The rule for these fields, by unit, bits and error status. Without a driver version both layouts are tried, the
    newer first; a rule for another unit never matches."""
    info = fields.get("intr_info")
    if not isinstance(info, int):
        return None
    old = driver.split(".")[0].isdigit() and int(driver.split(".")[0]) < 575
    layouts = ("intrinfo_v1",) if old else ("intrinfo_v2",) if driver else ("intrinfo_v2", "intrinfo_v1")
    status, unit = fields.get("error_status"), str(fields.get("unit", ""))
    for layout in layouts:
        for rule in _rules():
            if rule.xid != code or not _same_unit(rule.unit, unit):
                continue
            if rule.link_down_reason is not None and rule.link_down_reason != fields.get("link_down_reason"):
                continue
            if rule.error_status and (not isinstance(status, int) or status != int(rule.error_status, 16)):
                continue
            if _fits(getattr(rule, layout), info):
                return rule
    return None


def _same_unit(rule: str, unit: str) -> bool:
    """Drivers print a unit with or without its group: ``TLW_RX/TLW_RX_PIPE1`` or ``TLW_RX``, ``NETIR_LINK_EVT``."""
    return bool(unit) and (rule == unit or unit in rule.split("/") or rule in unit.split("/"))


def _fits(pattern: str, number: int) -> bool:
    bits = f"{number & 0xFFFFFFFF:032b}"
    return len(pattern) == 32 and all(want in ("-", have) for want, have in zip(pattern, bits, strict=True))
