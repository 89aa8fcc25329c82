"""Read a description of what to export from a file: TOML, or Python that makes an `Extension`."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutepy.aot.names import SpecError
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
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: {error}") from None
    try:
        return _extension(data, path)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{path}: {error}") from error


def _from_python(path: Path) -> Extension:
    sys.path.insert(0, str(path.resolve().parent))
    try:
        found = runpy.run_path(str(path)).get(_VARIABLE)
    finally:
        sys.path.pop(0)
    if not isinstance(found, Extension):
        raise SpecError(f"{path} must define {_VARIABLE}, a cutepy.aot.Extension, got {found!r}")
    return replace(found, file=path)


def _extension(data: Mapping[str, Any], path: Path) -> Extension:
    fields = _fields(data, "the file", ("name", "version", "description"), ("name",))
    return Extension(ops=[_op(op, path.parent) for op in data.get("op", [])], file=path, **fields)


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
        for n, variant in enumerate(data.get("variant", []))
    ]
    return Op(variants=variants, **fields)


def _variant(data: Mapping[str, Any], where: str, folder: Path) -> Variant:
    known = ("function", "arguments", "when", "cost", "requires", "options", "label")
    fields = _fields(data, where, known, ("function", "arguments"))
    arguments = {name: _argument(value) for name, value in fields.pop("arguments").items()}
    return Variant(_function(fields.pop("function"), where, folder), arguments, **fields)


def _fields(data: Mapping[str, Any], where: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Any]:
    tables = {"op", "variant"}
    if unknown := data.keys() - {*known, *tables}:
        raise SpecError(f"{where} has no field {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    if missing := set(needed) - data.keys():
        raise SpecError(f"{where} must have {', '.join(sorted(missing))}")
    return {name: value for name, value in data.items() if name not in tables}


def _argument(value: Any) -> object:  # noqa: ANN401
    if isinstance(value, Mapping):
        return TensorSpec(**value)
    if value == "none":
        return None
    if value == "sm_count":
        return SM_COUNT_ARGUMENT
    if isinstance(value, str) and value in _NUMBERS:
        import cutlass

        return getattr(cutlass, _NUMBERS[value])(1)
    return value


def _function(text: str, where: str, folder: Path) -> Any:  # noqa: ANN401
    home, _, name = text.rpartition(":")
    if not home:
        raise SpecError(f'{where}: function must be "file.py:name" or "module:name", got {text!r}')
    module = _module(folder / home, where) if home.endswith(".py") else importlib.import_module(home)
    if not hasattr(module, name):
        raise SpecError(f"{where}: {home} has no {name}")
    return getattr(module, name)


def _module(path: Path, where: str) -> Any:  # noqa: ANN401
    """Import a file as a module of its name, once."""
    path = path.resolve()
    if not path.is_file():
        raise SpecError(f"{where}: there is no file {path}")
    if (loaded := sys.modules.get(path.stem)) and getattr(loaded, "__file__", None) == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
