"""``detectord parse``: what detectord makes of any text an operator pastes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from detectord.core.errors import ConfigError, InputError

app = typer.Typer(help="Show what detectord makes of a text.", no_args_is_help=True)
File = Annotated[list[str] | None, typer.Argument(help="a file, or - for standard input (the default)")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line")]


def _text(name: str) -> str:
    """Bytes that are no UTF-8 are replaced: logs hold such lines, and one of them must not hide the others."""
    if name == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return Path(name).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error


def _print(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    for row in rows:
        if as_json:
            typer.echo(json.dumps(row, ensure_ascii=False, allow_nan=False))
        else:
            typer.echo("  ".join(f"{key}={_short(value)}" for key, value in row.items() if value is not None))


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _one(files: list[str] | None) -> str:
    names = files or ["-"]
    if len(names) != 1:
        raise ConfigError(f"one file is read at a time, {len(names)} were given")
    return _text(names[0])


@app.command("kernel-log", epilog="Example: dmesg | detectord parse kernel-log --json")
def kernel_log(files: File = None, as_json: Json = False) -> None:
    """XID, SXID and off-bus lines of a kernel log in any common format."""
    from detectord.signals.log_lines import parse_kernel_log

    _print(parse_kernel_log(_one(files).splitlines()), as_json)


@app.callback()
def _root() -> None:
    """Show what detectord makes of a text."""
