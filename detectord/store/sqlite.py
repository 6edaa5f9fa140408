"""Incidents, event keys and the outbox in one SQLite file with one writer.

Rows hold MessagePack, which unlike JSON has a NaN. WAL, and ``synchronous=FULL``: an alert that was acknowledged to a
node must outlive a power cut, because the node has forgotten the event by then.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from detectord.core.errors import UnavailableError
from detectord.core.model import Exclusions, Incident, IncidentState
from detectord.core.ports import Delivery, Effect, EventKept, ExclusionsChanged, IncidentChanged, Outgoing, Saved

SCHEMA: Final = 1
KEYS: Final = 200_000
_incident = msgspec.msgpack.Decoder(Incident)
_exclusions = msgspec.msgpack.Decoder(Exclusions)


class SqliteStore:
    """``max_bytes`` bounds the file, ``retention`` (seconds) how long what has ended is kept. Open incidents and
    undelivered alerts are never deleted."""

    def __init__(self, path: Path, max_bytes: int = 512 << 20, retention: float = 90 * 86400.0) -> None:
        self._path, self._max_bytes, self._retention = path, max_bytes, retention
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be written: {error.strerror}; name another database") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UnavailableError(
                f"{path}: another scorer is using it; stop that one, or name another file"
            ) from error
        try:
            self._db = self._connect()
        except sqlite3.Error as error:
            os.close(self._lock)
            raise UnavailableError(f"{path}: is no usable database ({error}); move it away to begin anew") from error
        except UnavailableError:
            os.close(self._lock)
            raise

    def _connect(self) -> sqlite3.Connection:
        # Used by the event loop's thread alone; autocommit, with transactions said explicitly.
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute(f"PRAGMA journal_size_limit={16 << 20}")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA:
                raise UnavailableError(f"{self._path}: was written by a newer detectord; upgrade this one")
            if version == 0:
                script = resources.files("detectord.store").joinpath("schema/1.sql").read_text("utf-8")
                db.executescript(f"BEGIN;{script}PRAGMA user_version={SCHEMA};COMMIT;")
        except (sqlite3.Error, UnavailableError):
            db.close()
            raise
        return db

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # As a context manager the connection commits, or rolls back when anything is raised.
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def load(self) -> Saved:
        rows = self._db.execute(
            "SELECT body, number FROM incidents WHERE state != ? ORDER BY opened, id", (IncidentState.CLOSED,)
        ).fetchall()
        keys = self._db.execute("SELECT key FROM event_keys ORDER BY at DESC LIMIT ?", (KEYS,)).fetchall()
        body = self._db.execute("SELECT body FROM exclusions").fetchone()
        return Saved(
            incidents=tuple((_incident.decode(row[0]), row[1]) for row in rows),
            event_keys=tuple(row[0] for row in reversed(keys)),
            exclusions=_exclusions.decode(body[0]) if body else None,
        )

    def save(self, effects: Sequence[Effect], outgoing: Sequence[Outgoing]) -> None:
        with self._transaction():
            for effect in effects:
                match effect:
                    case IncidentChanged(incident=incident, number=number):
                        self._db.execute(
                            "INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                            (incident.id, incident.node, incident.fault, incident.state.value, incident.opened,
                             incident.updated, number, msgspec.msgpack.encode(incident)),
                        )  # fmt: skip
                    case EventKept(event=event):
                        self._db.execute("INSERT OR IGNORE INTO event_keys VALUES (?, ?)", (event.key, event.seen))
                    case ExclusionsChanged(exclusions=exclusions):
                        body = msgspec.msgpack.encode(exclusions)
                        self._db.execute("INSERT OR REPLACE INTO exclusions VALUES (1, ?)", (body,))
                    case _:
                        pass
            # The same alert for the same sink is queued once, however often it is planned.
            self._db.executemany(
                "INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?, ?, ?, '', '')",
                [(one.id, one.sink, one.body, one.created, one.due, one.tries) for one in outgoing],
            )

    def due(self, sink: str, now: float, limit: int) -> list[Outgoing]:
        rows = self._db.execute(
            "SELECT id, sink, body, created, due, tries FROM outbox WHERE sink = ? AND due <= ? ORDER BY due, created "
            "LIMIT ?",
            (sink, now, limit),
        ).fetchall()
        return [Outgoing(*row) for row in rows]

    def settle(self, outgoing: Outgoing, delivery: Delivery, next_due: float | None) -> None:
        self._db.execute(
            "UPDATE outbox SET due = ?, tries = ?, outcome = ?, reason = ? WHERE id = ? AND sink = ?",
            (next_due, outgoing.tries + 1, delivery.outcome.value, delivery.reason, outgoing.id, outgoing.sink),
        )

    def incidents(self, *, open_only: bool, limit: int) -> list[Incident]:
        """The most recently updated first."""
        where = "WHERE state != 'closed'" if open_only else ""
        query = f"SELECT body FROM incidents {where} ORDER BY updated DESC LIMIT ?"  # noqa: S608 - a constant of ours
        return [_incident.decode(row[0]) for row in self._db.execute(query, (limit,)).fetchall()]

    def outcomes(self) -> dict[str, int]:
        """How many alerts stand at which outcome; empty text is not yet tried."""
        return dict(self._db.execute("SELECT outcome, count(*) FROM outbox GROUP BY outcome").fetchall())

    def prune(self, now: float) -> None:
        """Forget what has ended and is older than the retention; when the file is still too large, half of the rest of
        what has ended, the oldest first."""
        self._forget(now - self._retention)
        if self._size() > self._max_bytes:
            row = self._db.execute(
                "SELECT updated FROM incidents WHERE state = 'closed' ORDER BY updated "
                "LIMIT 1 OFFSET (SELECT count(*) / 2 FROM incidents WHERE state = 'closed')"
            ).fetchone()
            self._forget(row[0] if row else now - 86400.0)
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _forget(self, before: float) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM incidents WHERE state = 'closed' AND updated < ?", (before,))
            self._db.execute("DELETE FROM outbox WHERE due IS NULL AND created < ?", (before,))
            self._db.execute("DELETE FROM event_keys WHERE at < ?", (before,))
            self._db.execute(
                "DELETE FROM event_keys WHERE at < (SELECT at FROM event_keys ORDER BY at DESC LIMIT 1 OFFSET ?)",
                (KEYS,),
            )

    def _size(self) -> int:
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)


def read_exclusions(path: Path) -> Exclusions | None:
    """The advice in a scorer's database, read beside the running scorer. Raises ``UnavailableError``."""
    if not path.exists():
        raise UnavailableError(f"{path}: no such database; name it with --database, or ask on the scorer's host")
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            row = db.execute("SELECT body FROM exclusions").fetchone()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise UnavailableError(f"{path}: cannot be read ({error})") from error
    return _exclusions.decode(row[0]) if row else None
