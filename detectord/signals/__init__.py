"""One file a signal. ``discover`` and ``discover_logs`` find them by looking; importing this package does nothing."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from detectord.core.ports import LogSignal, Signal


def _modules() -> Iterator[ModuleType]:
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        yield importlib.import_module(f"{__name__}.{found.name}")


def discover() -> tuple[Signal, ...]:
    """All signals that sample, by the name of their module."""
    return tuple(module.SIGNAL for module in _modules() if hasattr(module, "SIGNAL"))


def discover_logs() -> tuple[LogSignal, ...]:
    """All signals that read the kernel log, by the name of their module."""
    return tuple(module.LOG_SIGNAL for module in _modules() if hasattr(module, "LOG_SIGNAL"))
