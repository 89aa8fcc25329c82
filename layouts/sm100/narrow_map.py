"""Tensor maps of elements of 4 and 6 bits, which Blackwell's TMA copies packed or spread over 16 bytes each 16.

References
----------
CUDA driver API, cuTensorMapEncodeTiled: ``CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B`` and the two others. PTX ISA, "Sub-byte
types" of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..arguments import integers, one_of
from ..sm90 import tensor_map_bits as fields
from ..sm90.im2col_map import Im2colTensorMap
from ..sm90.mapped_tensor import MAX_BOX, MAX_RANK, bits_of, check_all_read, read_tensor
from ..sm90.tensor_map import TensorMap

_GROUP = 16
_SPREAD_ELEMS = 128
_SPREAD_ALIGNMENT = 32


class NarrowType(NamedTuple):
    """Element type below 8 bits: groups of 16 elements in global and in shared memory.

    Attributes
    ----------
    bits : int
        Width of an element in global memory, where all are packed.
    group_bytes : int
        Bytes of 16 elements in shared memory: packed, or with a gap after them.
    code : int
        Code in a tensor map; 13 of b6x16_p32 follows from the order of the driver's codes and is not confirmed.
    """

    bits: int
    group_bytes: int
    code: int


NARROW_TYPES: Final = {
    "b4x16": NarrowType(4, 8, 11),
    "b4x16_p64": NarrowType(4, 16, 12),
    "b6x16_p32": NarrowType(6, 16, 13),
}
"""PTX's names; the driver's are 16U4_ALIGN8B, 16U4_ALIGN16B and 16U6_ALIGN16B."""


@dataclass(frozen=True)
class NarrowTensorMap(TensorMap):
    """Tensor map of elements of 4 or 6 bits: copies a box of a packed tensor to shared memory.

    Extents count elements. ``b4x16`` stays packed; ``b4x16_p64`` and ``b6x16_p32`` take 16 bytes for every 16 elements,
    which lie in the first 8 or 12 of them: the form that ``.kind::f8f6f4`` reads.

    Parameters
    ----------
    dtype : str
        ``b4x16``, ``b4x16_p64`` or ``b6x16_p32``.
    dims, strides_bytes, box, global_address, element_strides, swizzle, l2_promotion, oob_fill
        As of `TensorMap`; no interleave, and out-of-bounds elements are zero. Spread types need addresses and strides
        of 32 bytes, a dimension 0 of multiples of 128, a box of 128 along it, and no swizzle, SW128 or SW128_32B.

    Raises
    ------
    LayoutError
        If a rule above does not hold.

    Examples
    --------
    >>> packed = NarrowTensorMap("b4x16", (512, 128), (256,), (256, 128), swizzle="SW128")
    >>> packed.smem_bytes, packed.box_bytes
    (16384, 16384)
    >>> spread = NarrowTensorMap("b4x16_p64", (512, 128), (256,), (128, 64), swizzle="SW128")
    >>> spread.smem_bytes, spread.box_bytes
    (8192, 4096)
    >>> NarrowTensorMap.decode(spread.encode()) == spread
    True
    """

    def __post_init__(self) -> None:
        self._normalise()
        object.__setattr__(self, "box", integers("NarrowTensorMap", "box", self.box))
        self._check_kinds()
        if not 1 <= self.rank <= MAX_RANK:
            raise self._error(f"rank must be 1 to {MAX_RANK}, got {self.rank}", "merge contiguous dimensions")
        if self.interleave != "none":
            raise self._error(f"interleave must be none for {self.dtype}, got {self.interleave}")
        if self.oob_fill != "zero":
            raise self._error(f"out-of-bounds elements of {self.dtype} are zero, got {self.oob_fill}")
        self._check_counts([("box", self.box, self.rank)])
        self._check_tensor()
        self._check_range("box extent", self.box, MAX_BOX, "split the tile into several copies")
        self._check_element_strides()
        if self.spread:
            self._check_spread()
        else:
            if self.dims[0] % 2:
                raise self._error(f"dimension 0 must be even, whole bytes, got {self.dims[0]}")
            self._check_inner("the box's inner extent", self.box[0])
        self._check_size(self.smem_bytes)

    def _check_spread(self) -> None:
        if self.dims[0] % _SPREAD_ELEMS:
            raise self._error(f"dimension 0 must be a multiple of {_SPREAD_ELEMS}, got {self.dims[0]}", "pad it")
        if self.box[0] != _SPREAD_ELEMS:
            raise self._error(f"the box's inner extent must be {_SPREAD_ELEMS}, got {self.box[0]}")
        if self.swizzle not in ("INTER", "SW128", "SW128_32B"):
            raise self._error(f"swizzle must be INTER, SW128 or SW128_32B for {self.dtype}, got {self.swizzle}")

    def _known_dtype(self) -> str:
        found: str = one_of("NarrowTensorMap", self._operands(), "dtype", self.dtype, NARROW_TYPES)
        return found

    def _write_type(self, bits: int) -> int:
        return fields.ELEMENT_TYPE.write(bits, NARROW_TYPES[self.dtype].code)

    @property
    def bits(self) -> int:
        """Width of an element in global memory."""
        return NARROW_TYPES[self.dtype].bits

    @property
    def item_bytes(self) -> int:
        """Alignment of addresses and strides in bytes, where it is more than 16; else 0."""
        return _SPREAD_ALIGNMENT if self.spread else 0

    @property
    def spread(self) -> bool:
        """16 elements take 16 bytes of shared memory."""
        return NARROW_TYPES[self.dtype].group_bytes == _GROUP

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy counts at an mbarrier: those of global memory, packed, of spread types too."""
        return self._elems * self.bits // 8

    @property
    def smem_bytes(self) -> int:
        """Bytes of shared memory that a copy takes, gaps with them."""
        return self._elems // _GROUP * NARROW_TYPES[self.dtype].group_bytes

    @property
    def _elems(self) -> int:
        count = 1
        for extent in self.box_elems:
            count *= extent
        return count

    @classmethod
    def decode(cls, words: Sequence[int]) -> NarrowTensorMap:
        """Return the tensor map of a descriptor's first eight words; further words are ignored.

        Raises
        ------
        LayoutError
            If the words are not those of a tiled tensor map of a narrow type.
        """
        operation = "NarrowTensorMap.decode"
        bits = bits_of(operation, words)
        names = {narrow.code: name for name, narrow in NARROW_TYPES.items()}
        if fields.ROUNDS_TO_TF32.read(bits):
            names = {-1: ""}
        tensor = read_tensor(operation, bits, "a narrow", names)
        box = tuple(fields.BOX.read(bits, i) + 1 for i in range(len(tensor["dims"])))
        tensor_map = cls(**tensor, box=box)
        check_all_read(operation, bits, tensor_map.encode(), "a narrow")
        return tensor_map


def tensor_map_class(bits: int) -> type[TensorMap | Im2colTensorMap]:
    """Return the class of tensor map that the bits of a descriptor are of."""
    if fields.IM2COL.read(bits):
        return Im2colTensorMap
    is_narrow = fields.ELEMENT_TYPE.read(bits) in {one.code for one in NARROW_TYPES.values()}
    return NarrowTensorMap if is_narrow and not fields.ROUNDS_TO_TF32.read(bits) else TensorMap
