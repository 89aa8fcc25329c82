"""Checks within traced host code: comparisons that return from the function with an error text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutepy.dsl.version import require

TEXT_BYTES = 512
"""Size of the buffer for an error text."""


def add_support(module: Any, text_at: int | None = None) -> None:  # noqa: ANN401
    """Add the support function of the comparisons to a module, once; `refuse_unless` inserts the comparisons.

    Parameters
    ----------
    module : Module
    text_at : int, optional
        Address that a refusal is written to. By default it is raised through TVM-FFI. The function returns -1.
    """
    ir = require("cutlass._mlir.ir", "Location")
    named = (o.operation.attributes for o in module.body.operations if "sym_name" in o.operation.attributes)
    if _COMPARE in (attributes["sym_name"].value for attributes in named):
        return
    with module.context, ir.Location.unknown():
        _add(module, _support(text_at))


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return the plain MLIR value of an object of the DSL."""
    return getattr(value, "value", value)


def constant(number: int) -> Any:  # noqa: ANN401
    """Insert a 64-bit constant."""
    ir = require("cutlass._mlir.ir", "IntegerType", "IntegerAttr")
    arith, wide = require("cutlass._mlir.dialects.arith"), ir.IntegerType.get_signless(64)
    return arith.constant(wide, ir.IntegerAttr.get(wide, number))


def scalars(part: Any) -> list[Any]:  # noqa: ANN401
    """Insert the numbers of a shape or stride, 64 bits each."""
    ir = require("cutlass._mlir.ir", "IntegerType", "OpResultList")
    arith, cute = require("cutlass._mlir.dialects.arith"), require("cutlass._mlir.dialects.cute")
    wide, got = ir.IntegerType.get_signless(64), cute.get_scalars(part)
    values = list(map(plain, got if isinstance(got, ir.OpResultList) else [got]))
    return [value if value.type == wide else arith.extsi(wide, value) for value in values]


def refuse_unless(module: Any, symbol: str, text: str, extent: Any, value: Any, numbers: Sequence[int]) -> None:  # noqa: ANN401
    """Insert a comparison of some bits of a value, scaled, with their expected values, at the insertion point.

    Parameters
    ----------
    module : Module
        With `add_support`.
    symbol : str
        Of the text, not yet in the module.
    text : str
        With places for the value, and for an eighth of it when it is scaled, if it has any (as `printf`).
    extent, value : Value
        Of 64 bits. Nothing is compared where the extent is 1 or less: it has no use for its stride.
    numbers : (int, int, int)
        Factor of the value, expected bits, and mask of the compared bits.
    """
    ir = require("cutlass._mlir.ir", "Type", "IntegerType")
    cuda, func, llvm = (require(f"cutlass._mlir.dialects.{dialect}") for dialect in ("cuda", "func", "llvm"))
    _add(module, f'llvm.mlir.global private constant @{symbol}("{text}\\00") {{addr_space = 0 : i32}}')
    address = llvm.mlir_addressof(ir.Type.parse("!llvm.ptr"), symbol)
    arguments = [extent, value, *map(constant, numbers), address]
    cuda.return_if_error([func.call([ir.IntegerType.get_signless(32)], _COMPARE, arguments)])


_COMPARE = "cutepy_compare"


def _support(text_at: int | None) -> str:
    """Write the support function: it compares, and on a mismatch formats the text and returns -1."""
    if text_at is None:
        declared = (
            "llvm.func @TVMFFIErrorSetRaisedFromCStr(!llvm.ptr, !llvm.ptr)\n"
            'llvm.mlir.global private constant @cutepy_value_error("ValueError\\00") {addr_space = 0 : i32}'
        )
        place = "%place = llvm.alloca %room x i8 : (i64) -> !llvm.ptr"
        raised = (
            "%kind = llvm.mlir.addressof @cutepy_value_error : !llvm.ptr\n"
            "llvm.call @TVMFFIErrorSetRaisedFromCStr(%kind, %place) : (!llvm.ptr, !llvm.ptr) -> ()"
        )
    else:
        declared, raised = "", ""
        place = f"%at = llvm.mlir.constant({text_at} : i64) : i64\n%place = llvm.inttoptr %at : i64 to !llvm.ptr"
    return f"""
{declared}
llvm.func @snprintf(!llvm.ptr, i64, !llvm.ptr, ...) -> i32
func.func private @{_COMPARE}(
    %extent: i64, %value: i64, %factor: i64, %expected: i64, %mask: i64, %text: !llvm.ptr) -> i32 {{
  %one = arith.constant 1 : i64
  %zero = arith.constant 0 : i64
  %used = arith.cmpi sgt, %extent, %one : i64
  %scaled = arith.muli %value, %factor : i64
  %apart = arith.xori %scaled, %expected : i64
  %left = arith.andi %apart, %mask : i64
  %wrong = arith.cmpi ne, %left, %zero : i64
  %refused = arith.andi %used, %wrong : i1
  %code = scf.if %refused -> (i32) {{
    %room = arith.constant {TEXT_BYTES} : i64
    %eight = arith.constant 8 : i64
    %bytes = arith.divsi %scaled, %eight : i64
    {place}
    %length = llvm.call @snprintf(%place, %room, %text, %value, %bytes)
      vararg(!llvm.func<i32 (ptr, i64, ptr, ...)>) : (!llvm.ptr, i64, !llvm.ptr, i64, i64) -> i32
    {raised}
    %minus = arith.constant -1 : i32
    scf.yield %minus : i32
  }} else {{
    %fine = arith.constant 0 : i32
    scf.yield %fine : i32
  }}
  return %code : i32
}}
"""


def _add(module: Any, text: str) -> None:  # noqa: ANN401
    """Append operations, given as text, to a module."""
    ir = require("cutlass._mlir.ir", "Module", "InsertionPoint")
    parsed = ir.Module.parse(text)
    with ir.InsertionPoint(module.body):
        for operation in parsed.body.operations:
            operation.operation.clone()
