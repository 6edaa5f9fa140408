"""``detectord exclude``: which nodes to keep out of the next job, for people and for scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from detectord.core.model import Exclusions


class Form(StrEnum):
    TABLE = "table"
    NAMES = "names"
    JSON = "json"


def exclude(
    form: Annotated[
        Form, typer.Option("--format", help="names prints one comma-separated line, as sbatch takes it")
    ] = (Form.TABLE),
    config: Annotated[Path | None, typer.Option("--config", help="configuration file")] = None,
    database: Annotated[Path | None, typer.Option(help="read this scorer's database instead of the broker")] = None,
) -> None:
    """Nodes that detectord advises to exclude, with the reasons and until when.

    Example: sbatch --exclude="$(detectord exclude --format names)" train.sbatch
    """
    from detectord import wiring
    from detectord.config import load

    exclusions = wiring.read_exclusions(load(config), database)
    match form:
        case Form.NAMES:
            typer.echo(",".join(advice.node for advice in exclusions.exclude))
        case Form.JSON:
            import msgspec

            typer.echo(msgspec.json.format(msgspec.json.encode(exclusions), indent=2).decode())
        case Form.TABLE:
            _table(exclusions)


def _table(exclusions: Exclusions) -> None:
    if not exclusions.exclude:
        typer.echo(f"no node is to be excluded (fleet of {exclusions.fleet_nodes})")
    for advice in exclusions.exclude:
        until = datetime.fromtimestamp(advice.expires, UTC).strftime("%Y-%m-%d %H:%M UTC")
        typer.echo(f"{advice.node}  {advice.action.value}  until {until}  because {'; '.join(advice.because)}")
    for advice in exclusions.withheld:
        typer.echo(f"{advice.node}  withheld ({advice.withheld})  because {'; '.join(advice.because)}")
