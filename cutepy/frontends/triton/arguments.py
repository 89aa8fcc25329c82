"""Arguments of Triton's kernels as parameters of their PTX: tuples are flat, constants left out, descriptors encoded.

References
----------
Triton 3.5 and 3.9, `triton/backends/nvidia/driver.py` and `driver.c`: what a launch passes for each type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutepy.layouts.sm90 import TensorMap
from cutepy.layouts.sm90.arch import SWIZZLE_MODES
from cutepy.layouts.sm100.narrow_map import NARROW_TYPES, NarrowTensorMap
from cutepy.runtime.tensor_maps import TYPES, to_bytes

_FLOATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}
_FP8_TYPES_OF_THE_HOST = {8: 10, 9: 8, 10: 9}
"""Type of an element on the device -> of the same on the host, where they differ."""


@dataclass
class KernelArguments:
    """Arguments of a launch.

    Parameters
    ----------
    descriptors : sequence of mapping
        Metadata of the compiler for each tensor descriptor of the signature, in order.

    Attributes
    ----------
    memory : list
        The tensors that pointers are of.
    """

    descriptors: Sequence[Mapping[str, Any] | None] = ()
    memory: list[Any] = field(default_factory=list)

    def parameters(self, signature: Sequence[Any], arguments: Sequence[Any]) -> Iterator[bytes]:
        """Yield the bytes of each parameter."""
        remaining = iter(self.descriptors)
        for kind, value in _leaves(signature, arguments):
            if kind.startswith("tensordesc"):
                yield from self._descriptor(value, next(remaining, None))
            elif kind.startswith("*"):
                yield self.pointer(value)
            else:
                yield _number(kind, value)

    def pointer(self, value: Any) -> bytes:  # noqa: ANN401
        """Return an address: of a tensor, or of its wrapper; an int is one, and None is 0."""
        if hasattr(value, "data_ptr"):
            self.memory.append(getattr(value, "base", value))
            value = value.data_ptr()
        return struct.pack("<Q", int(value or 0))

    def _descriptor(self, value: Any, metadata: Mapping[str, Any] | None) -> Iterator[bytes]:  # noqa: ANN401
        """Yield a tensor map, or the fields that it would be made of, and then the extents and strides."""
        if metadata is None:
            yield self.pointer(value.base)
            yield from (struct.pack("<q", extent) for extent in (*value.shape, *value.strides))
            yield from (struct.pack("?", flag) for flag in (value.padding == "nan", value.round_f32_to_tf32))
        else:
            yield self._tensor_map(value, metadata)
        yield from (struct.pack("<i", extent) for extent in value.shape)
        yield from (struct.pack("<q", stride) for stride in value.strides)

    def _tensor_map(self, value: Any, metadata: Mapping[str, Any]) -> bytes:  # noqa: ANN401
        if metadata.get("is_im2col"):
            raise NotImplementedError("tensor copies in im2col mode are not simulated")
        address = int.from_bytes(self.pointer(value.base), "little")
        number = _FP8_TYPES_OF_THE_HOST.get(metadata["elem_type"], metadata["elem_type"])
        dtype = (*TYPES, *NARROW_TYPES)[number]
        shape = list(value.shape)
        if metadata.get("fp4_padded"):
            shape[-1] *= 2
        strides = [stride * metadata["elem_size"] for stride in value.strides[:-1]]
        kind = NarrowTensorMap if dtype in NARROW_TYPES else TensorMap
        tensor_map = kind(
            "tf32" if getattr(value, "round_f32_to_tf32", False) else dtype,
            tuple(shape[::-1]),
            tuple(strides[::-1]),
            tuple(metadata["block_size"][::-1]),
            global_address=address,
            swizzle=SWIZZLE_MODES[metadata["swizzle"]],
            oob_fill="nan" if value.padding == "nan" else "zero",
        )
        return to_bytes(tensor_map)


def _leaves(signature: Sequence[Any], arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for kind, value in zip(signature, arguments, strict=True):
        if isinstance(kind, tuple):
            yield from _leaves(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _number(kind: str, value: Any) -> bytes:  # noqa: ANN401
    """Return the bytes of a number of one of Triton's types."""
    if kind == "bf16":
        return struct.pack("<f", value)[2:]
    if kind in _FLOATS:
        return struct.pack(_FLOATS[kind], value)
    bits = max(8, int(kind[1:]))
    return (int(value) % (1 << bits)).to_bytes(bits // 8, "little")
