from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from detectord.agent.events import WINDOW, EventMaker
from detectord.agent.spool import Spool
from detectord.core.errors import UnavailableError
from detectord.core.model import Event, Item, Provenance, Subject, SubjectKind
from detectord.core.ports import LogRecord, Lost
from detectord.signals import discover_logs
from detectord.transport.mqtt import Backoff

T = 1_800_000_000.0
GPU = Item(Subject("n", SubjectKind.GPU, "GPU-7"), {"pci": "0000:3b:00.0"})


def maker(accept_injected: bool = False) -> EventMaker:
    return EventMaker("n", discover_logs(), lambda: T + 1, accept_injected)


def record(sequence: int, text: str, at: float = T, from_kernel: bool = True) -> LogRecord:
    return LogRecord("boot", sequence, at, text, from_kernel=from_kernel)


def xid(code: int = 79, pci: str = "0000:3b:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}, pid=1, name=a, something"


def test_the_pci_address_becomes_the_uuid_by_inventory_or_by_the_drivers_own_line() -> None:
    one = maker()
    assert one.take(record(1, xid()))[0].subject.id == "pci:0000:3b:00.0"
    one = maker()
    one.learn([GPU])
    assert one.take(record(1, xid()))[0].subject.id == "GPU-7"
    one.take(record(2, "NVRM: GPU at PCI:0000:4c:00: GPU-00000000-1111-2222-3333-444444444444"))
    (event,) = one.take(record(3, xid(pci="0000:4c:00")))
    assert event.subject.id == "GPU-00000000-1111-2222-3333-444444444444"
    assert event.provenance is Provenance.KERNEL


def test_a_process_cannot_teach_a_false_uuid() -> None:
    one = maker(accept_injected=True)
    text = "NVRM: GPU at PCI:0000:4c:00: GPU-00000000-1111-2222-3333-444444444444"
    one.take(record(1, text, from_kernel=False))
    assert one.take(record(2, xid(pci="0000:4c:00")))[0].subject.id == "pci:0000:4c:00.0"


def test_what_a_process_wrote_is_refused_and_counted_unless_allowed() -> None:
    one = maker()
    assert one.take(record(1, xid(), from_kernel=False)) == []
    assert one.refused["injected"] == 1
    (event,) = maker(accept_injected=True).take(record(1, xid(), from_kernel=False))
    assert event.provenance is Provenance.INJECTED


def test_repeats_within_a_minute_are_counted_and_told_when_it_is_over() -> None:
    one = maker()
    events = [event for number in range(100_000) for event in one.take(record(number, xid(), T + number * 0.0005))]
    assert len(events) == 1
    assert one.tick(T + WINDOW - 1) == []
    (late,) = one.tick(T + WINDOW)
    assert (late.count, late.sequence) == (99_999, 99_999)
    assert one.flush() == []


def test_a_real_line_is_never_a_repeat_of_an_injected_one() -> None:
    one = maker(accept_injected=True)
    assert len(one.take(record(1, xid(), from_kernel=False))) == 1
    assert len(one.take(record(2, xid()))) == 1


def test_lost_records_become_an_event_with_their_number() -> None:
    one = maker()
    (event,) = one.take(Lost(17, "overrun", "boot", 5))
    assert (event.kind, event.detail) == ("log_lost", {"count": 17, "reason": "overrun"})
    assert one.lost["overrun"] == 17


def events(count: int) -> list[Event]:
    one = maker()
    return [one.take(record(number, xid(pci=f"{number:04x}:01:00")))[0] for number in range(count)]


def test_the_spool_keeps_events_position_and_inventory_over_a_restart_until_they_are_acknowledged(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "agent.db")
    some = events(3)
    spool.add(some, ("boot", 2))
    spool.add(some, ("boot", 2))
    spool.inventory = (GPU,)
    first = spool.session
    spool.close()
    spool = Spool(tmp_path / "agent.db")
    assert spool.pending(10) == some
    assert (spool.position, spool.inventory, spool.session) == (("boot", 2), (GPU,), first + 1)
    spool.forget([some[0].key, some[2].key, "unknown"])
    assert spool.pending(10) == [some[1]]
    spool.close()


def test_a_node_whose_state_was_wiped_speaks_in_a_newer_session(tmp_path: Path) -> None:
    before = Spool(tmp_path / "a.db", now=T)
    after = Spool(tmp_path / "b.db", now=T + 5)
    assert after.session > before.session
    before.close()
    after.close()


def test_what_fails_half_way_is_undone_and_the_spool_goes_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "agent.db")
    first, second = events(2)
    broken = msgspec.structs.replace(second, detail={"text": "\ud800"})
    with pytest.raises(UnicodeEncodeError):
        spool.add([first, broken], ("boot", 9))
    assert (spool.pending(9), spool.position) == ([], None)
    spool.add([second], ("boot", 1))
    assert spool.pending(9) == [second]
    spool.close()


def test_a_full_spool_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "agent.db", max_bytes=2000)
    some = events(50)
    spool.add(some)
    kept = spool.pending(100)
    assert kept == some[-len(kept) :]
    assert len(kept) + spool.dropped == 50
    spool.close()


def test_a_spool_that_cannot_be_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError, match=r"agent\.state"):
        Spool(tmp_path / "file" / "agent.db")


def test_backoff_doubles_to_its_cap_and_begins_anew_only_after_a_connection_that_lasted() -> None:
    class Most:
        def uniform(self, a: float, b: float, /) -> float:
            return b

    backoff = Backoff(Most())
    assert [backoff.wait(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.wait(29.0) == 60
    assert backoff.wait(31.0) == 1
