"""The 128-byte descriptor of a tiled TMA copy, and every rule that cuTensorMapEncodeTiled checks.

References
----------
CUDA driver API, "Tensor Map Object Management": cuTensorMapEncodeTiled. PTX ISA, "Tensor Copies" and
"tensormap.replace". CuTe ``arch/copy_sm90_desc.hpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..arguments import integers
from ..drawable import Drawable
from ..grids.grid import Grid
from . import tensor_map_bits as fields
from .mapped_tensor import (
    MAX_BOX as MAX_BOX,
    MAX_ELEMENT_STRIDE as MAX_ELEMENT_STRIDE,
    MAX_RANK as MAX_RANK,
    SMEM_ALIGNMENT as SMEM_ALIGNMENT,
    Interleave as Interleave,
    L2Promotion as L2Promotion,
    MappedTensor,
    OobFill as OobFill,
    bits_of,
    check_all_read,
    read_tensor,
    tma_dtype as tma_dtype,
    words_of,
)


@dataclass(frozen=True)
class TensorMap(MappedTensor, Drawable):
    """Tensor map: copies a box of a tensor in global memory to or from shared memory.

    Dimension 0 is the contiguous one.

    Parameters
    ----------
    dtype : str
        Element type by PTX's name; ``e4m3``, ``e5m2`` and ``s8`` are kept as ``u8``.
    dims : tuple of int
        Extents of the tensor, 1 to 2**32 each; rank 1 to 5.
    strides_bytes : tuple of int
        Strides of dimensions 1, 2 ...; multiples of 16 (of 32 with interleave 32B) below 2**40.
    box : tuple of int
        Extents of one copy, 1 to 256 each; dimension 0 a multiple of 16 bytes, no more than the swizzle's span.
    global_address : int
        Bytes, a multiple of 16 (of 32 with interleave 32B).
    element_strides : tuple of int
        Every which element is taken, 1 to 8 each; dimension 0 only with interleave. Default: all.
    swizzle : "INTER", "SW32", "SW64", "SW128" or "SW128_32B"
        INTER is none; SW128_32B, the driver's SWIZZLE_128B_ATOM_32B, is for Blackwell.
    interleave : "none", "16B" or "32B"
        Channel-interleaved tensors, such as NC/8HWC8: rank >= 3; 32B goes with SW32 only. Dimension 0 counts pixels,
        each of which is a slice of 16 or 32 bytes whatever `dtype` is; dimension rank-2 counts slices, of which a copy
        takes one, whatever `box` says (measured on an H200).
    l2_promotion : "none", "64B", "128B" or "256B"
        Granularity of L2 fetches.
    oob_fill : "zero" or "nan"
        Value of elements outside of the tensor.

    Raises
    ------
    LayoutError
        If a rule above does not hold.
    TypeError
        If an argument is of another type.

    Examples
    --------
    >>> tma = TensorMap("f16", (512, 4096), (1024,), (64, 128), swizzle="SW128")
    >>> tma.box_bytes
    16384
    >>> TensorMap.decode(tma.encode()) == tma
    True

    References
    ----------
    CUDA driver API, cuTensorMapEncodeTiled.
    """

    box: tuple[int, ...]

    def __post_init__(self) -> None:
        self._normalise()
        object.__setattr__(self, "box", integers("TensorMap", "box", self.box))
        self._check_kinds()
        if not 1 <= self.rank <= MAX_RANK:
            raise self._error(f"rank must be 1 to {MAX_RANK}, got {self.rank}", "merge contiguous dimensions")
        if self.interleave != "none" and self.rank < 3:
            raise self._error(f"interleave {self.interleave} needs rank >= 3, got {self.rank}")
        self._check_counts([("box", self.box, self.rank)])
        self._check_tensor()
        self._check_range("box extent", self.box, MAX_BOX, "split the tile into several copies")
        self._check_element_strides()
        self._check_inner("the box's inner extent", self.box[0])
        self._check_size(self.box_bytes)

    def _operands(self) -> tuple[object, ...]:
        return self.dtype, self.dims, self.strides_bytes, self.box

    def _picture_(self) -> Grid:
        """Draw a table of its dimensions."""
        from .pictures import tensor_map_grid

        return tensor_map_grid(self)

    @property
    def box_elems(self) -> tuple[int, ...]:
        """Elements of a copy along each dimension: the box over the element strides, rounded up.

        With interleave these are pixels, and one slice of channels.
        """
        counts = [-(-extent // step) for extent, step in zip(self.box, self.element_strides, strict=True)]
        if self.interleave != "none":
            counts[self.rank - 2] = 1
        return tuple(counts)

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy moves, and counts at an mbarrier, also where the box sticks out of the tensor."""
        return prod(self.box_elems) * self.item_bytes

    def encode(self) -> tuple[int, ...]:
        """Return the first 64 bytes of the descriptor as eight 64-bit words; the other 64 bytes are unused.

        Examples
        --------
        >>> words = TensorMap("bf16", (64, 32), (128,), (64, 32), swizzle="SW128", global_address=0x1000).encode()
        >>> [f"{word:x}" for word in words]
        ['1000', '800046512', '0', '0', '1f0000003f', '0', '3f00000000000000', '1f']
        """
        bits = self._tensor_bits()
        for i in range(self.rank):
            bits = fields.BOX.write(bits, self.box[i] - 1, i)
        return words_of(bits)

    @classmethod
    def decode(cls, words: Sequence[int]) -> TensorMap:
        """Return the tensor map of a descriptor's first eight words; further words are ignored.

        Raises
        ------
        LayoutError
            If the words are not those of a tiled tensor map.
        """
        bits = bits_of("TensorMap.decode", words)
        tensor = read_tensor("TensorMap.decode", bits, "a tiled")
        box = tuple(fields.BOX.read(bits, i) + 1 for i in range(len(tensor["dims"])))
        tensor_map = cls(**tensor, box=box)
        check_all_read("TensorMap.decode", bits, tensor_map.encode(), "a tiled")
        return tensor_map
