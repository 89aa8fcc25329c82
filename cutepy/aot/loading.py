"""Import of a description to export, by its module and name."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import traceback
from pathlib import Path

from cutepy.aot.names import SpecError
from cutepy.aot.spec import Extension


def load(spec: str) -> Extension:
    """Import a description: "module:NAME", or "path/to/file.py:NAME".

    Modules beside the file, or else in the current folder, can be imported, but stand for none of the standard library.

    Raises
    ------
    SpecError
        If the module or the name does not exist, or the import of the module fails.

    Examples
    --------
    >>> load("my_kernels:EXTENSION")  # doctest: +SKIP
    >>> load("gem")
    Traceback (most recent call last):
    ...
    cutepy.aot.names.SpecError: what to export must be gemm, the GEMM that comes with cutepy, or MODULE:NAME or FILE.py:NAME of a cutepy.aot.Extension of your own, such as my_kernels:EXTENSION; got 'gem'
    """  # noqa: E501
    home, _, name = spec.rpartition(":")
    if not home or not name.isidentifier():
        raise SpecError(
            "what to export must be gemm, the GEMM that comes with cutepy, or MODULE:NAME or FILE.py:NAME of a "
            f"cutepy.aot.Extension of your own, such as my_kernels:EXTENSION; got {spec!r}"
        )
    file = Path(home) if home.endswith(".py") else None
    if file is not None and not file.is_file():
        raise SpecError(f"there is no file {file}")
    folder = str((file.parent if file else Path.cwd()).resolve())
    first_installed = next((n for n, place in enumerate(sys.path) if place.endswith("-packages")), len(sys.path))
    sys.path.insert(first_installed, folder)
    try:
        module = importlib.import_module(file.stem if file else home)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{home}.".startswith(f"{error.name}."):
            raise
        raise SpecError(f"there is no module {home}, neither in {folder} nor installed") from error
    except Exception as error:
        raise SpecError(_where(error)) from error
    finally:
        sys.path.remove(folder)
    origin = Path(module.__file__) if module.__file__ else None
    if file is not None and (origin is None or origin.resolve() != file.resolve()):
        raise SpecError(f"{file} is not what `import {file.stem}` gives, which is {origin}; rename the file")
    found = getattr(module, name, None)
    if not isinstance(found, Extension):
        extensions = [key for key, value in vars(module).items() if isinstance(value, Extension)]
        raise SpecError(
            f"{spec} must be a cutepy.aot.Extension, got {found!r}; {home} has {', '.join(extensions) or 'none'}"
        )
    return dataclasses.replace(found, file=origin)


def _where(error: Exception) -> str:
    """Describe an import error in one line, with its place."""
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    own = [frame for frame in foreign if "importlib" not in frame.filename and not frame.filename.startswith("<")]
    place = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"{place}{type(error).__name__}: {error}"
