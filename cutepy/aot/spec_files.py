"""Read a description of what to export from a file: TOML, or Python that makes an `Extension`."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import runpy
import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from cutepy.aot.names import SpecError, check_kind
from cutepy.aot.spec import Extension, Op
from cutepy.aot.variant import SM_COUNT_ARGUMENT, Variant
from cutepy.host.specs import TensorSpec

_NUMBERS: dict[str, str] = {
    "int32": "Int32",
    "int64": "Int64",
    "float32": "Float32",
    "float64": "Float64",
    "bool": "Boolean",
}
_VARIABLE = "extension"


def load(path: str | Path) -> Extension:
    """Read a description.

    A `.py` file defines `extension`, an `Extension`. A `.toml` file has the fields of `Extension`, with a table
    `[[op]]` for each operation, which has the fields of `Op`, and in it a table `[[op.variant]]` for each kernel, which
    has the fields of `Variant`. Its `function` is "file.py:name", beside the TOML file, or "module:name". Of its
    `arguments`, a table is a `TensorSpec`; "int32", "int64", "float32", "float64" and "bool" are numbers that callers
    pass; "sm_count" is `SM_COUNT_ARGUMENT`; "none" is None; what else there is, is the value of a `cutlass.Constexpr`
    parameter.

    Raises
    ------
    SpecError
        If the file does not say what it has to; the message names it.

    Examples
    --------
    >>> load("kernels.toml")  # doctest: +SKIP
    """
    path = Path(path)
    if not path.is_file():
        raise SpecError(f"there is no file {path}")
    if path.suffix == ".py":
        return _from_python(path)
    if path.suffix != ".toml":
        raise SpecError(f"{path} must be a .toml or .py file")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from None
    try:
        return _extension(data, path)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{path}: {error}") from error


def _from_python(path: Path) -> Extension:
    with _beside(path.parent), _failures_of(path):
        found = runpy.run_path(str(path)).get(_VARIABLE)
    if not isinstance(found, Extension):
        raise SpecError(f"{path} must define {_VARIABLE}, a cutepy.aot.Extension, got {found!r}")
    return dataclasses.replace(found, file=path)


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let what lies in a folder be imported; nothing there stands for a module of the standard library."""
    first_installed = next((n for n, place in enumerate(sys.path) if place.endswith("-packages")), len(sys.path))
    place = str(folder.resolve())
    sys.path.insert(first_installed, place)
    try:
        yield
    finally:
        sys.path.remove(place)


@contextmanager
def _failures_of(path: Path) -> Iterator[None]:
    """Say in one line what went wrong while a file was run, and where in it."""
    try:
        yield
    except ModuleNotFoundError:
        raise  # The command line says what to install.
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        raise SpecError(f"{where}: {type(error).__name__}: {error}") from error


def _extension(data: Mapping[str, Any], path: Path) -> Extension:
    fields = _fields(data, "the file", ("name", "version", "description"), ("name",))
    return Extension(ops=[_op(op, path.parent) for op in _tables(data, "op", "[[op]]")], file=path, **fields)


def _op(data: Mapping[str, Any], folder: Path) -> Op:
    known = (
        "name",
        "results",
        "mutates",
        "doc",
        "zero_if_empty",
        "reference",
        "tolerance",
        "test_extents",
        "test_numbers",
    )
    fields = _fields(data, "[[op]]", known, ("name",))
    variants = [
        _variant(variant, f"variant {n} of {fields['name']}", folder)
        for n, variant in enumerate(_tables(data, "variant", "[[op.variant]]"))
    ]
    return Op(variants=variants, **fields)


def _tables(data: Mapping[str, Any], name: str, header: str) -> list[Mapping[str, Any]]:
    """Give the tables of one header, of which there may be several."""
    tables = data.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise SpecError(f"{name} must be tables, each under {header}, got {name} = {tables!r}")
    return tables


def _variant(data: Mapping[str, Any], where: str, folder: Path) -> Variant:
    known = ("function", "arguments", "when", "cost", "requires", "options", "label")
    fields = _fields(data, where, known, ("function", "arguments"))
    check_kind(f"{where}: arguments", given := fields.pop("arguments"), "a table")
    arguments = {name: _argument(value, f"{where}: {name}") for name, value in given.items()}
    function = _function(fields.pop("function"), where, folder)
    try:
        variant = Variant(function, arguments, **fields)
        compiled_in = [name for name, example in variant.examples.items() if example.constant]
    except (TypeError, ValueError) as error:
        raise SpecError(f"{where}: {error}") from error
    for name in compiled_in:
        if isinstance(value := given.get(name), str) and value in {*_NUMBERS, "sm_count"}:
            raise SpecError(
                f"{where}: {name} must be the value of a cutlass.Constexpr parameter, got {value!r}, which stands for "
                "a number that is passed"
            )
    return variant


def _fields(data: Mapping[str, Any], where: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Any]:
    tables = {"op", "variant"}
    if unknown := data.keys() - {*known, *tables}:
        raise SpecError(f"{where} has no field {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    if missing := set(needed) - data.keys():
        raise SpecError(f"{where} must have {', '.join(sorted(missing))}")
    return {name: value for name, value in data.items() if name not in tables}


def _argument(value: Any, where: str) -> object:  # noqa: ANN401
    if isinstance(value, Mapping):
        known = tuple(field.name for field in dataclasses.fields(TensorSpec))
        try:
            return TensorSpec(**_fields(value, "a table of a tensor", known, ("dtype", "shape")))
        except (TypeError, ValueError) as error:
            raise SpecError(f"{where}: {error}") from error
    if value == "none":
        return None
    if value == "sm_count":
        return SM_COUNT_ARGUMENT
    if isinstance(value, str) and value in _NUMBERS:
        import cutlass

        return getattr(cutlass, _NUMBERS[value])(1)
    return value


def _function(text: Any, where: str, folder: Path) -> Any:  # noqa: ANN401
    check_kind(f"{where}: function", text, "a text")
    home, _, name = text.rpartition(":")
    if not home:
        raise SpecError(f'{where}: function must be "file.py:name" or "module:name", got {text!r}')
    with _beside(folder):
        module = _file(folder / home, where) if home.endswith(".py") else _module(home, where)
    if not hasattr(module, name):
        raise SpecError(f"{where}: {home} has no {name}")
    return getattr(module, name)


def _module(name: str, where: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise SpecError(f"{where}: there is no module {name}, neither beside the file nor installed") from error


def _file(path: Path, where: str) -> Any:  # noqa: ANN401
    """Import a file once, as a module whose name is nobody else's."""
    path = path.resolve()
    if not path.is_file():
        raise SpecError(f"{where}: there is no file {path}")
    name = f"_exported_{path.stem}_{sha256(bytes(path)).hexdigest()[:8]}"
    if loaded := sys.modules.get(name):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _failures_of(path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
