from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import pytest

from detectord.core.errors import ConfigError, UnavailableError
from detectord.core.model import (
    Action,
    Advice,
    Alert,
    Change,
    Evidence,
    FaultClass,
    Incident,
    IncidentState,
    Role,
    Severity,
    Subject,
    SubjectKind,
    Verdict,
)
from detectord.core.ports import Delivery, IncidentChanged, Outcome, Outgoing
from detectord.scorer.outbox import SCHEDULE, Outbox, next_due
from detectord.sinks import body, signing
from detectord.sinks.webhook import WebhookSink
from detectord.sinks.words import describe
from detectord.store.sqlite import SqliteStore

T = 1_800_000_000.0
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
GPU = Subject("n1", SubjectKind.GPU, "GPU-1")
VERDICT = Verdict(fault="xid-79", title="GPU has fallen off the bus", fault_class=FaultClass.PCIE,
                  severity=Severity.CRITICAL, action=Action.REBOOT, immediate="RESTART_BM")  # fmt: skip


def incident(count: int = 1, text: str = "off the bus", name: str = "abc") -> Incident:
    evidence = Evidence(at=T, judge="kernel-log", subject=GPU, verdict=VERDICT, text=text, value=float("nan"))
    return Incident(
        id=name, node="n1", subjects=(GPU,), fault="xid-79", title=VERDICT.title, fault_class=FaultClass.PCIE,
        severity=Severity.CRITICAL, action=Action.REBOOT, role=Role.CAUSE, state=IncidentState.OPEN,
        opened=T, updated=T,
        evidence=(evidence,) * count, immediate="RESTART_BM",
        labels={"index": "6", "pci": "0000:81:00.0", "serial": "1650"},
    )  # fmt: skip


def alert(number: int = 1, **rest: str) -> Alert:
    advice = Advice(
        node="n1", action=Action.REBOOT, because=("GPU 6: off",), incidents=("abc",), since=T, expires=T + 9
    )
    return Alert(id=f"abc-{number}", change=Change.OPENED, at=T, incident=incident(**rest), advice=advice)  # type: ignore[arg-type]


class Receiver:
    """A real HTTP server on loopback that keeps what it got and answers what it is told."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        except asyncio.IncompleteReadError:
            writer.close()
            return
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        answer = self.answers.pop(0) if self.answers else "200 OK"
        writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        async with server:
            yield self


def saved(store: SqliteStore, outbox: Outbox, number: int = 1) -> None:
    one = alert(number)
    store.save([IncidentChanged(Change.OPENED, one.incident, number, True)], outbox.plan(one, T))


async def test_a_webhook_is_signed_over_the_bytes_as_sent_and_fits_the_published_schema(tmp_path: Path) -> None:
    async with Receiver().listening() as receiver:
        store = SqliteStore(tmp_path / "db")
        outbox = Outbox(store, [WebhookSink("hook", receiver.url, [SECRET], cluster="c")])
        saved(store, outbox)
        assert await outbox.drain(T + 1) == 1
        assert await outbox.drain(T + 2) == 0
        ((headers, sent),) = receiver.got
        expected = hmac.new(bytes(range(32)), b"abc-1.%d." % int(T + 1) + sent, hashlib.sha256).digest()
        assert headers["webhook-id"] == "abc-1"
        assert headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
        schema = json.loads(resources.files("detectord.sinks").joinpath("schema/alert.schema.json").read_text())
        jsonschema.validate(json.loads(sent), schema)
        await outbox.close()
        store.close()


async def test_a_failed_delivery_is_tried_again_under_the_same_id_even_after_a_restart(tmp_path: Path) -> None:
    async with Receiver("500 Oops", "200 OK").listening() as receiver:
        store = SqliteStore(tmp_path / "db")
        outbox = Outbox(store, [WebhookSink("hook", receiver.url)])
        saved(store, outbox)
        await outbox.drain(T)
        assert await outbox.drain(T + 1) == 0
        await outbox.close()
        store.close()
        store = SqliteStore(tmp_path / "db")
        outbox = Outbox(store, [WebhookSink("hook", receiver.url)])
        assert await outbox.drain(T + 10) == 1
        assert [headers["webhook-id"] for headers, _ in receiver.got] == ["abc-1", "abc-1"]
        assert receiver.got[0][1] == receiver.got[1][1]
        assert store.outcomes() == {"delivered": 1}
        assert [one.id for one in store.incidents(open_only=True, limit=5)] == ["abc"]
        await outbox.close()
        store.close()


async def test_a_410_ends_all_sending_to_that_receiver(tmp_path: Path) -> None:
    async with Receiver("410 Gone").listening() as receiver:
        store = SqliteStore(tmp_path / "db")
        outbox = Outbox(store, [WebhookSink("hook", receiver.url)])
        for number in (1, 2):
            saved(store, outbox, number)
        await outbox.drain(T)
        assert len(receiver.got) == 1
        assert store.outcomes() == {"gone": 2}
        await outbox.close()
        store.close()


@pytest.mark.parametrize(("answer", "after"), [("429 Slow\r\nretry-after: 700", 700.0), ("503 Busy", None)])
async def test_a_busy_receivers_wish_is_kept(answer: str, after: float | None) -> None:
    async with Receiver(answer).listening() as receiver:
        sink = WebhookSink("hook", receiver.url)
        delivery = await sink.deliver(Outgoing("i", "hook", b"{}", T, T), T)
        assert (delivery.outcome, delivery.after) == (Outcome.RETRY, after)
        await sink.close()


async def test_a_receiver_that_is_not_there_is_tried_again() -> None:
    sink = WebhookSink("hook", "http://127.0.0.1:9/hook", timeout=2.0)
    assert (await sink.deliver(Outgoing("i", "hook", b"{}", T, T), T)).outcome is Outcome.RETRY
    await sink.close()


def test_the_schedule_ends_and_a_wish_to_wait_is_the_least_wait() -> None:
    retry = Delivery(Outcome.RETRY)
    waits = [next_due(tries, 0.0, retry, lambda low, high: 1.0) for tries in range(1, len(SCHEDULE) + 2)]
    assert waits == [*SCHEDULE, None]
    assert next_due(1, 0.0, Delivery(Outcome.RETRY, after=900.0), lambda low, high: 1.0) == 900.0
    assert next_due(1, 0.0, Delivery(Outcome.DELIVERED), lambda low, high: 1.0) is None


def test_a_body_stays_under_the_limit_and_says_what_it_left_out() -> None:
    sent = body.own(msgspec.structs.replace(alert(), incident=incident(200, "x" * 500)), "c")
    assert len(sent) < body.MAX_BYTES
    assert json.loads(sent)["data"]["evidence_omitted"] > 0


def test_alertmanagers_form_pairs_firing_and_resolved() -> None:
    firing = json.loads(body.alertmanager(alert(), "c"))
    closed = msgspec.structs.replace(incident(), state=IncidentState.CLOSED, closed=T + 60)
    ended = msgspec.structs.replace(alert(), change=Change.CLOSED, incident=closed)
    resolved = json.loads(body.alertmanager(ended, "c"))
    assert (firing["version"], firing["status"], resolved["status"]) == ("4", "firing", "resolved")
    for key in ("fingerprint", "startsAt"):
        assert firing["alerts"][0][key] == resolved["alerts"][0][key]
    assert firing["alerts"][0]["endsAt"].startswith("0001")
    assert firing["alerts"][0]["labels"]["gpu"] == "6"


def test_an_operator_reads_what_where_why_and_what_to_do() -> None:
    text = describe(alert())
    for words in ("CRITICAL n1 GPU 6 (0000:81:00.0, serial 1650)", "fallen off", "because", "reboot", "exclude n1"):
        assert words in text


@pytest.mark.parametrize("secret", ["plain", "whsec_!!!", "whsec_" + base64.b64encode(b"short").decode()])
def test_a_wrong_secret_is_refused_with_what_is_right(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"whsec_|bytes"):
        signing.decode_secret(secret)


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="http"):
        WebhookSink("hook", "ftp://x/y")


def test_a_second_scorer_on_the_same_file_and_a_file_that_is_no_database_are_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    with pytest.raises(UnavailableError, match="another scorer"):
        SqliteStore(tmp_path / "db")
    store.close()
    (tmp_path / "no").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(UnavailableError, match="no usable database"):
        SqliteStore(tmp_path / "no")


def test_pruning_forgets_the_ended_and_keeps_the_open_and_the_undelivered(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db", retention=10.0)
    ended = msgspec.structs.replace(incident(name="old"), state=IncidentState.CLOSED, closed=T)
    changes = [IncidentChanged(Change.CLOSED, ended, 2, False), IncidentChanged(Change.OPENED, incident(), 1, True)]
    store.save(changes, [Outgoing("abc-1", "hook", b"{}", T, T)])
    store.prune(T + 100)
    assert [one.id for one in store.incidents(open_only=False, limit=9)] == ["abc"]
    assert len(store.due("hook", T + 100, 9)) == 1
    store.close()
