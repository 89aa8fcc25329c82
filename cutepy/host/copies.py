"""Temporary copies of arrays for a call: host arrays for a GPU, and read-only arrays.

Arrays that share memory share it in their copies too, at the same alignments. Changes by a kernel are copied back to
writable arrays; a kernel that changes the copy of a read-only array raises an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cutepy.host.arguments import ArgumentError, field_values, is_structure
from cutepy.host.specs import dtype_name, element_strides
from cutepy.runtime.device_tensors import is_read_only

_ALIGNMENT = 512
"""Alignment of a copy, in bytes, where the array's address is a multiple of as many."""


def is_host_array(argument: object) -> bool:
    """Return whether an argument is an array in host memory, other than a torch tensor."""
    if hasattr(argument, "is_cuda") or not hasattr(argument, "__dlpack_device__"):
        return False
    return bool(argument.__dlpack_device__()[0] == 1)


def mapped(function: Callable[[Any], Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Apply a function to each argument, also within tuples, lists and dataclasses, which become tuples."""

    def each(argument: Any) -> Any:  # noqa: ANN401
        if is_structure(argument):
            return mapped(function, field_values(argument))
        if isinstance(argument, (tuple, list)):
            items = mapped(function, argument)
            return items if isinstance(argument, tuple) else list(items)
        return function(argument)

    return tuple(map(each, arguments))


class _Array:
    """Array in host memory, as bytes."""

    def __init__(self, argument: Any) -> None:  # noqa: ANN401
        import torch

        self.argument, self.read_only = argument, is_read_only(argument)
        # Arrays of other libraries are viewed as tensors: numpy imports by DLPack as read-only.
        seen: Any = argument
        if hasattr(argument, "data_ptr"):
            seen = argument.detach()
        elif not hasattr(argument, "__array_interface__"):
            seen = torch.utils.dlpack.from_dlpack(argument)
        self.shape, self.strides = tuple(map(int, seen.shape)), element_strides(seen)
        self.dtype = getattr(torch, dtype_name(seen.dtype))
        address = seen.data_ptr() if hasattr(seen, "data_ptr") else seen.__array_interface__["data"][0]
        if min(self.strides, default=0) < 0 or address % self.dtype.itemsize:
            raise ArgumentError(
                f"an array must have no negative strides, and whole elements, got {self.strides}; copy it"
            )
        steps = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        empty = 0 in self.shape
        self.first = address
        self.end = address if empty else address + (sum(steps) + 1) * self.dtype.itemsize

    def within(self, memory: Any, start: int) -> Any:  # noqa: ANN401
        """View the array in memory, a tensor of bytes whose first has the address `start` in the array's."""
        offset = self.first - start
        size = self.dtype.itemsize
        if 0 in self.shape:
            return memory.new_empty(self.shape, dtype=self.dtype)
        whole = memory[: memory.numel() // size * size].view(self.dtype)
        return whole.as_strided(self.shape, self.strides, whole.storage_offset() + offset // size)


class _Memory:
    """Bytes that arrays share, with their copy on a device."""

    def __init__(self, arrays: Sequence[_Array], device: Any) -> None:  # noqa: ANN401
        import torch

        self.arrays = arrays
        first, end = min(a.first for a in arrays), max(a.end for a in arrays)
        self.start, size = first - first % _ALIGNMENT, end - first + first % _ALIGNMENT
        # The leading bytes, before the arrays, may belong to others: only elements of the arrays are used.
        self.host = torch.frombuffer((ctypes.c_uint8 * max(size, 1)).from_address(self.start), dtype=torch.uint8)
        self.sent = torch.zeros_like(self.host)
        ctypes.memmove(self.sent.data_ptr() + first - self.start, first, end - first)
        place = torch.empty(self.sent.numel() + _ALIGNMENT, dtype=torch.uint8, device=device)
        self.copy = place[-place.data_ptr() % _ALIGNMENT :][: self.sent.numel()].copy_(self.sent)

    def bring_back(self) -> bool:
        """Copy changes to the arrays; return whether every read-only one equals its copy."""
        import torch

        found = self.copy.cpu()
        for array in self.arrays:
            now, before, there = (array.within(memory, self.start) for memory in (found, self.sent, self.host))
            if not array.read_only and not torch.equal(_bits(now), _bits(before)):
                there.copy_(now)
        return all(
            torch.equal(_bits(array.within(found, self.start)), _bits(array.within(self.host, self.start)))
            for array in self.arrays
            if array.read_only
        )


class _DeviceCopy:
    """Read-only array in device memory, with its copy there."""

    def __init__(self, argument: Any) -> None:  # noqa: ANN401
        import torch

        array = torch.utils.dlpack.from_dlpack(argument)
        strides = [stride for extent, stride in zip(array.shape, array.stride(), strict=True) if extent > 1]
        extents = [extent for extent in array.shape if extent > 1]
        count = array.numel() and 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
        self.argument, self._array = argument, array.as_strided((count,), (1,))
        self._copy = self._array.clone()
        self.copy = self._copy.as_strided(array.shape, array.stride())

    def bring_back(self) -> bool:
        """Return whether the array equals its copy."""
        import torch

        return torch.equal(_bits(self._copy), _bits(self._array))


def _bits(tensor: Any) -> Any:  # noqa: ANN401
    import torch

    return tensor.reshape(-1).contiguous().view(torch.uint8)


def _sharing(arrays: Sequence[_Array]) -> list[list[_Array]]:
    """Group arrays whose memory overlaps."""
    groups: list[list[_Array]] = []
    end = 0
    for array in sorted(arrays, key=lambda a: a.first):
        if groups and array.first < end:
            groups[-1].append(array)
        else:
            groups.append([array])
        end = max(end, array.end)
    return groups


class HostCopies:
    """Copies of a call's arrays in host memory, and of its read-only arrays.

    Parameters
    ----------
    arguments : sequence
        Of the call.
    device : torch.device or str
        Device of the copies.

    Attributes
    ----------
    arguments : tuple
        The same with the copies, which are torch tensors, in the places of the arrays.
    """

    def __init__(self, arguments: Sequence[Any], device: Any) -> None:  # noqa: ANN401
        arrays: dict[int, _Array] = {}
        inputs: dict[int, _DeviceCopy] = {}

        def find(argument: Any) -> None:  # noqa: ANN401
            if is_host_array(argument):
                if id(argument) not in arrays:
                    arrays[id(argument)] = _Array(argument)
            elif id(argument) not in inputs and is_read_only(argument):
                inputs[id(argument)] = _DeviceCopy(argument)

        mapped(find, arguments)
        memories = [_Memory(group, device) for group in _sharing([*arrays.values()])]
        copies = {id(a.argument): a.within(m.copy, m.start) for m in memories for a in m.arrays}
        copies |= {id(each.argument): each.copy for each in inputs.values()}
        self._copied: list[_Memory | _DeviceCopy] = [*memories, *inputs.values()]
        self.arguments = mapped(lambda argument: copies.get(id(argument), argument), arguments)

    def bring_back(self) -> None:
        """Copy the changes back to the arrays.

        Raises
        ------
        ArgumentError
            If a copy of an array changed that may not be written to.
        """
        if not all([copied.bring_back() for copied in self._copied]):
            raise ArgumentError(
                "the function wrote to an array that is read-only; pass one that may be written to, such as a copy"
            )
