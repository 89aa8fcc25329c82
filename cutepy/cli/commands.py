"""Groups of commands that report the missing packages of a command in one line."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from cutepy.cli.failure import fail
from cutepy.extras import MissingPackagesError, explained, is_installed

_SIMULATES = ("numpy", "torch", "cutlass")
_COMPILES = (*_SIMULATES, "tvm_ffi", "platformdirs")
_NEEDS = {
    "bench": _COMPILES,
    "export": (*_COMPILES, "jinja2"),
    "sanitize": _SIMULATES,
    "simulate": _SIMULATES,
    "tune gemm": _COMPILES,
    "tune attention": _COMPILES,
}
"""Command, or group of commands -> modules of extras that are named together where one of them is missing."""


class Commands(TyperGroup):
    """Group of commands: where a command needs a package of a missing extra, it ends with a message."""

    def invoke(self, context: Any) -> Any:  # noqa: ANN401 - as of click, which typer has or brings
        """Run the chosen command."""
        try:
            return super().invoke(context)
        except ModuleNotFoundError as error:
            names = _names(context)
            found = explained(error, " ".join(("cutepy", *names)))
            if not isinstance(found, MissingPackagesError):
                raise
            needed = _NEEDS.get(" ".join(names), _NEEDS.get(names[0], ()))
            beside = (module for module in needed if not is_installed(module))
            modules = tuple(dict.fromkeys((*beside, *found.modules)))
            fail(str(MissingPackagesError(found.user, modules, found.extra, found.instead)))


def _names(context: Any) -> list[str]:  # noqa: ANN401
    """Return the names of groups and of the command, without that of the program."""
    names = [] if context.parent is None else [*_names(context.parent)]
    return [*names, context.invoked_subcommand] if context.invoked_subcommand else names
