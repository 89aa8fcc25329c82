"""Writer of a PyTorch extension's source tree around compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from cutepy.aot.names import SpecError
from cutepy.aot.objects import CompiledVariant
from cutepy.aot.spec import Extension, Op
from cutepy.aot.tables import CPP_NUMBERS, op_tables
from cutepy.aot.tree import Form, test_cases, write_tree
from cutepy.runtime.dtypes import dlpack_type

# at::ScalarType -> torch's name of the dtype.
_DTYPES = {
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Float": "float32",
    "Double": "float64",
    "Float8_e4m3fn": "float8_e4m3fn",
    "Float8_e5m2": "float8_e5m2",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Byte": "uint8",
    "Bool": "bool",
}
_FORM = Form(
    "csrc",
    ("runtime.h", "runtime.cpp", "dispatch.h", "dispatch.cpp", "torch_bridge.h"),
    {
        "csrc/ops.cpp": "torch_ops.cpp.jinja",
        "pyproject.toml": "pyproject.toml.jinja",
        "setup.py": "setup.py.jinja",
        "README.md": "extension_readme.md.jinja",
        "MANIFEST.in": "manifest.in.jinja",
        "src/{name}/__init__.py": "init.py.jinja",
        "src/{name}/__init__.pyi": "init.pyi.jinja",
        "src/{name}/py.typed": None,
        "tests/test_{name}.py": "test.py.jinja",
    },
)


def extension(
    described: Extension,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write a PyTorch extension around ahead-of-time compiled kernels; needs no GPU.

    `pip install --no-build-isolation .` in the folder builds it, where there are torch with CUDA, CUDA's headers and a
    C++ compiler. What it installs needs torch only, neither cutepy nor the DSL.

    Parameters
    ----------
    described : Extension
        The operations, and the kernels that serve each.
    out : path
        The folder to write to.
    overwrite : bool
        True if an earlier export is replaced; else a folder that is not empty is refused. Other folders always are.
    progress : callable
        Receives a line before each compilation.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    FileExistsError
        If something is there that is not to be replaced.
    SpecError
        If the description makes no sense, or a kernel needs a feature that exported libraries lack.

    Examples
    --------
    >>> from cutepy import aot
    >>> aot.extension(aot.gemm_extension("my_gemm", dtypes=["bfloat16"]), "my_gemm_source")  # doctest: +SKIP
    """
    for op in described.ops:
        _check_dtypes(op)
    return write_tree(
        _FORM,
        described,
        Path(out),
        op_context=_op_context,
        dtypes=[(torch, *dlpack_type(name)) for torch, name in _DTYPES.items()],
        overwrite=overwrite,
        progress=progress,
    )


def _check_dtypes(op: Op) -> None:
    """Refuse tensors of dtypes for which torch has hardly any operators."""
    for variant in op.variants:
        for name, spec in variant.tensors.items():
            if spec.dtype not in _DTYPES.values():
                raise SpecError(
                    f"{op.name}: {name} must be of {', '.join(_DTYPES.values())} in a PyTorch extension, got "
                    f"{spec.dtype}; a C library may have it"
                )


def _op_context(op: Op, compiled: Sequence[CompiledVariant]) -> dict[str, Any]:
    tolerance = op.tolerance or {}
    return {
        **op_tables(op, compiled),
        "schema": _schema(op),
        "cpp_parameters": ", ".join(_cpp_parameter(op, name) for name in op.parameters),
        "cpp_returns": _returns(op, "at::Tensor", "std::tuple<{}>", "void"),
        "py_parameters": ", ".join(_py_parameter(op, name) for name in op.parameters),
        "py_returns": _returns(op, "Tensor", "tuple[{}]", "None"),
        "given_tensors": _listed("address", op.inputs),
        "given_choices": _listed("text", op.choices),
        "given_numbers": _listed("Value::of", op.numbers),
        "reference": op.reference,
        "tolerances": "".join(f", {name}={value!r}" for name, value in tolerance.items()),
        "tests": [repr(case) for case in test_cases(op)],
    }


def _listed(function: str, names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{function}({name})" for name in names) + "}"


def _schema(op: Op) -> str:
    parts = []
    for name in op.parameters:
        kind = op.numbers.get(name, "Tensor")
        if name in op.mutates:
            kind = f"Tensor({ascii_lowercase[op.mutates.index(name)]}!)"
        if name in op.choices:
            kind = "str"
        left_out = name in (*op.optional, *op.choices)
        parts.append(f"{kind}? {name}=None" if left_out else f"{kind} {name}")
    returns = "Tensor" if len(op.results) == 1 else f"({', '.join(['Tensor'] * len(op.results))})"
    return f"{op.name}({', '.join(parts)}) -> {returns}"


def _returns(op: Op, one: str, several: str, none: str) -> str:
    if len(op.results) == 1:
        return one
    return several.format(", ".join([one] * len(op.results))) if op.results else none


def _cpp_parameter(op: Op, name: str) -> str:
    if name in op.numbers:
        return f"{CPP_NUMBERS[op.numbers[name]]} {name}"
    if name in op.choices:
        return f"std::optional<c10::string_view> {name}"
    return f"const {'std::optional<at::Tensor>' if name in op.optional else 'at::Tensor'}& {name}"


def _py_parameter(op: Op, name: str) -> str:
    kind = "str" if name in op.choices else op.numbers.get(name, "Tensor")
    return f"{name}: {kind} | None = None" if name in (*op.optional, *op.choices) else f"{name}: {kind}"
