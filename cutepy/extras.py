"""Packages that cutepy's extras install, and the error that says which of them are missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_DISTRIBUTIONS = {
    "cuda": ("nvidia-cutlass-dsl", "dsl"),
    "cupti": ("cupti-python", "profile"),
    "cutlass": ("nvidia-cutlass-dsl", "dsl"),
    "flask": ("flask", "explore"),
    "hypothesis": ("hypothesis", "testing"),
    "jinja2": ("jinja2", "dsl"),
    "matplotlib": ("matplotlib", "plot"),
    "numpy": ("numpy", "dsl"),
    "platformdirs": ("platformdirs", "dsl"),
    "pytest": ("pytest", "testing"),
    "torch": ("torch", "dsl"),
    "triton": ("triton", "triton"),
    "tvm_ffi": ("apache-tvm-ffi", "dsl"),
    "werkzeug": ("flask", "explore"),
}
"""Module -> the distribution that has it, and the extra of cutepy that installs the distribution."""


class MissingPackagesError(ModuleNotFoundError):
    """Error of a part of cutepy whose packages are not installed.

    Parameters
    ----------
    user : str
        Feature that needs them, such as ``cutepy.simulate``.
    modules : tuple of str
        The missing modules, of `_DISTRIBUTIONS`.
    extra : str, optional
        The extra of cutepy that installs them all. Default: those that install each.
    instead : str, optional
        Remedy beside the installation, such as ``set CUTEPY_CACHE_DIR``.

    Attributes
    ----------
    user, modules, extra, instead
        As given.

    Examples
    --------
    >>> print(MissingPackagesError("cutepy.simulate", ("numpy", "cutlass")))
    cutepy.simulate needs numpy and nvidia-cutlass-dsl, which are not installed: pip install 'cutepy[dsl]'
    """

    def __init__(self, user: str, modules: tuple[str, ...], extra: str | None = None, instead: str = "") -> None:
        self.user, self.modules, self.extra, self.instead = user, modules, extra, instead
        names = [*dict.fromkeys(_DISTRIBUTIONS[module][0] for module in modules)]
        extras = [extra] if extra else [*dict.fromkeys(_DISTRIBUTIONS[module][1] for module in modules)]
        *first, last = names
        listed = f"{', '.join(first)} and {last}, which are" if first else f"{last}, which is"
        message = f"{user} needs {listed} not installed: pip install 'cutepy[{','.join(extras)}]'"
        super().__init__(f"{message}, or {instead}" if instead else message, name=modules[0])

    def __reduce__(self) -> tuple[type[MissingPackagesError], tuple[str, tuple[str, ...], str | None, str]]:
        return MissingPackagesError, (self.user, self.modules, self.extra, self.instead)

    def of(self, user: str) -> MissingPackagesError:
        """Return the same error for another part of cutepy, the requested one."""
        return MissingPackagesError(user, self.modules, self.extra, self.instead)


def require(user: str, *modules: str, extra: str | None = None, instead: str = "") -> None:
    """Raise unless modules can be imported; none is imported here.

    Parameters
    ----------
    user : str
        Feature that needs them.
    *modules : str
        Of the packages that extras install.
    extra : str, optional
        The extra that installs all of them. Default: those that install each.
    instead : str, optional
        Remedy beside the installation.

    Raises
    ------
    MissingPackagesError
        Naming all that are missing.
    """
    missing = tuple(module for module in modules if not is_installed(module))
    if missing:
        raise MissingPackagesError(user, missing, extra, instead)


def is_installed(module: str) -> bool:
    """Return whether a module can be found.

    Examples
    --------
    >>> is_installed("json"), is_installed("no_such_module")
    (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a finder hides it
        return False
    except ValueError:  # it is imported, and knows no more where from
        return True


def explained(error: ModuleNotFoundError, user: str) -> ModuleNotFoundError:
    """Explain an import error: a missing package of an extra, or the error itself for other modules."""
    if isinstance(error, MissingPackagesError):
        return error.of(user)
    root = (error.name or "").partition(".")[0]
    if root not in _DISTRIBUTIONS or is_installed(root):
        return error
    return MissingPackagesError(user, (root,))


@contextmanager
def needed_by(user: str) -> Iterator[None]:
    """Report the missing extra, where a module of one is not found in the context.

    Raises
    ------
    MissingPackagesError
    """
    try:
        yield
    except ModuleNotFoundError as error:
        found = explained(error, user)
        if found is error:
            raise
        raise found from None


def loaded_on_use(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package that loads some of its names when they are first asked for.

    Parameters
    ----------
    package : str
        Its name; its ``__all__`` has these names and others.
    homes : mapping of str to str
        Name -> the module of the package that defines it.

    References
    ----------
    PEP 562.
    """

    def load(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        known = ", ".join(vars(sys.modules[package])["__all__"])
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")

    def names() -> list[str]:
        found = vars(sys.modules[package])
        return sorted({*found, *found["__all__"]})

    return load, names
