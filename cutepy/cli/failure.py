"""How a command says that it cannot do what was asked."""

from typing import NoReturn

import typer

from cutepy.extras import explained


def fail(message: str) -> NoReturn:
    """Write `error: message` to standard error and end the command with exit code 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def fail_by(error: Exception) -> NoReturn:
    """End the command by what was raised; where a package of an extra is missing, let the group of commands say it."""
    if isinstance(error, ModuleNotFoundError) and explained(error, "") is not error:
        raise error
    fail(str(error))
