"""Events on disk until the scorer has stored them, with the place in the kernel log they were read up to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from detectord.core.errors import UnavailableError
from detectord.core.model import Event, Item

_event = msgspec.msgpack.Decoder(Event)
_items = msgspec.msgpack.Decoder(tuple[Item, ...])
_SCHEMA: Final = """
BEGIN;
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
COMMIT;
"""


class Spool:
    """At most ``max_bytes`` of events; beyond that the oldest are dropped and counted in ``dropped``. Also keeps the
    session number, the inventory (so that a PCI address has its UUID when NVML is dead) and the log position."""

    def __init__(self, path: Path, max_bytes: int = 32 << 20, now: float = 0.0) -> None:
        self._max_bytes = max_bytes
        self.dropped = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA journal_size_limit=1048576")
            self._db.executescript(_SCHEMA)
            self._bytes = int(self._db.execute("SELECT coalesce(sum(length(body)), 0) FROM events").fetchone()[0])
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(f"{path}: the event spool cannot be used ({error}); see agent.state") from error
        # Of the clock as well: a node whose state was wiped must not seem older than it was before.
        self.session = max(int(self._get("session") or 0) + 1, int(now))
        self._put("session", str(self.session).encode())

    def add(self, events: Sequence[Event], position: tuple[str, int] | None = None) -> None:
        """Keep events and the position they were read up to, in one transaction."""
        size = self._bytes
        # As a context manager the connection commits, or rolls back when anything is raised.
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for event in events:
                body = msgspec.msgpack.encode(event)
                done = self._db.execute("INSERT OR IGNORE INTO events (key, body) VALUES (?, ?)", (event.key, body))
                size += len(body) if done.rowcount else 0
            if position is not None:
                self._put("position", msgspec.msgpack.encode(position))
            size, dropped = self._make_room(size)
        self._bytes, self.dropped = size, self.dropped + dropped

    def _make_room(self, size: int) -> tuple[int, int]:
        """The size that is left, and how many of the oldest events had to go."""
        dropped = 0
        while size > self._max_bytes:
            row = self._db.execute("SELECT id, length(body) FROM events ORDER BY id LIMIT 1").fetchone()
            if row is None:
                break
            self._db.execute("DELETE FROM events WHERE id = ?", (row[0],))
            size -= row[1]
            dropped += 1
        return size, dropped

    def pending(self, limit: int) -> list[Event]:
        """The oldest events nobody has acknowledged."""
        rows = self._db.execute("SELECT body FROM events ORDER BY id LIMIT ?", (limit,)).fetchall()
        return [_event.decode(row[0]) for row in rows]

    def forget(self, keys: Iterable[str]) -> None:
        """The scorer has stored these."""
        size = self._bytes
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for key in keys:
                row = self._db.execute("DELETE FROM events WHERE key = ? RETURNING length(body)", (key,)).fetchone()
                size -= row[0] if row else 0
        self._bytes = size

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM events").fetchone()[0])

    @property
    def position(self) -> tuple[str, int] | None:
        value = self._get("position")
        return msgspec.msgpack.decode(value, type=tuple[str, int]) if value else None

    @property
    def inventory(self) -> tuple[Item, ...]:
        value = self._get("inventory")
        return _items.decode(value) if value else ()

    @inventory.setter
    def inventory(self, items: Sequence[Item]) -> None:
        self._put("inventory", msgspec.msgpack.encode(tuple(items)))

    def _get(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return bytes(row[0]) if row else None

    def _put(self, name: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    def close(self) -> None:
        self._db.close()
