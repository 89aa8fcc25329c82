"""Writer of a C library's source tree around compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cutepy.aot.objects import CompiledVariant
from cutepy.aot.spec import Extension, Op
from cutepy.aot.tables import CPP_NUMBERS, op_tables
from cutepy.aot.tree import Form, example_extents, write_tree
from cutepy.aot.variant import order_of
from cutepy.runtime.dtypes import dlpack_type

_FORM = Form(
    "src",
    ("runtime.h", "runtime.cpp", "dispatch.h", "dispatch.cpp"),
    {
        "{name}.h": "c_api.h.jinja",
        "src/{name}.cpp": "c_api.cpp.jinja",
        "CMakeLists.txt": "CMakeLists.txt.jinja",
        "README.md": "c_readme.md.jinja",
        "example/main.c": "example.c.jinja",
    },
)


def c(
    described: Extension,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write a C library around ahead-of-time compiled kernels, with a CMake file and an example; needs no GPU.

    Each operation is a C function of its tensors (results too), its numbers and a stream.

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
    >>> aot.c(aot.gemm_extension("my_gemm", dtypes=["float16"]), "my_gemm_c")  # doctest: +SKIP
    """
    used = {spec.dtype for op in described.ops for variant in op.variants for spec in variant.tensors.values()}
    return write_tree(
        _FORM,
        described,
        Path(out),
        op_context=partial(_op_context, described.name),
        dtypes=[(dtype, *dlpack_type(dtype)) for dtype in sorted(used)],
        overwrite=overwrite,
        progress=progress,
    )


def _op_context(prefix: str, op: Op, compiled: Sequence[CompiledVariant]) -> dict[str, Any]:
    return {
        **op_tables(op, compiled),
        "c_parameters": ", ".join([*(_c_parameter(prefix, op, name) for name in _order(op)), "void* stream"]),
        "c_tensors": list(op.tensors),
        "matmul": op.matmul,
        "example": _example(op),
        "example_call": ", ".join([*(_example_argument(op, name) for name in _order(op)), "NULL"]),
    }


def _order(op: Op) -> list[str]:
    """Order a C function's parameters: its kernels' first, then those that choose among kernels."""
    passed = {*op.tensors, *op.numbers}
    return [*(p.name for p in op.variants[0].parameters if p.name in passed), *op.choices]


def _c_parameter(prefix: str, op: Op, name: str) -> str:
    if name in op.numbers:
        return f"{CPP_NUMBERS[op.numbers[name]]} {name}"
    if name in op.choices:
        return f"const char* {name}"
    return f"const {prefix}_tensor* {name}"


def _example_argument(op: Op, name: str) -> str:
    variant = op.variants[0]
    if name in op.choices:
        return f'"{variant.choices[name]}"' if name in variant.choices else "NULL"
    if name not in op.numbers:
        return f"&{name}" if name in variant.tensors else "NULL"
    value = op.test_numbers.get(name, 1)
    return str(value).lower() if op.numbers[name] == "bool" else repr(value)


def _example(op: Op) -> list[dict[str, Any]]:
    """Return the compact tensors of the example."""
    variant = op.variants[0]
    extents = example_extents(op, variant)
    tensors = []
    for name in (name for name in op.tensors if name in variant.tensors):
        spec = variant.tensors[name]
        shape = [extents[x] if isinstance(x, str) else x for x in spec.shape]
        strides, running = [0] * len(shape), 1
        for dimension in order_of(spec):
            strides[dimension] = running
            running *= shape[dimension]
        tensors.append(
            {"name": name, "dtype": spec.dtype, "shape": shape, "strides": strides, "input": name in op.inputs}
        )
    return tensors
