from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest

from detectord.core.errors import UnavailableError
from detectord.core.ports import LogRecord, Lost
from detectord.host.kmsg import DeviceReader, FileKernelLog, KmsgLog, Reader

BOOT = "b0"


class Ring:
    """A /dev/kmsg that gives what it is told: a record, or an errno to raise."""

    def __init__(self, *steps: bytes | int) -> None:
        self.steps = list(steps)
        self.closed = False

    def read(self) -> bytes:
        if not self.steps:
            raise BlockingIOError(errno.EAGAIN, "nothing now")
        step = self.steps.pop(0)
        if isinstance(step, int):
            raise OSError(step, os.strerror(step))
        return step

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self.closed = True


def line(sequence: int, text: str = "x", priority: int = 4) -> bytes:
    return f"{priority},{sequence},{sequence * 1000000},-;{text}\n".encode()


def log(ring: Ring, position: tuple[str, int] | None = None, max_batch: int = 256) -> KmsgLog:
    opened: Callable[[Path], Reader] = lambda path: ring  # noqa: E731
    return KmsgLog(Path("ring"), position, BOOT, lambda: 1000.0, max_batch, open_reader=opened, now=lambda: 1005.0)


async def take(source: AsyncIterator[LogRecord | Lost], count: int) -> list[LogRecord | Lost]:
    items: list[LogRecord | Lost] = []
    async with aclosing(cast("AsyncGenerator[LogRecord | Lost, None]", source)) as stream:
        async for item in stream:
            items.append(item)
            if len(items) == count:
                break
    return items


def seen(items: list[LogRecord | Lost]) -> list[int | tuple[int, str]]:
    return [item.sequence if isinstance(item, LogRecord) else (item.count, item.reason) for item in items]


async def test_records_come_in_order_with_wall_time_that_is_never_in_the_future() -> None:
    items = await take(log(ring := Ring(line(1), line(9)), position=(BOOT, 0)).records(), 3)
    assert [item.at for item in items if isinstance(item, LogRecord)] == [1001.0, 1005.0]
    assert ring.closed


async def test_overwritten_records_are_counted_and_reading_goes_on() -> None:
    assert seen(await take(log(Ring(line(1), errno.EPIPE, line(8), line(9))).records(), 4)) == [1, (6, "overrun"), 8, 9]


async def test_a_gap_without_an_overrun_is_lost_too() -> None:
    assert seen(await take(log(Ring(line(1), line(4))).records(), 3)) == [1, (2, "gap"), 4]


async def test_malformed_records_are_counted_once_and_do_not_count_as_a_gap() -> None:
    items = await take(log(Ring(line(1), b"garbage", errno.EINVAL, line(4))).records(), 4)
    assert seen(items) == [1, (1, "malformed"), (1, "malformed"), 4]


async def test_after_a_restart_nothing_comes_twice_and_nothing_is_missed_that_the_ring_still_holds() -> None:
    first = log(Ring(*map(line, range(3))), max_batch=2)
    assert seen(await take(first.records(), 3)) == [0, 1, 2]
    assert first.position == (BOOT, 2)
    assert seen(await take(log(Ring(*map(line, range(1, 6))), first.position).records(), 3)) == [3, 4, 5]


async def test_what_was_overwritten_while_it_was_down_is_told() -> None:
    assert seen(await take(log(Ring(line(10)), (BOOT, 4)).records(), 2)) == [(5, "gap"), 10]


async def test_a_position_of_another_boot_skips_nothing() -> None:
    assert seen(await take(log(Ring(line(0), line(1)), ("other", 900)).records(), 2)) == [0, 1]


async def test_only_facility_0_is_the_kernel() -> None:
    items = await take(log(Ring(line(1, priority=4), line(2, priority=12))).records(), 2)
    assert [(i.from_kernel, i.priority) for i in items if isinstance(i, LogRecord)] == [(True, 4), (False, 4)]


async def test_a_device_that_cannot_be_read_says_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="cannot be read"):
        await take(log(Ring(errno.EIO)).records(), 1)
    with pytest.raises(UnavailableError, match=r"CAP_SYSLOG.*journald"):
        await take(KmsgLog(Path("/nonexistent/kmsg")).records(), 1)


async def test_a_file_is_followed_and_its_plain_text_is_not_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"4,1,2,-;one\n12,2,3,-;two\nplain\nunfinished")
    items = await take(FileKernelLog(path, boot_id=BOOT, now=lambda: 7.0).records(), 3)
    got = [(i.text, i.from_kernel, i.sequence, i.at) for i in items if isinstance(i, LogRecord)]
    assert got == [("one", True, 0, 7.0), ("two", False, 12, 7.0), ("plain", False, 25, 7.0)]
    path.write_bytes(path.read_bytes() + b" now\n")
    assert [
        i.text for i in await take(FileKernelLog(path, (BOOT, 25), BOOT).records(), 1) if isinstance(i, LogRecord)
    ] == ["unfinished now"]


def write(device: Path, text: str) -> None:
    """Opened anew for each line: the kernel limits the rate of each open file."""
    device.write_text(text, encoding="utf-8")


class Drained(DeviceReader):
    """The real device, which ends where it would wait."""

    def read(self) -> bytes:
        try:
            return super().read()
        except BlockingIOError as error:
            raise OSError(errno.EIO, "drained") from error


async def test_a_line_that_a_process_writes_to_the_real_device_is_read_back_as_not_the_kernels() -> None:
    """Only where this process may use the device. Without its newline the kernel would hold the line back."""
    device = Path("/dev/kmsg")
    mark = f"detectord test {uuid4()}"
    found: list[LogRecord] = []
    try:
        write(device, f"<12>{mark}\n")
        DeviceReader(device).close()
    except (OSError, UnavailableError):
        return
    with suppress(UnavailableError):
        async for item in KmsgLog(device, boot_id=BOOT, open_reader=Drained).records():
            found += [item] if isinstance(item, LogRecord) and mark in item.text else []
    assert [record.from_kernel for record in found] == [False]
