"""Which versions of the CuTe DSL cutepy works with, and what it says when something is missing from the one here."""

import importlib
import importlib.metadata
from typing import Any

DISTRIBUTION = "nvidia-cutlass-dsl"
# Tested with the first; pyproject.toml asks for this range.
SUPPORTED = "4.8.1 <= version < 5"


def require(module: str, *names: str) -> Any:  # noqa: ANN401 - the DSL is untyped
    """Import a module of the DSL and check that it has the given names.

    Parameters
    ----------
    module : str
        Dotted name, such as ``"cutlass.cute"``.
    *names : str
        Attributes that the caller is going to use.

    Returns
    -------
    module

    Raises
    ------
    ImportError
        If the DSL is absent, or its version lacks the module or one of the names; the message says which versions
        are supported.

    Examples
    --------
    >>> require("cutlass.cute", "no_such_name")  # doctest: +ELLIPSIS, +SKIP
    Traceback (most recent call last):
        ...
    ImportError: cutlass.cute of nvidia-cutlass-dsl 4.8.1 lacks no_such_name; cutepy supports 4.8.1 <= version < 5
    """
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(_missing(module), name=module) from error
    lacking = [name for name in names if not hasattr(found, name)]
    if lacking:
        raise ImportError(
            f"{module} of {DISTRIBUTION} {installed()} lacks {', '.join(lacking)}; cutepy supports {SUPPORTED}",
            name=module,
        )
    return found


def installed() -> str | None:
    """Return the installed version of the DSL, or None."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def _missing(module: str) -> str:
    version = installed()
    if version is None:
        return f"{module} needs the CuTe DSL, which is not installed: pip install 'cutepy[dsl]'"
    return f"{DISTRIBUTION} {version} has no {module}; cutepy supports {SUPPORTED}"
