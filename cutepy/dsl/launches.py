"""Launch facts of compiled host code, as far as they are constants in it.

The host code is MLIR of the LLVM dialect. A launch is a call with the address of a configuration, a struct of CUDA's
runtime on the stack that stores fill. So a field is known if all stores to the field store one constant. The host code
is not run, since it may print or end the process.

References: `cudaLaunchConfig_t` and `cudaLaunchAttribute` of CUDA's driver_types.h.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from cutepy.dsl.version import require
from cutepy.runtime.program import LaunchFacts

_LAUNCH = "_cudaLaunchKernelEx"
_KERNEL_PREFIX = "kernels_"
# Fields of the configuration, and of an attribute: {id, padding, value}.
_BLOCK, _SMEM, _ATTRIBUTES = 1, 2, 4
_ID, _VALUE = 0, 2
_CLUSTER = 4
# placeholder for an index that the bindings return separately, as a value
_DYNAMIC = -(2**31)

Place = tuple[Hashable, ...]
"""Memory location: the allocation, and the indices into it."""


def read_launches(module: Any) -> tuple[LaunchFacts, ...]:  # noqa: ANN401
    """List the launches in host code, in the order of its text: compiled MLIR module -> facts."""
    found = []
    for function in module.body.operations:
        if function.operation.name == "llvm.func":
            operations = [o.operation for region in function.regions for block in region for o in block]
            calls = [o for o in operations if o.name == "llvm.call" and _attribute(o, "callee") == _LAUNCH]
            if calls:
                memory = _Memory(operations)
                found += [memory.launch(*list(call.operands)[:2]) for call in calls]
    return tuple(found)


class _Memory:
    """Stores of a function to its stack: place -> stored values."""

    def __init__(self, operations: Iterable[Any]) -> None:
        self._stored: dict[Place, list[Any]] = {}
        stores = [o for o in operations if o.name == "llvm.store"]
        # Pointers first: the address of a store may itself have been stored.
        for store in sorted(stores, key=lambda o: str(o.operands[0].type) != "!llvm.ptr"):
            value, address = store.operands
            if (place := self._place(address)) is not None:
                self._stored.setdefault(place, []).append(value)

    def launch(self, config: Any, kernel: Any) -> LaunchFacts:  # noqa: ANN401
        """Return the facts of a launch call with these operands."""
        name = _attribute(_owner(kernel).operands[0].owner, "global_name").removeprefix(_KERNEL_PREFIX)
        base = self._place(config)
        if base is None:
            return LaunchFacts(name, None, None, None)
        block = self._dim3(*base, _BLOCK)
        return LaunchFacts(name, block, self._cluster(base), self._constant((*base, _SMEM)))

    def _cluster(self, base: Place) -> tuple[int, int, int] | None:
        array = self._stored.get((*base, _ATTRIBUTES), [])
        attributes = self._place(array[0]) if len(array) == 1 else None
        if attributes is None:
            return None
        for place in self._stored:
            *attribute, last = place
            if attribute[: len(attributes)] == [*attributes] and last == _ID and self._constant(place) == _CLUSTER:
                return self._dim3(*attribute, _VALUE)
        return 1, 1, 1

    def _dim3(self, *place: Hashable) -> tuple[int, int, int] | None:
        x, y, z = (self._constant((*place, axis)) for axis in range(3))
        return None if x is None or y is None or z is None else (x, y, z)

    def _constant(self, place: Place) -> int | None:
        values = {_constant(value) for value in self._stored.get(place, [])}
        return values.pop() if len(values) == 1 else None

    def _place(self, address: Any) -> Place | None:  # noqa: ANN401
        """Trace an address back to its allocation; None if it comes from elsewhere."""
        operation = _owner(address)
        if operation is None:
            return None
        if operation.name == "llvm.alloca":
            return (operation,)
        if operation.name == "llvm.getelementptr":
            base = self._place(operation.operands[0])
            return None if base is None else (*base, *_indices(operation))
        if operation.name == "llvm.load":
            held = self._place(operation.operands[0])
            values = self._stored.get(held, []) if held else []
            return self._place(values[0]) if len(values) == 1 else None
        return None


def _indices(operation: Any) -> Iterator[Hashable]:  # noqa: ANN401
    """Return the indices of an address: numbers, and values of computed ones; a leading zero is left out."""
    values = iter(list(operation.operands)[1:])
    for position, index in enumerate(operation.attributes["rawConstantIndices"]):
        if index == _DYNAMIC:
            value = next(values)
            constant = _constant(value)
            index = _identity(value) if constant is None else constant
        if position or index:
            yield index


def _constant(value: Any) -> int | None:  # noqa: ANN401
    operation = _owner(value)
    if operation is None or operation.name != "llvm.mlir.constant":
        return None
    attribute = operation.attributes["value"]
    number = getattr(attribute, "value", None)
    return number if isinstance(number, int) else None


def _identity(value: Any) -> Hashable:  # noqa: ANN401
    """Return a key that identifies a value; its name would do too, but takes numbering the whole function."""
    return "value", require("cutlass._mlir.ir", "Value").Value.__hash__(value)


def _owner(value: Any) -> Any:  # noqa: ANN401
    """Return the operation that defines a value; None for an argument of a block.

    Operations can be compared and hashed. Values can't: the DSL overloads their operators, to trace.
    """
    owner = value.owner
    return getattr(owner, "operation", owner) if hasattr(owner, "operands") or hasattr(owner, "operation") else None


def _attribute(operation: Any, name: str) -> str:  # noqa: ANN401
    attributes = operation.attributes
    return str(attributes[name].value) if name in attributes else ""
