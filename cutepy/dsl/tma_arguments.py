"""Checks of tensor-map arguments in traced host code: strides, contiguity and address of tensors for TMA.

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

from cutepy.dsl.refusals import add_support, constant, plain, refuse_unless, scalars
from cutepy.dsl.tma_requirements import Requirement, requirements
from cutepy.dsl.version import require


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
    """Add checks to host code that refuse tensors TMA can't address; return the number of tensor maps checked.

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
        add_support(module, text_at)
        ir = require("cutlass._mlir.ir", "Location")
        with module.context, ir.Location.unknown():
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
    """Find the operations in host code that make tensor maps.

    The function reads the text, since access to a value through the DSL adds operations to the host code.
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
    """Return the operations within an operation, nested ones too, in the order of the text."""
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner.operation)


def _name(tensor_map: _TensorMap, names: Sequence[str]) -> str:
    """Name the arguments behind the tensor of a tensor map."""
    if not tensor_map.sources:
        return "a tensor that the host code makes"
    if len(names) != tensor_map.arguments:
        return f"tensor argument {tensor_map.sources[0]}"
    return f"argument {' or '.join(names[n] for n in tensor_map.sources)}"


def _check(
    module: Any,  # noqa: ANN401
    tensor_map: _TensorMap,
    needs: Sequence[Requirement],
    symbol: str,
    names: Sequence[str],
) -> None:
    """Insert the checks of a tensor map before it is made; on failure the function returns an error."""
    ir = require("cutlass._mlir.ir", "InsertionPoint", "IntegerType")
    cute, wide = require("cutlass._mlir.dialects.cute"), ir.IntegerType.get_signless(64)
    name, operation = _name(tensor_map, names), tensor_map.operation
    with ir.InsertionPoint(operation), operation.location:
        tensor = plain(operation.operands[0])
        layout = cute.get_layout(tensor)
        extents, strides = scalars(cute.get_shape(layout)), scalars(cute.get_stride(layout))
        for n, need in enumerate(needs):
            said = need.text if tensor_map.is_argument else re.sub(r"^stride \d+", "a stride", need.text)
            if need.leaf is None:
                extent, value = constant(2), plain(cute.ptrtoint(wide, plain(cute.get_iter(tensor))))
            else:
                extent, value = extents[need.leaf], strides[need.leaf]
            numbers = need.factor, need.expected, need.mask
            refuse_unless(module, f"{symbol}_{n}", f"{name}: {said}", extent, value, numbers)
