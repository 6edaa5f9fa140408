from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectord.core.ports import LogRecord
from detectord.formats import nvrm
from detectord.signals import off_bus, sxid, xid
from detectord.signals.log_lines import parse_kernel_log

_HEAD = "NVRM: Xid (PCI:0000:3b:00): "
_PARTS = st.sampled_from(
    [_HEAD, "145, ", "RLW_RXPIPE Nonfatal XC0 i0 Link 03 (", "0x12x ", "0x1 ", "\n",
     "pid=", "9" * 5000, "name=,", "154, ",
     "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, ", "Fatal", "caused by previous Xid ", "RST: Yes, D-RST: No",
     "NVRM: The NVIDIA GPU 0000:3b:00.0", " fallen off the bus"]
)  # fmt: skip


@given(st.lists(_PARTS | st.text(max_size=20), max_size=12).map("".join))
def test_no_text_raises_and_every_detail_can_be_sent(text: str) -> None:
    record = LogRecord("b", 1, 0.0, text)
    for signal in (xid.LOG_SIGNAL, sxid.LOG_SIGNAL, off_bus.LOG_SIGNAL):
        for observation in signal.observe(record):
            msgspec.msgpack.encode(observation.detail)
    list(parse_kernel_log(text.split("\n")))


def test_a_text_of_thousands_of_xids_gives_each_of_them_in_order() -> None:
    codes = [31, 43] * 1500
    found = list(nvrm.find(" ".join(f"{_HEAD}{code}, Ch 1" for code in codes)))
    assert [one.code for one in found] == codes


@pytest.mark.parametrize("data", ["0x12x", "0x" + "f" * 60, "", "0x"])
def test_words_that_are_no_32_bit_numbers_are_left_out(data: str) -> None:
    text = f"{_HEAD}145, RLW_RXPIPE Nonfatal XC0 i1 Link 03 ({data})"
    (observation,) = xid.LOG_SIGNAL.observe(LogRecord("b", 1, 0.0, text))
    assert "intr_info" not in observation.detail
    assert observation.detail["injected_by_driver"] is True
