"""The whole path with real parts: the kernel log, a Mosquitto, two processes, an HTTP receiver."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from detectord.wiring import append_line, write_kmsg

MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
ENV = {**os.environ, "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Site:
    """A broker, a webhook receiver and a configuration; starts and kills the rest."""

    def __init__(self, folder: Path, kernel_log: str) -> None:
        self.folder, self.got = folder, list[tuple[dict[str, str], dict[str, Any]]]()
        self.broker_port, self.hook_port = free_port(), free_port()
        self.agent_metrics, self.scorer_metrics = free_port(), free_port()
        self.arrived = asyncio.Event()
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        (folder / "mosquitto.conf").write_text(
            f"listener {self.broker_port} 127.0.0.1\nallow_anonymous true\npersistence false\n"
        )
        self.config = folder / "detectord.toml"
        self.config.write_text(f"""
cluster = "test"
[mqtt]
port = {self.broker_port}
[agent]
node = "n1"
interval = 0.5
state = "{folder}/agent"
kernel_log = "{kernel_log}"
accept_injected = true
metrics = "127.0.0.1:{self.agent_metrics}"
[scorer]
database = "{folder}/scorer.db"
accept_injected = true
join_causes = false
metrics = "127.0.0.1:{self.scorer_metrics}"
[[webhook]]
url = "http://127.0.0.1:{self.hook_port}/hook"
""")

    async def start(self, name: str) -> None:
        command = {
            "broker": [MOSQUITTO, "-c", str(self.folder / "mosquitto.conf")],
            "agent": [sys.executable, "-m", "detectord", "agent", "--config", str(self.config)],
            "scorer": [sys.executable, "-m", "detectord", "scorer", "--config", str(self.config)],
        }[name]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env=ENV, cwd=self.folder
            )

    async def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        process = self.processes.pop(name)
        if process.returncode is None:
            process.send_signal(number)
        return await process.wait()

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
                headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.got.append((headers, json.loads(body)))
                self.arrived.set()
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def until(self, codes: set[str], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not codes <= self.faults():
                await self.arrived.wait()
                self.arrived.clear()

    def faults(self) -> set[str]:
        return {body["data"]["incident"]["fault"] for _, body in self.got if body["type"] == "incident.opened"}

    async def metrics(self, port: int) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        return text

    async def speaking(self) -> None:
        """Until the scorer knows the node."""
        async with asyncio.timeout(60):
            while True:
                dead = [name for name, process in self.processes.items() if process.returncode is not None]
                assert not dead, [(self.folder / f"{name}.log").read_text()[-2000:] for name in dead]
                try:
                    if "detectord_scorer_nodes 1.0" in await self.metrics(self.scorer_metrics):
                        return
                except OSError:
                    pass
                await asyncio.sleep(0.05)


async def site_of(folder: Path, kernel_log: str) -> AsyncIterator[Site]:
    site = Site(folder, kernel_log)
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(site.receive, "127.0.0.1", site.hook_port)
        stack.callback(server.close)
        for name in ("broker", "scorer", "agent"):
            await site.start(name)
        try:
            await site.speaking()
            yield site
        finally:
            for name in list(site.processes):
                await site.kill(name)


@pytest_asyncio.fixture
async def kmsg_site(tmp_path: Path) -> AsyncIterator[Site]:
    async for site in site_of(tmp_path, "kmsg"):
        yield site


@pytest_asyncio.fixture
async def file_site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "kernel.log").touch()
    async for site in site_of(tmp_path, f"{tmp_path}/kernel.log"):
        yield site


def line(code: int, pci: str = "0000:3b:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}, pid='<unknown>', name=<unknown>, test {time.time_ns()}"


async def test_a_line_in_the_real_kernel_log_becomes_a_webhook_marked_as_injected(kmsg_site: Site) -> None:
    """Needs the real /dev/kmsg, as a daemon on a node has it: root."""
    # The ring may still hold lines of an earlier run: an address of our own tells ours apart.
    pci = f"{random.randrange(1, 0xFFFF):04x}:3b:00"
    write_kmsg(line(119, pci))
    async with asyncio.timeout(60):
        while not (ours := [body for _, body in kmsg_site.got if f"pci:{pci}.0" in json.dumps(body)]):
            await kmsg_site.arrived.wait()
            kmsg_site.arrived.clear()
    assert ours[0]["data"]["incident"]["provenance"] == "injected"
    assert ours[0]["data"]["exclusion"] is None
    assert "detectord_agent_events_total" in await kmsg_site.metrics(kmsg_site.agent_metrics)


async def test_killing_agent_scorer_and_broker_loses_no_event_and_repeats_no_id(file_site: Site) -> None:
    codes = [48, 62, 64, 79, 95, 109, 110, 119, 120, 140, 143, 155]
    log = file_site.folder / "kernel.log"
    for number, code in enumerate(codes):
        append_line(log, line(code))
        victim = ("agent", "scorer", "broker")[number % 3]
        await file_site.kill(victim)
        await file_site.start(victim)
    await file_site.until({f"xid-{code}" for code in codes}, 120.0)
    ids: dict[str, set[str]] = {}
    for headers, body in file_site.got:
        if body["type"] == "incident.opened":
            ids.setdefault(body["data"]["incident"]["fault"], set()).add(headers["webhook-id"])
    assert {fault: len(names) for fault, names in ids.items()} == {f"xid-{code}": 1 for code in codes}


async def test_sigterm_ends_an_agent_cleanly_and_says_goodbye(file_site: Site) -> None:
    assert await file_site.kill("agent", signal.SIGTERM) == 0
    assert await file_site.kill("scorer", signal.SIGTERM) == 0
