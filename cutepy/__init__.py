"""cutepy: see, write, check and run Hopper and Blackwell kernels on NVIDIA's CuTe DSL.

`import cutepy` loads nothing else: its functions, and the package's rooms, are imported on first use.

Examples
--------
>>> import cutepy
>>> print(cutepy.layouts.Layout((4, 8), (8, 1)))
(4,8):(8,1)
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutepy.anatomy.explain import explain as explain
    from cutepy.epilogues.tracing import epilogue as epilogue
    from cutepy.frontends import PtxModule as PtxModule, load_ptx as load_ptx, simulate as simulate
    from cutepy.host.compilation import compile as compile
    from cutepy.host.declared import Deferred as Deferred
    from cutepy.host.parallel_compilation import compile_many as compile_many
    from cutepy.host.specs import PointerSpec as PointerSpec, TensorSpec as TensorSpec
    from cutepy.layouts.render.output import save as save, show as show
    from cutepy.profiling.scopes import scope as scope
    from cutepy.profiling.session import profile as profile
    from cutepy.sim import load_run as load_run

__version__ = "0.1.0"

_LINKS = ("layouts", "kernels")
_FUNCTIONS = {
    "Deferred": "host.declared",
    "PointerSpec": "host.specs",
    "PtxModule": "frontends",
    "TensorSpec": "host.specs",
    "compile": "host.compilation",
    "compile_many": "host.parallel_compilation",
    "epilogue": "epilogues",
    "explain": "anatomy.explain",
    "load_ptx": "frontends",
    "load_run": "sim",
    "profile": "profiling.session",
    "save": "layouts.render.output",
    "scope": "profiling.scopes",
    "show": "layouts.render.output",
    "simulate": "frontends",
}
"""Public function or class -> the module it lives in."""

_NEEDS = {"simulate": ("numpy", "cutlass")}
"""Public function -> modules of extras that it needs once it is called, beside those that its import asks for."""

_KEPT = ("scope",)
"""Public functions whose calls are too short to look them up each time."""

__all__ = [
    "Deferred",
    "PointerSpec",
    "PtxModule",
    "TensorSpec",
    "__version__",
    "compile",
    "compile_many",
    "epilogue",
    "explain",
    "load_ptx",
    "load_run",
    "profile",
    "save",
    "scope",
    "show",
    "simulate",
]


def _check_links() -> None:
    """Raise ImportError where cutepy/layouts or cutepy/kernels is no folder: the checkout lost its symbolic links."""
    here = os.path.dirname(__file__)  # noqa: PTH120  pathlib would cost a fifth of the import budget
    broken = [name for name in _LINKS if not os.path.isdir(os.path.join(here, name))]  # noqa: PTH112, PTH118
    if broken:
        found = ", ".join(f"cutepy/{name}" for name in broken)
        raise ImportError(
            f"{found} must be a symbolic link to the top-level folder of the same name, and is none. Zip archives, "
            "and git with core.symlinks=false, write such links as small text files. "
            "Restore them with `git config core.symlinks true && git checkout -- cutepy`, "
            f"or in {here}: `rm -f {' '.join(broken)}`, then "
            + ", ".join(f"`ln -s ../{name} {name}`" for name in broken)
        )


_check_links()


class _SubmoduleLoader:
    """Loads a submodule as another loader does, and says which extra it lacks."""

    def __init__(self, loader: Any) -> None:  # noqa: ANN401
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return the other loader's attributes, such as the code for `python -m`."""
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:  # noqa: ANN401
        """Make the module, and let it know the loader that it would have had."""
        spec.loader = self._loader
        module = self._loader.create_module(spec)
        spec.loader = self
        return module

    def exec_module(self, module: Any) -> None:  # noqa: ANN401
        """Execute the module.

        Raises
        ------
        MissingPackagesError
            If it imports a package of an extra, and that is not installed.
        """
        module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except ModuleNotFoundError as error:
            from cutepy.extras import explained

            found = explained(error, module.__name__)
            if found is error:
                raise
            raise found from None


class _SubmoduleFinder:
    """Finds the package's submodules where the finders behind this one do."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ANN401
        """Find a submodule; it will say which extra it lacks."""
        if not name.startswith(f"{__name__}.") or name == f"{__name__}.extras" or self not in sys.meta_path:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec: Any = next((s for finder in behind if (s := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _SubmoduleLoader(spec.loader)
        return spec


sys.meta_path.insert(0, _SubmoduleFinder())


def _rooms() -> list[str]:
    import pkgutil

    return [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a room of the package, or a function of one, on first use (PEP 562)."""
    if name in _FUNCTIONS or (not name.startswith("_") and name in _rooms()):
        from cutepy.extras import needed_by, require

        require(f"{__name__}.{name}", *_NEEDS.get(name, ()))
        with needed_by(f"{__name__}.{name}"):
            if name in _FUNCTIONS:
                found = getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
                if name in _KEPT:
                    globals()[name] = found
                return found
            return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join([*_FUNCTIONS, *_rooms()])}")


def __dir__() -> list[str]:
    """Name the rooms and functions too, so that completion finds them before their first use."""
    return sorted({*globals(), *_FUNCTIONS, *_rooms()})
