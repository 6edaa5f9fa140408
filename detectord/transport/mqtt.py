"""MQTT 5 through aiomqtt: one connection kept for ever, bounded queues both ways."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from detectord.core.errors import UnavailableError
from detectord.core.ports import Message


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """``client_id`` must be one program's alone: a broker throws the older of two equal ones out. Times in seconds."""

    host: str
    port: int
    client_id: str
    username: str = ""
    password: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    keepalive: int = 30
    will: Message | None = None
    subscriptions: tuple[tuple[str, int], ...] = ()
    queue: int = 10_000
    deadline: float = 10.0


class Uniform(Protocol):
    def uniform(self, a: float, b: float, /) -> float: ...


class Backoff:
    """Waits between attempts: doubled from ``first`` to ``most`` seconds, jittered so that 10,000 agents do not return
    at once, and begun anew only after a connection has lasted ``lasting`` seconds: one that is accepted and dropped
    at once has not helped."""

    def __init__(self, rng: Uniform, first: float = 1.0, most: float = 60.0, lasting: float = 30.0) -> None:
        self._rng, self._first, self._most, self._lasting = rng, first, most, lasting
        self._step = first

    def wait(self, lasted: float) -> float:
        if lasted >= self._lasting:
            self._step = self._first
        step, self._step = self._step, min(self._step * 2, self._most)
        return step * self._rng.uniform(0.5, 1.0)


class MqttTransport:
    """``run`` keeps the connection; ``on_connect`` is called after each one, once subscriptions stand."""

    def __init__(
        self,
        settings: MqttSettings,
        on_connect: Callable[[], Awaitable[None]] | None = None,
        rng: random.Random | None = None,
        on_trouble: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._settings, self.on_connect, self._on_trouble = settings, on_connect, on_trouble
        self._backoff = Backoff(rng or random.Random())  # noqa: S311 - jitter, no secret
        self._client: aiomqtt.Client | None = None
        self._incoming: asyncio.Queue[Message] = asyncio.Queue(settings.queue)
        # Of few publishers at a time, so that a slow broker meets back pressure, not a growing queue.
        self._sending = asyncio.Semaphore(32)

    @property
    def connected(self) -> bool:
        return self._client is not None

    @property
    def waiting(self) -> int:
        """Messages received and not yet taken."""
        return self._incoming.qsize()

    async def publish(self, message: Message) -> None:
        async with self._sending:
            client = self._client
            if client is None:
                raise UnavailableError(f"no connection to the broker at {self._settings.host}:{self._settings.port}")
            properties = None
            if message.expiry is not None:
                properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call] # paho has no types here
                properties.MessageExpiryInterval = message.expiry
            try:
                await client.publish(
                    message.topic,
                    message.payload,
                    message.qos,
                    message.retain,
                    properties=properties,
                    timeout=self._settings.deadline,
                )
            except (aiomqtt.MqttError, ValueError) as error:
                raise UnavailableError(f"the broker did not take a message on {message.topic}: {error}") from error

    async def messages(self) -> AsyncIterator[Message]:
        while True:
            yield await self._incoming.get()

    def take(self, most: int) -> list[Message]:
        """Up to ``most`` messages that are already here."""
        return [self._incoming.get_nowait() for _ in range(min(most, self._incoming.qsize()))]

    async def run(self) -> None:
        """Connect, receive, and connect again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                async with self._connection() as client:
                    began = loop.time()
                    await self._serve(client)
            except (aiomqtt.MqttError, OSError, TimeoutError) as error:
                self._on_trouble(f"{self._settings.host}:{self._settings.port}: {error}")
            finally:
                self._client = None
            await asyncio.sleep(self._backoff.wait(loop.time() - began))

    async def _serve(self, client: aiomqtt.Client) -> None:
        for topic, qos in self._settings.subscriptions:
            await client.subscribe(topic, qos)
        self._client = client
        async with asyncio.TaskGroup() as group:
            if self.on_connect is not None:
                group.create_task(self._greet(self.on_connect))
            group.create_task(self._receive(client))

    async def _greet(self, on_connect: Callable[[], Awaitable[None]]) -> None:
        try:
            await on_connect()
        except UnavailableError as error:
            self._on_trouble(str(error))

    async def _receive(self, client: aiomqtt.Client) -> None:
        try:
            async for message in client.messages:
                payload = message.payload if isinstance(message.payload, bytes | bytearray) else b""
                await self._incoming.put(Message(str(message.topic), bytes(payload), bool(message.retain), message.qos))
        except aiomqtt.MqttError as error:
            # Out of a task group a plain error would come back as a group; the connection's end is none.
            self._client = None
            self._on_trouble(f"connection lost: {error}")

    def _connection(self) -> aiomqtt.Client:
        settings, will = self._settings, self._settings.will
        tls = None
        if settings.ca_file:
            tls = ssl.create_default_context(cafile=settings.ca_file)
            if settings.cert_file:
                tls.load_cert_chain(settings.cert_file, settings.key_file or None)
        return aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username or None,
            password=settings.password or None,
            identifier=settings.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=aiomqtt.Will(will.topic, will.payload, will.qos, will.retain) if will else None,
            keepalive=settings.keepalive,
            timeout=settings.deadline,
            tls_context=tls,
            max_queued_incoming_messages=settings.queue,
            max_queued_outgoing_messages=settings.queue,
            clean_start=True,
        )
