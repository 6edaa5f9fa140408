"""A small ``/metrics`` endpoint on asyncio: one answer a connection, bounded in time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    """``refresh`` is called before each scrape, so that nothing is kept up to date that nobody reads."""

    def __init__(self, listen: str, registry: CollectorRegistry, refresh: Callable[[], None]) -> None:
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._registry, self._refresh = registry, refresh
        self.address = ""

    async def run(self) -> None:
        server = await asyncio.start_server(self._answer, self._host, self._port, limit=8192)
        self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5.0):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Whoever sent no request gets no answer.
            return
        finally:
            writer.close()

    def _response(self, request: bytes) -> bytes:
        words = request.split(b" ")
        if len(words) < 2 or words[0] != b"GET":
            return b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        if words[1].split(b"?")[0] != b"/metrics":
            return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        self._refresh()
        body = generate_latest(self._registry)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        return head.encode() + body
