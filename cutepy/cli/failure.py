"""How a command says that it cannot do what was asked."""

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Write `error: message` to standard error and end the command with exit code 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)
