"""One record of /dev/kmsg: ``priority,sequence,usec,flags[,more];text`` and dictionary lines, each behind a space.

Source: the kernel's Documentation/ABI/testing/dev-kmsg. Fields behind the flags are reserved for the future and are
skipped. The kernel writes bytes that are not printable, newlines among them, as ``\\xNN``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from detectord.core.errors import InputError

_PREFIX = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^,;\n]{1,8})(?:,[^;\n]*)?;")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class KmsgRecord:
    """``priority`` is severity (low three bits) and facility; ``usec`` counts microseconds of the kernel's clock since
    boot, which stands still in suspend; ``values`` are the dictionary lines, such as SUBSYSTEM and DEVICE."""

    priority: int
    sequence: int
    usec: int
    flags: str
    text: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def facility(self) -> int:
        """0 is the kernel; a process cannot write it."""
        return self.priority >> 3

    @property
    def severity(self) -> int:
        return self.priority & 7

    @property
    def continues(self) -> bool:
        """Whether the text is a piece of a line (``c``, older kernels also ``+``)."""
        return self.flags in ("c", "+")


def parse_record(data: bytes) -> KmsgRecord:
    """Raises ``InputError`` when the bytes are no record."""
    prefix = _PREFIX.match(data)
    if prefix is None:
        raise InputError(f"not a kernel-log record: {data[:80]!r}")
    text, *rest = data[prefix.end() :].split(b"\n")
    values = {}
    for line in rest:
        key, equals, value = line.partition(b"=")
        if equals and key.startswith(b" "):
            values[_text(key[1:])] = _text(value)
    return KmsgRecord(
        priority=int(prefix[1]),
        sequence=int(prefix[2]),
        usec=int(prefix[3]),
        flags=prefix[4].decode("latin-1"),
        text=_text(text),
        values=values,
    )


def _text(data: bytes) -> str:
    if b"\\" in data:
        data = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), data)
    return data.decode("utf-8", "replace")
