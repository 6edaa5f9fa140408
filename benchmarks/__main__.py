"""``make bench``: run every benchmark and print its table."""

from __future__ import annotations

from benchmarks import latency, wire_size

if __name__ == "__main__":
    wire_size.main()
    latency.main()
