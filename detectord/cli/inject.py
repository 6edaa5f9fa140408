"""``detectord inject``: put a fault into the pipeline, marked as injected from end to end."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from detectord.core.errors import ConfigError

app = typer.Typer(
    help="Inject a fault to test the pipeline; it is marked as injected everywhere.", no_args_is_help=True
)


class Via(StrEnum):
    KMSG = "kmsg"
    FILE = "file"


@app.callback()
def _root() -> None:
    """Inject a fault to test the pipeline; it is marked as injected everywhere."""


@app.command("xid", epilog="Example: detectord inject xid 79 --gpu 0000:3b:00.0 --via kmsg")
def xid(
    code: Annotated[int, typer.Argument(min=1, max=65535, help="the XID")],
    gpu: Annotated[str, typer.Option(help="index, UUID or PCI address of the GPU")] = "0",
    via: Annotated[Via, typer.Option(help="kmsg: the real kernel log; file: append to FILE")] = (Via.KMSG),
    file: Annotated[Path | None, typer.Option(help="the file of --via file, as in agent.kernel_log")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="configuration file")] = None,
) -> None:
    """Write an XID as a process. Agents and scorers ignore it unless accept_injected is set, and it never excludes a
    node outside a dry run."""
    from detectord import wiring
    from detectord.config import load

    settings = load(config)
    if (via is Via.FILE) != (file is not None):
        raise ConfigError("--via file and --file FILE go together")
    pci = wiring.pci_address(settings, gpu)
    text = f"NVRM: Xid (PCI:{pci.removesuffix('.0')}): {code}, pid='<unknown>', name=<unknown>, injected by detectord"
    match via:
        case Via.KMSG:
            wiring.write_kmsg(text)
        case Via.FILE:
            wiring.append_line(file or Path(), text)
    typer.echo(f"injected XID {code} on {pci} via {via.value}")
