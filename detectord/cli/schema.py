"""``detectord schema``: the published schemas, for those who write receivers."""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from typing import Annotated

import typer


class Which(StrEnum):
    ALERT = "alert"
    WIRE = "wire"
    CONFIG = "config"


def schema(
    which: Annotated[Which, typer.Argument(help="webhook body, MQTT messages or configuration file")] = Which.ALERT,
) -> None:
    """Print a JSON schema.

    Example: detectord schema alert > alert.schema.json
    """
    import json

    match which:
        case Which.ALERT:
            text = resources.files("detectord.sinks").joinpath("schema/alert.schema.json").read_text("utf-8")
        case Which.WIRE:
            import msgspec

            from detectord.core.model import Birth, Event, NodeStatus, Report

            _, components = msgspec.json.schema_components([Birth, Report, Event, NodeStatus])
            text = json.dumps({"$defs": components}, indent=2)
        case Which.CONFIG:
            from detectord.config import Config

            text = json.dumps(Config.model_json_schema(), indent=2)
    typer.echo(text.rstrip())
