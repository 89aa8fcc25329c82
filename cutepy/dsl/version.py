"""Supported versions of the CuTe DSL, and errors for missing parts."""

import importlib
import importlib.metadata
import os
import sys
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any

from cutepy.extras import explained, require as require_packages

DISTRIBUTION = "nvidia-cutlass-dsl"
_FOLDER = "nvidia_cutlass_dsl"
# pyproject.toml requires this range; differences within it are detected by features, never by the number.
SUPPORTED = "4.6.2 <= version < 5"


def require(module: str, *names: str) -> Any:  # noqa: ANN401 - the DSL is untyped
    """Import a module of the DSL and check that it has the given names.

    Parameters
    ----------
    module : str
        Dotted name, such as ``"cutlass.cute"``.
    *names : str
        Attributes that the caller is going to use, with dots for attributes of these. `private_names` lists those that
        the DSL doesn't document.

    Returns
    -------
    module

    Raises
    ------
    MissingPackagesError
        If the DSL, or a package that it needs, is absent.
    ImportError
        If its version lacks the module or one of the names; the message says which versions
        are supported.

    Examples
    --------
    >>> require("cutlass.cute", "no_such_name")  # doctest: +ELLIPSIS, +SKIP
    Traceback (most recent call last):
        ...
    ImportError: cutlass.cute of nvidia-cutlass-dsl 4.8.1 lacks no_such_name; cutepy supports 4.6.2 <= version < 5
    """
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        require_packages(module, "cutlass")
        if isinstance(error, ModuleNotFoundError) and (meant := explained(error, module)) is not error:
            raise meant from error
        told = f"{DISTRIBUTION} {installed()} has no {module}; cutepy supports {SUPPORTED}"
        raise ImportError(told, name=module) from error
    if lacking := [name for name in names if not _has(found, name)]:
        raise ImportError(
            f"{module} of {DISTRIBUTION} {installed()} lacks {', '.join(lacking)}; cutepy supports {SUPPORTED}",
            name=module,
        )
    return found


def first(*names: str) -> Any:  # noqa: ANN401
    """Return the first existing attribute of several "module:name".

    Raises
    ------
    ImportError
        If none of the attributes exists.
    """
    for module, _, name in (entry.partition(":") for entry in names):
        with suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    require_packages(names[0], "cutlass")
    raise ImportError(f"{DISTRIBUTION} {installed()} has none of {', '.join(names)}; cutepy supports {SUPPORTED}")


def _has(owner: object, path: str) -> bool:
    try:
        attrgetter(path)(owner)
    except AttributeError:
        return False
    return True


def installed() -> str | None:
    """Return the installed version of the DSL, or None."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def installed_parts() -> tuple[str, ...]:
    """List the distributions that make up the DSL, as their folders' names: each with its version.

    The compiler's binaries come in distributions of their own, for each version of CUDA, and any of them can be
    replaced or added without the others. What is listed is each that lies on Python's path, in its order: importlib's
    metadata would be asked for names, and take half a millisecond for each.

    Examples
    --------
    >>> installed_parts()  # doctest: +SKIP
    ('nvidia_cutlass_dsl-4.8.1', 'nvidia_cutlass_dsl_libs_base-4.8.1', 'nvidia_cutlass_dsl_libs_cu12-4.8.1')
    """
    found = []
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208  a Path for each would triple the time
        except OSError:  # a path that is absent, or an archive
            continue
        named = (name.removesuffix(".dist-info") for name in names if name.endswith(".dist-info"))
        found += sorted(name for name in named if name.lower().replace("-", "_").startswith(_FOLDER))
    return tuple(dict.fromkeys(found))
