"""Tests run against the installed wheel, never the source tree."""

from __future__ import annotations

from pathlib import Path

import detectord

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

if Path(detectord.__file__).resolve().is_relative_to(ROOT / "detectord"):
    raise RuntimeError("the source tree was imported instead of the wheel: run `make test`")
