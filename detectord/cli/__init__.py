"""The commands: parse arguments, call wiring, set the exit code. One file each; heavy imports inside the commands,
so that the agent never loads what only the scorer needs."""

from __future__ import annotations

import typer

from detectord.cli import dry_run, exclude, inject, parse, run, schema

app = typer.Typer(
    name="detectord",
    help="Finds failing GPUs and nodes in training clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("agent")(run.agent)
app.command("scorer")(run.scorer)
app.command("dry-run")(dry_run.dry_run)
app.command("exclude")(exclude.exclude)
app.command("schema")(schema.schema)
app.add_typer(parse.app, name="parse")
app.add_typer(inject.app, name="inject")


@app.callback()
def _root() -> None:
    """Finds failing GPUs and nodes in training clusters."""
