"""The kernel log by way of journald, for an agent that may not open /dev/kmsg."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import Final

from detectord.core.errors import InputError, UnavailableError
from detectord.core.ports import LogRecord, Lost

_LINE_LIMIT: Final = 1 << 20
_AGAIN_SECONDS: Final = 1.0


def parse_entry(line: bytes) -> tuple[LogRecord, str]:
    """(record, cursor) of a line of ``journalctl -o json``; raises ``InputError`` when it is none. The sequence is
    the journal's own entry number out of the cursor: other entries are numbered too, so a gap there means nothing."""
    try:
        entry = json.loads(line)
        cursor, message = str(entry["__CURSOR"]), entry["MESSAGE"]
        fields = dict(part.split("=", 1) for part in cursor.split(";"))
        # journald gives a message that is no UTF-8 as a list of bytes.
        text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else str(message)
        # Without a facility nothing shows that the kernel wrote it.
        from_kernel = entry.get("_TRANSPORT") == "kernel" and entry.get("SYSLOG_FACILITY") == "0"
        record = LogRecord(
            boot_id=str(entry.get("_BOOT_ID", "")),
            sequence=int(fields["i"], 16),
            at=int(entry["__REALTIME_TIMESTAMP"]) / 1e6,
            text=text,
            priority=int(entry.get("PRIORITY", 4)),
            from_kernel=from_kernel,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"not a journal entry: {line[:80]!r}") from error
    return record, cursor


class JournaldLog:
    """``journalctl -k -o json -f``, started again from the last cursor when it ends. ``cursor`` is where to go on."""

    def __init__(self, cursor: str = "", program: str = "journalctl") -> None:
        self.cursor, self._program = cursor, program
        self._process: Process | None = None
        self._closed = asyncio.Event()
        self._last: tuple[str, int] = ("", -1)

    def command(self) -> list[str]:
        """All of this boot when there is no cursor."""
        start = [f"--after-cursor={self.cursor}"] if self.cursor else []
        return [self._program, "-k", "-o", "json", "-f", "--no-tail", *start]

    async def records(self) -> AsyncIterator[LogRecord | Lost]:
        """Raises ``UnavailableError`` when journalctl is not there or ends without having said anything."""
        while not self._closed.is_set():
            process = await self._start()
            said = False
            try:
                while line := await self._line(process):
                    said = True
                    yield self._item(line)
                    if self._closed.is_set():
                        return
            finally:
                await _stop(process)
            if not said and not self._closed.is_set():
                raise UnavailableError(
                    f"{self._program} ended with code {process.returncode} and no entry: "
                    "may the agent read the journal (group systemd-journal)?"
                )
            await self._pause()

    async def _start(self) -> Process:
        try:
            # Its complaints go to the agent's own standard error; a pipe that nobody drains would stop it.
            self._process = await asyncio.create_subprocess_exec(*self.command(), stdout=PIPE, limit=_LINE_LIMIT)
        except OSError as error:
            raise UnavailableError(f"{self._program}: cannot be run: {error.strerror}") from error
        return self._process

    async def _line(self, process: Process) -> bytes:
        if process.stdout is None:
            return b""
        try:
            return await process.stdout.readline()
        except ValueError:  # longer than the limit; what was read of it is dropped
            return b"\n"

    def _item(self, line: bytes) -> LogRecord | Lost:
        try:
            record, self.cursor = parse_entry(line)
        except InputError:
            return Lost(1, "malformed", *self._last)
        self._last = (record.boot_id, record.sequence)
        return record

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), _AGAIN_SECONDS)
        except TimeoutError:
            return

    async def close(self) -> None:
        self._closed.set()
        if self._process is not None:
            await _stop(self._process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            return
    await process.wait()
