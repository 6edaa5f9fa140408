from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectord.core.errors import InputError
from detectord.formats import nvrm
from detectord.formats.kmsg import parse_record


def test_all_fields_of_a_record_are_read_and_unknown_ones_skipped() -> None:
    record = parse_record(b"12,900,77000123,c,caller=T7,x;hello\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
    assert (record.priority, record.sequence, record.usec, record.text) == (12, 900, 77000123, "hello")
    assert (record.facility, record.severity, record.continues) == (1, 4, True)
    assert record.values == {"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:3b:00.0"}


def test_an_escaped_newline_is_a_newline_so_that_the_three_line_off_bus_message_is_found() -> None:
    record = parse_record(
        b"4,5,6,-;NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has"
        b"\\x0aNVRM: fallen off the bus and is not responding to commands.\n"
    )
    assert [(found.kind, found.pci) for found in nvrm.find(record.text)] == [("fallen_off", "0000:3b:00.0")]


@pytest.mark.parametrize("data", [b"", b"hello", b"4,5;x", b"a,1,2,-;x", b"4,1,2,-", b"-1,2,3,-;x"])
def test_what_is_no_record_is_an_input_error(data: bytes) -> None:
    with pytest.raises(InputError, match="not a kernel-log record"):
        parse_record(data)


@given(st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes_raise_nothing_else(data: bytes, prefixed: bool) -> None:
    try:
        record = parse_record(b"4,1,2,-;" + data if prefixed else data)
    except InputError:
        assert not prefixed
        return
    list(nvrm.find(record.text))
