"""Errors of a command: one line on standard error, and exit code 2."""

from typing import NoReturn

import typer

from cutepy.extras import explained


def fail(message: str) -> NoReturn:
    """Write `error: message` to standard error and end the command with exit code 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def fail_by(error: Exception) -> NoReturn:
    """End the command with an exception's message; the group of commands reports missing extras."""
    if isinstance(error, ModuleNotFoundError) and explained(error, "") is not error:
        raise error
    fail(str(error))
