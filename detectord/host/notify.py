"""What systemd is told over its notification socket; nothing when there is none."""

from __future__ import annotations

import os
import socket


class SystemdNotifier:
    """``progress`` feeds the watchdog: call it from the work itself, so that work that hangs is noticed."""

    def __init__(self, address: str | None = None) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "") if address is None else address

    def ready(self) -> None:
        self._send("READY=1")

    def progress(self, status: str) -> None:
        self._send(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is in the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            try:
                channel.sendto(text.encode(), address)
            except OSError:
                # systemd restarts what it does not hear of; there is nobody better to tell.
                return
