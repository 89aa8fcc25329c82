"""Elements of tensors as TMA copies take them, fill them in, and combine them."""

from __future__ import annotations

import numpy as np

from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.sim.arithmetic.minifloat import f32_to_tf32
from cutepy.sim.machine.lanes import Array
from cutepy.sim.mechanisms.atomics import combine

UNIT_KIND = np.dtype("c16")
"""A type of 16 bytes that numpy moves fast; never computed with."""
ADDRESSES = 1 << 64
"""Addresses are computed modulo this: descriptors may count on the way back."""
_NAN = b"\xf7\x7f"
"""Value of elements outside of a tensor, repeated to their width, if they are not zeros (measured on an H200)."""

Coordinates = tuple[int, ...]
AnyTensorMap = TensorMap | Im2colTensorMap


def kind_of(tensor: AnyTensorMap) -> np.dtype[np.unsignedinteger]:
    """Return the kind of a tensor's elements, as bits."""
    return np.dtype(f"u{tensor.bits // 8}")


def filled(shape: tuple[int, ...], tensor: AnyTensorMap) -> Array:
    """Make an array of the values of elements outside of a tensor."""
    data = np.zeros(shape, kind_of(tensor))
    if tensor.oob_fill == "nan":
        data[...] = np.frombuffer(_NAN * (data.itemsize // len(_NAN)), data.dtype)[0]
    return data


def taken(elements: Array, tensor: AnyTensorMap) -> Array:
    """Return elements as a load takes them: tensors of tf32 are rounded (measured on an H200)."""
    return f32_to_tf32(elements.view(np.float32), "rn") if tensor.dtype.startswith("tf32") else elements


def combined(old: Array, new: Array, element: str, operation: str) -> Array:
    """Return the results of a reduction of elements of a type."""
    name, _, ftz = element.partition(".")
    return combine(operation, "f32" if name == "tf32" else name, old, new, flush=bool(ftz))
