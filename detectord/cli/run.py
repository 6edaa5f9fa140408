"""``detectord agent`` and ``scorer``: the long-running commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path | None, typer.Option("--config", help="configuration file")]


def agent(config: ConfigOption = None) -> None:
    """Watch this node and report to the broker.

    Example: detectord agent --config /etc/detectord/detectord.toml
    """
    from detectord import wiring
    from detectord.config import load

    wiring.run_agent(load(config))


def scorer(config: ConfigOption = None) -> None:
    """Judge all nodes' reports, keep incidents, send alerts, advise exclusions.

    Example: detectord scorer --config /etc/detectord/detectord.toml
    """
    from detectord import wiring
    from detectord.config import load

    wiring.run_scorer(load(config))
