"""Run the commands; an error an operator can act on is one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import sys

from detectord.cli import app
from detectord.core.errors import DetectordError


def main() -> None:
    try:
        app()
    except DetectordError as error:
        sys.stderr.write(f"detectord: {error}\n")
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        # `detectord parse ... | head` is no error; stderr is closed so that the interpreter does not complain.
        sys.stderr.close()
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
