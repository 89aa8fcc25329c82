"""What TMA asks of the tensors that host code makes tensor maps of, checked where it makes them.

A tensor map holds sixteenths of strides in bytes and of the address, and takes the contiguous mode for granted. The
DSL's host code divides and cuts the remainder off: a pitch of 120 bytes becomes 112, and the kernel reads wrong values.
What the types in the traced code leave open is compared when the host code runs, in a few instructions; where they
prove it, as a divisibility does, the code stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from cutepy.dsl.tma_requirements import Requirement, requirements
from cutepy.dsl.version import require

TEXT_BYTES = 512
"""Room for the text of a refusal."""


def tensor_names(arguments: Mapping[str, object]) -> list[str]:
    """Name the tensors among a function's arguments, those in tuples and dataclasses by their place, in order."""
    tensor = require("cutlass.cute", "Tensor").Tensor

    def found(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401
        if isinstance(value, tensor):
            yield name
        elif hasattr(value, "_fields"):
            for field in value._fields:
                yield from found(f"{name}.{field}", getattr(value, field))
        elif isinstance(value, (tuple, list)):
            for n, item in enumerate(value):
                yield from found(f"{name}[{n}]", item)
        elif is_dataclass(value) and not isinstance(value, type):
            for part in fields(value):
                yield from found(f"{name}.{part.name}", getattr(value, part.name))

    return [leaf for name, value in arguments.items() for leaf in found(name, value)]


def check_tensor_maps(module: Any, names: Sequence[str] = (), text_at: int | None = None) -> int:  # noqa: ANN401
    """Let traced host code refuse tensors that TMA can't address; gives the number of tensor maps that it looks at.

    Parameters
    ----------
    module : Module
        As it was traced: checks are put before the operations that make tensor maps. The code of kernels stays.
    names : sequence of str
        Of the tensors among the function's arguments, in order.
    text_at : int, optional
        Address that a refusal is written to. By default it is raised through TVM-FFI. The function returns -1.
    """
    maps = [m for o in module.body.operations if o.operation.name == "func.func" for m in _tensor_maps(o.operation)]
    wanted = [(m, needs) for m in maps if (needs := requirements(m.tensor, m.coordinates))]
    if wanted:
        ir = require("cutlass._mlir.ir", "Location", "Module", "InsertionPoint")
        with module.context, ir.Location.unknown():
            _add(module, _support(text_at))
            for number, (tensor_map, needs) in enumerate(wanted):
                _check(module, tensor_map, needs, f"cutepy_tma_{number}", names)
    return len(wanted)


@dataclass(frozen=True)
class _TensorMap:
    """An operation that makes a tensor map, the types of its tensor and coordinates, and which tensors they are of.

    `sources` are the function's arguments that the tensor is made of, of the `arguments` that are tensors;
    `is_argument` tells whether it is one of them as it was passed.
    """

    operation: Any
    tensor: str
    coordinates: str
    sources: tuple[int, ...]
    arguments: int
    is_argument: bool


_MAKES = re.compile(r"cute_nvgpu\.atom\.make_non_exec_\w*_tma_")
_SIGNATURE = re.compile(r": \((!cute\.memref<[^\"]*, gmem[^\"]*\"[^\"]*\">).*(!cute\.coord_tensor<[^>]*>)\)$")


def _tensor_maps(function: Any) -> list[_TensorMap]:  # noqa: ANN401
    """Find what makes tensor maps in host code.

    From its text: the DSL makes a value that is looked at an object of its own, and adds operations to do so.
    """
    operations = [o for o in _operations(function) if _MAKES.match(o.name)]
    lines = function.get_asm(print_generic_op_form=True).splitlines() if operations else []
    made_of: dict[str, set[str]] = {}
    arguments: list[str] = []
    found: list[_TensorMap] = []
    for line in lines:
        if not arguments and line.startswith("^"):
            arguments = re.findall(r"(%arg\d+): !cute\.memref", line)
            made_of = {argument: {argument} for argument in arguments}
            continue
        results, _, rest = line.partition(" = ")
        used = set().union(*(made_of.get(name, ()) for name in re.findall(r"%\w+", rest)))
        made_of.update((name, used) for name in re.findall(r"%\w+", results))
        if _MAKES.search(line):
            operation, types = operations[len(found)], _SIGNATURE.search(line)
            tensor, coordinates = types.groups() if types else ("", "")
            sources = tuple(n for n, argument in enumerate(arguments) if argument in used)
            passed = re.findall(r"%\w+", rest)[0] in arguments
            found.append(_TensorMap(operation, tensor, coordinates, sources, len(arguments), passed))
    return [tensor_map for tensor_map in found if tensor_map.tensor]


def _operations(operation: Any) -> Iterator[Any]:  # noqa: ANN401
    """Give the operations within an operation, nested ones too, in the order of the text."""
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner.operation)


def _name(tensor_map: _TensorMap, names: Sequence[str]) -> str:
    """Name the arguments that the tensor of a tensor map is made of."""
    if not tensor_map.sources:
        return "a tensor that the host code makes"
    if len(names) != tensor_map.arguments:
        return f"tensor argument {tensor_map.sources[0]}"
    return f"argument {' or '.join(names[n] for n in tensor_map.sources)}"


def _value(value: Any) -> Any:  # noqa: ANN401
    """Give the plain MLIR value of what the DSL shows as an object of its own."""
    return getattr(value, "value", value)


def _check(
    module: Any,  # noqa: ANN401
    tensor_map: _TensorMap,
    needs: Sequence[Requirement],
    symbol: str,
    names: Sequence[str],
) -> None:
    """Compare what a tensor map needs before it is made, and return from the function if it can't be made."""
    ir = require("cutlass._mlir.ir", "InsertionPoint", "IntegerType", "IntegerAttr")
    arith, cuda, cute, func, llvm = (
        require(f"cutlass._mlir.dialects.{dialect}") for dialect in ("arith", "cuda", "cute", "func", "llvm")
    )
    wide = ir.IntegerType.get_signless(64)
    name, operation = _name(tensor_map, names), tensor_map.operation
    with ir.InsertionPoint(operation), operation.location:
        tensor = _value(operation.operands[0])
        layout = cute.get_layout(tensor)

        def constant(number: int) -> Any:  # noqa: ANN401
            return arith.constant(wide, ir.IntegerAttr.get(wide, number))

        def scalars(part: Any) -> list[Any]:  # noqa: ANN401
            got = cute.get_scalars(part)
            values = list(map(_value, got if isinstance(got, ir.OpResultList) else [got]))
            return [value if value.type == wide else arith.extsi(wide, value) for value in values]

        extents, strides = scalars(cute.get_shape(layout)), scalars(cute.get_stride(layout))
        for n, need in enumerate(needs):
            text = f"{symbol}_{n}"
            said = need.text if tensor_map.is_argument else re.sub(r"^stride \d+", "a stride", need.text)
            _add(module, f'llvm.mlir.global private constant @{text}("{name}: {said}\\00") {{addr_space = 0 : i32}}')
            if need.leaf is None:
                extent, value = constant(2), _value(cute.ptrtoint(wide, _value(cute.get_iter(tensor))))
            else:
                extent, value = extents[need.leaf], strides[need.leaf]
            address = llvm.mlir_addressof(ir.Type.parse("!llvm.ptr"), text)
            numbers = map(constant, (need.factor, need.expected, need.mask))
            code = func.call([ir.IntegerType.get_signless(32)], _CHECK, [extent, value, *numbers, address])
            cuda.return_if_error([code])


_CHECK = "cutepy_check_tensor_map"


def _support(text_at: int | None) -> str:
    """Write what checks call: it compares, and where it refuses formats the text and gives -1.

    An extent of 1 has no use for its stride.
    """
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
func.func private @{_CHECK}(
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
    """Put operations, given as text, at a module's end."""
    ir = require("cutlass._mlir.ir", "Module", "InsertionPoint")
    parsed = ir.Module.parse(text)
    with ir.InsertionPoint(module.body):
        for operation in parsed.body.operations:
            operation.operation.clone()
