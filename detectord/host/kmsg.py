"""The kernel log of this machine, from /dev/kmsg or from a file that is followed."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, Protocol

from detectord.core.errors import InputError, UnavailableError
from detectord.core.ports import LogRecord, Lost
from detectord.formats.kmsg import KmsgRecord, parse_record

_BUFFER: Final = 16 * 1024  # a record is at most 8 KiB with its prefix; a smaller buffer gets EINVAL
_POLL_SECONDS: Final = 1.0
_USER_FACILITY: Final = 1


class Reader(Protocol):
    """``read`` gives one record, empty bytes at the end, or raises OSError as /dev/kmsg does. ``fileno`` is None for
    what cannot be waited on."""

    def read(self) -> bytes: ...
    def fileno(self) -> int | None: ...
    def close(self) -> None: ...


class DeviceReader:
    """/dev/kmsg itself, never blocking; the first read is the oldest record that the ring holds."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be opened: {error.strerror}: give the agent CAP_SYSLOG, or set kernel_log to journald"
            ) from error

    def read(self) -> bytes:
        return os.read(self._fd, _BUFFER)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


def wall_offset() -> float:
    """What to add to the kernel's clock for wall time, in seconds. Asked anew for each batch: both clocks drift."""
    return time.time() - time.monotonic()


class _Waiter:
    """Sleeps until the descriptor has something, the poll interval is over, or it is woken."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, fd: int | None) -> None:
        loop = asyncio.get_running_loop()
        watched = False
        if fd is not None:
            try:
                loop.add_reader(fd, self._woken.set)
                watched = True
            except OSError:  # a regular file cannot be waited on
                watched = False
        try:
            await asyncio.wait_for(self._woken.wait(), _POLL_SECONDS)
        except TimeoutError:
            pass
        finally:
            if watched and fd is not None:
                loop.remove_reader(fd)
            self._woken.clear()


class KmsgLog:
    """/dev/kmsg, each record once. ``position`` is (boot id, last sequence) of the last run: of the same boot, what
    was read then is skipped and what was overwritten since is told as lost."""

    def __init__(
        self,
        path: Path = Path("/dev/kmsg"),
        position: tuple[str, int] | None = None,
        boot_id: str = "",
        wall_offset: Callable[[], float] = wall_offset,
        max_batch: int = 256,
        *,
        open_reader: Callable[[Path], Reader] = DeviceReader,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._boot_id, self._open = path, boot_id, open_reader
        self._offset, self._now, self._max_batch = wall_offset, now, max_batch
        self._last = position[1] if position is not None and position[0] == boot_id else None
        self._unread = 0  # malformed records since the last good one: already told, so no part of a gap
        self._overrun = self._closed = False
        self._waiter = _Waiter()

    @property
    def position(self) -> tuple[str, int] | None:
        """What to pass as ``position`` next time; None before the first record."""
        return None if self._last is None else (self._boot_id, self._last)

    async def records(self) -> AsyncIterator[LogRecord | Lost]:
        """Raises ``UnavailableError`` when the log cannot be opened or read at all."""
        reader = self._open(self._path)
        try:
            while not self._closed:
                offset, drained, useful = self._offset(), False, False
                for _ in range(self._max_batch):
                    data = self._read(reader)
                    if data == b"":
                        drained = True
                        break
                    for item in self._items(data, offset):
                        useful = useful or isinstance(item, LogRecord)
                        yield item
                    useful = useful or (data is not None and not self._unread)
                    if self._closed:
                        return
                # A batch of nothing but failures waits too: a broken device must not take a core.
                if drained or not useful:
                    await self._waiter.wait(reader.fileno())
                else:
                    await asyncio.sleep(0)
        finally:
            reader.close()

    def _read(self, reader: Reader) -> bytes | None:
        """A record's bytes, empty when there is none now, None when this one cannot be had."""
        while True:
            try:
                return reader.read()
            except BlockingIOError:
                return b""
            except OSError as error:
                if error.errno == errno.EPIPE:
                    self._overrun = True  # the next read goes on with the oldest record that is left
                elif error.errno == errno.EINVAL:
                    return None
                else:
                    raise UnavailableError(f"{self._path}: cannot be read: {error.strerror}") from error

    def _items(self, data: bytes | None, offset: float) -> list[LogRecord | Lost]:
        after = -1 if self._last is None else self._last
        try:
            record = parse_record(data) if data is not None else None
        except InputError:
            record = None
        if record is None:
            self._unread += 1
            return [Lost(1, "malformed", self._boot_id, after)]
        if self._last is not None and record.sequence <= self._last:
            self._unread = 0
            return []
        items: list[LogRecord | Lost] = []
        gap = 0 if self._last is None else record.sequence - self._last - 1 - self._unread
        if gap > 0:
            items.append(Lost(gap, "overrun" if self._overrun else "gap", self._boot_id, after))
        self._last, self._unread, self._overrun = record.sequence, 0, False
        at = min(record.usec / 1e6 + offset, self._now())
        items.append(_log_record(record, self._boot_id, record.sequence, at))
        return items

    async def close(self) -> None:
        self._closed = True
        self._waiter.wake()


def _log_record(record: KmsgRecord, boot_id: str, sequence: int, at: float) -> LogRecord:
    return LogRecord(boot_id, sequence, at, record.text, record.severity, from_kernel=record.facility == 0)


class FileKernelLog:
    """A regular file that is followed from its beginning, in the form of /dev/kmsg or as plain text, which counts as
    written by a process. A record's sequence is the offset in bytes of its line, so it is the same in every run; a
    file that has become shorter is read anew under a boot id of its own."""

    def __init__(
        self,
        path: Path,
        position: tuple[str, int] | None = None,
        boot_id: str = "",
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._boot_id, self._now = path, boot_id, now
        self._skip = position[1] if position is not None and position[0] == boot_id else -1
        self._offset = self._shrunk = 0
        self._closed = False
        self._waiter = _Waiter()

    async def records(self) -> AsyncIterator[LogRecord | Lost]:
        """Raises ``UnavailableError`` when the file cannot be read."""
        while not self._closed:
            try:
                block = self._block()
            except OSError as error:
                raise UnavailableError(f"{self._path}: cannot be read: {error.strerror}") from error
            end = block.rfind(b"\n") + 1  # a line without its end is still being written
            for line in block[:end].splitlines(keepends=True):
                start, self._offset = self._offset, self._offset + len(line)
                if start > self._skip and line.strip():
                    yield self._record(line.rstrip(b"\r\n"), start)
                if self._closed:
                    return
            if end:
                await asyncio.sleep(0)
            else:
                await self._waiter.wait(None)

    def _block(self) -> bytes:
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset, self._skip, self._shrunk = 0, -1, self._shrunk + 1
            file.seek(self._offset)
            block = file.read(256 * 1024)
            # A line longer than a block is cut rather than waited for.
            return block if b"\n" in block or len(block) < 256 * 1024 else block[:-1] + b"\n"

    def _record(self, line: bytes, start: int) -> LogRecord:
        boot_id = f"{self._boot_id}+{self._shrunk}" if self._shrunk else self._boot_id
        try:
            record = parse_record(line)
        except InputError:
            record = KmsgRecord(_USER_FACILITY << 3 | 4, start, 0, "-", line.decode("utf-8", "replace"))
        return _log_record(record, boot_id, start, self._now())

    async def close(self) -> None:
        self._closed = True
        self._waiter.wake()
