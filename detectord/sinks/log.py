"""Alerts as lines of the scorer's own log."""

from __future__ import annotations

from typing import Final, Protocol

from detectord.core.model import Alert
from detectord.core.ports import Delivery, Outcome, Outgoing
from detectord.sinks.words import describe


class Log(Protocol):
    def warning(self, event: str, **fields: object) -> object: ...


class LogSink:
    """Writes what an operator would read; cannot fail."""

    name: Final = "log"

    def __init__(self, log: Log) -> None:
        self._log = log

    def render(self, alert: Alert) -> bytes | None:
        return describe(alert).encode()

    async def deliver(self, outgoing: Outgoing, now: float) -> Delivery:
        self._log.warning("alert", id=outgoing.id, text=outgoing.body.decode())
        return Delivery(Outcome.DELIVERED)

    async def close(self) -> None:
        """Nothing is held open."""
