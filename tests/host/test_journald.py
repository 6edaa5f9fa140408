from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectord.core.errors import InputError, UnavailableError
from detectord.core.ports import LogRecord, Lost
from detectord.host.journald import JournaldLog, parse_entry


def entry(number: int, facility: str = "0", message: object = "NVRM: hello") -> bytes:
    fields = {
        "__CURSOR": f"s=ab;i={number:x};b=b0;m=1;t=2;x=3",
        "__REALTIME_TIMESTAMP": "1700000000500000",
        "_BOOT_ID": "b0",
        "_TRANSPORT": "kernel",
        "PRIORITY": "4",
        "SYSLOG_FACILITY": facility,
        "MESSAGE": message,
    }
    return json.dumps(fields).encode()


def program(folder: Path, *lines: bytes) -> str:
    (folder / "entries").write_bytes(b"".join(line + b"\n" for line in lines))
    script = folder / "journalctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\ncat {folder}/entries\n')
    script.chmod(0o755)
    return str(script)


def test_an_entry_is_a_record_with_the_journals_number_and_wall_time() -> None:
    record, cursor = parse_entry(entry(26))
    assert record == LogRecord("b0", 26, 1700000000.5, "NVRM: hello", 4, from_kernel=True)
    assert cursor.startswith("s=ab;i=1a;")


def test_what_a_process_wrote_to_the_kernel_log_is_not_the_kernels() -> None:
    assert not parse_entry(entry(1, facility="1"))[0].from_kernel


def test_a_message_of_bytes_is_text() -> None:
    assert parse_entry(entry(1, message=[104, 105, 255]))[0].text == "hi\ufffd"


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_anything_else_is_an_input_error(line: bytes) -> None:
    with pytest.raises(InputError):
        parse_entry(line)


async def test_entries_come_in_order_a_bad_line_is_counted_and_the_cursor_is_kept(tmp_path: Path) -> None:
    log = JournaldLog(program=program(tmp_path, entry(1), b"no json", entry(3)))
    items: list[LogRecord | Lost] = []
    async for item in log.records():
        items.append(item)
        if len(items) == 3:
            await log.close()
    assert [item.sequence if isinstance(item, LogRecord) else item for item in items] == [
        1, Lost(1, "malformed", "b0", 1), 3,
    ]  # fmt: skip
    assert log.cursor == "s=ab;i=3;b=b0;m=1;t=2;x=3"
    assert f"--after-cursor={log.cursor}" in log.command()


async def test_a_journal_that_says_nothing_or_is_not_there_is_unavailable(tmp_path: Path) -> None:
    for name in (program(tmp_path), "/nonexistent/journalctl"):
        with pytest.raises(UnavailableError, match="journalctl"):
            async for _ in JournaldLog(program=name).records():
                pass
