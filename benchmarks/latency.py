"""From a line written to a kernel log to the webhook received, through a real Mosquitto and two processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from detectord.core.errors import UnavailableError
from detectord.wiring import append_line, write_kmsg

LINES = 200
CODES = (48, 62, 64, 79, 95, 109, 110, 119, 120, 140, 143, 155, 158, 46)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def measure(source: str) -> tuple[list[float], int, int]:
    """Latencies in seconds, how many were lost, how many webhook ids came twice. ``source`` is kmsg or file."""
    written: dict[str, float] = {}
    latencies: list[float] = []
    ids: list[str] = []
    done = asyncio.Event()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])
                body = (await reader.readexactly(int(fields["content-length"]))).decode()
                now = time.time()
                ids.append(fields["webhook-id"])
                arrived = [mark for mark in written if mark in body]
                latencies.extend(now - written.pop(mark) for mark in arrived)
                if not written and len(ids) >= LINES:
                    done.set()
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker, hook = free_port(), free_port()
        log = folder / "kernel.log"
        log.touch()
        (folder / "m.conf").write_text(f"listener {broker} 127.0.0.1\nallow_anonymous true\n")
        (folder / "d.toml").write_text(
            f'[mqtt]\nport = {broker}\n[agent]\nnode = "n1"\nstate = "{folder}"\nmetrics = ""\naccept_injected = true\n'
            f'kernel_log = "{"kmsg" if source == "kmsg" else log}"\n'
            f'[scorer]\ndatabase = "{folder}/s.db"\nmetrics = ""\naccept_injected = true\njoin_causes = false\n'
            f'[[webhook]]\nurl = "http://127.0.0.1:{hook}/"\n'
        )
        server = await asyncio.start_server(receive, "127.0.0.1", hook)
        mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        commands = (
            [mosquitto, "-c", f"{folder}/m.conf"],
            [sys.executable, "-m", "detectord", "scorer", "--config", f"{folder}/d.toml"],
            [sys.executable, "-m", "detectord", "agent", "--config", f"{folder}/d.toml"],
        )
        quiet = asyncio.subprocess.DEVNULL
        processes = []
        for command in commands:
            processes.append(await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet, cwd=folder))
            await asyncio.sleep(2.0)
        # The ring may hold lines of earlier runs, and repeats are counted rather than sent: addresses of our own.
        domain = time.time_ns() // 1_000_000 & 0xFFFF
        for number in range(LINES):
            mark = f"mark-{os.getpid()}-{source}-{number:04d}"
            code = CODES[number % len(CODES)]
            text = f"NVRM: Xid (PCI:{domain:04x}:{number:02x}:00): {code}, {mark}"
            written[mark] = time.time()
            if source == "kmsg":
                write_kmsg(text)
            else:
                append_line(log, text)
            await asyncio.sleep(0.05)
        try:
            async with asyncio.timeout(30):
                await done.wait()
        except TimeoutError:
            pass
        for process in processes:
            process.send_signal(signal.SIGTERM)
            await process.wait()
        server.close()
    return sorted(latencies), len(written), len(ids) - len(set(ids))


def main() -> None:
    for source in ("kmsg", "file"):
        try:
            latencies, lost, twice = asyncio.run(measure(source))
        except UnavailableError as error:
            print(f"{source}: not measured: {error}")
            continue
        count = len(latencies)
        p50, p99 = latencies[count // 2], latencies[min(count - 1, int(count * 0.99))]
        print(f"{source} line to webhook, {count} lines  p50 {p50 * 1e3:.0f} ms  p99 {p99 * 1e3:.0f} ms")
        print(f"{source} lost {lost}, delivered twice {twice}")
