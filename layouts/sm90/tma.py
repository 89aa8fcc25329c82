"""TMA copies of tiles: from a global tensor and a shared-memory layout to boxes and a descriptor.

References
----------
CuTe ``atom/copy_traits_sm90_tma.hpp``: ``construct_tma_gbasis`` and ``make_tma_copy_desc``.
PTX ISA, "cp.async.bulk.tensor".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from ..algebra import AnyLayout, coalesce, composition, right_inverse
from ..arguments import integer
from ..basis import ScaledBasis
from ..capacity import SMEM_BYTES_PER_CTA, smem_overrun
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid
from ..int_tuple import flatten_to_tuple, product_each, wrap
from ..layout import Layout, make_identity_layout
from ..modes import depth, rank, size
from .arch import DTYPE_BITS, TMA_SWIZZLE, UNIT_BYTES, AnySwizzleMode, pattern_bytes
from .gmma import split_swizzle
from .tensor_map import SMEM_ALIGNMENT, TensorMap, tma_dtype

_OPERATION = "make_tma_copy"


@dataclass(frozen=True)
class TmaBox:
    """One TMA instruction of a tile's copy.

    Parameters
    ----------
    coordinate : tuple of int
        Start of the box in the tile, in the modes of the global tensor.
    smem_offset_bytes : int
        Start of the box in shared memory, relative to the tile's start.
    tx_bytes : int
        Bytes that it counts at an mbarrier.
    """

    coordinate: tuple[int, ...]
    smem_offset_bytes: int
    tx_bytes: int


@dataclass(frozen=True)
class TmaCopy(Drawable):
    """TMA copy of a tile: a descriptor, and one instruction for each box.

    Parameters
    ----------
    tensor_map : TensorMap
        The descriptor.
    modes : tuple of int
        Mode of the global tensor of each dimension of the descriptor.
    boxes : tuple of TmaBox
        The instructions, in the order of shared memory.
    multicast : int
        Number of CTAs that share the tile, each loading a part of every box into all.
    box_shape : tuple of int
        Extents of a box in the descriptor's dimensions, before a multicast divides it.
    """

    tensor_map: TensorMap
    modes: tuple[int, ...]
    boxes: tuple[TmaBox, ...]
    multicast: int
    box_shape: tuple[int, ...]

    def _picture_(self) -> Grid:
        from .pictures import tma_grid

        return tma_grid(self)

    @property
    def tx_bytes(self) -> int:
        """Bytes that arrive at the mbarrier of a CTA for the whole tile: the argument of ``expect_tx``."""
        return sum(box.tx_bytes for box in self.boxes)

    @property
    def smem_alignment(self) -> int:
        """Bytes to which the tile must be aligned in shared memory: 128, or the swizzle pattern's period."""
        mode = self.tensor_map.swizzle
        return max(SMEM_ALIGNMENT, pattern_bytes(mode)) if mode != "INTER" else SMEM_ALIGNMENT

    def check_smem_address(self, address: int) -> None:
        """Raise LayoutError unless a tile may start at this shared-memory address.

        Examples
        --------
        >>> copy = make_tma_copy(Layout((64, 64), (64, 1)), Layout((64, 64), (64, 1)), dtype="f16")
        >>> copy.check_smem_address(0x40)
        Traceback (most recent call last):
            ...
        cutepy.layouts.errors.LayoutError: check_smem_address(64): the tile must start at a multiple of 128 bytes, \
got 0x40; TMA faults
        """
        address = integer("check_smem_address", "address", address)
        if address % self.smem_alignment:
            # Measured on an H200, 2026-11-22, with loads and stores of each swizzle.
            swizzled = "TMA swizzles by the bits of the address, so rows lie as other rows of the pattern: wrong bytes"
            raise LayoutError(
                "check_smem_address",
                (address,),
                f"the tile must start at a multiple of {self.smem_alignment} bytes, got {address:#x}",
                "TMA faults" if address % SMEM_ALIGNMENT else swizzled,
            )


def make_tma_copy(
    gmem_layout: Layout, smem_layout: AnyLayout, *, dtype: str, global_address: int = 0, multicast: int = 1
) -> TmaCopy:
    """Return the TMA copy of a tile between global and shared memory, with the largest box that CuTe would find.

    Parameters
    ----------
    gmem_layout : Layout
        The global tensor in elements: flat, of rank 1 to 5, one mode contiguous; the other strides multiples of 16
        bytes.
    smem_layout : Layout or ComposedLayout
        The tile of one stage, its modes those of `gmem_layout`; a swizzle in either form, as in `make_gmma_desc`.
    dtype : str
        Element type: ``f16``, ``bf16``, ``e4m3`` ...
    global_address : int
        Bytes, a multiple of 16.
    multicast : int
        CTAs of a cluster among which the box is divided.

    Raises
    ------
    LayoutError
        If the two do not fit, or the hardware cannot do it: the message says which rule.

    Examples
    --------
    >>> from cutepy.layouts import tile_to_shape
    >>> from cutepy.layouts.sm90 import gmma_layout_atom
    >>> sA = tile_to_shape(gmma_layout_atom("K", "SW128", 16), (128, 128))
    >>> copy = make_tma_copy(Layout((4096, 512), (512, 1)), sA, dtype="f16")
    >>> copy.tensor_map.box, copy.tensor_map.swizzle, copy.tx_bytes
    ((64, 128), 'SW128', 32768)
    >>> [(box.coordinate, box.smem_offset_bytes) for box in copy.boxes]
    [((0, 0), 0), ((0, 64), 16384)]
    """
    operands = (gmem_layout, smem_layout)
    dtype = tma_dtype(_OPERATION, operands, dtype)
    bits = DTYPE_BITS[dtype]
    global_address = integer(_OPERATION, "global_address", global_address)
    multicast = integer(_OPERATION, "multicast", multicast)
    _check_gmem(operands, gmem_layout)
    try:
        parts = split_swizzle(_OPERATION, smem_layout, bits, tuple(TMA_SWIZZLE))
    except LayoutError as error:
        raise LayoutError(_OPERATION, operands, error.condition, error.hint) from error
    tile: Layout = parts.tile
    mode = parts.mode
    if rank(tile) != rank(gmem_layout):
        raise LayoutError(
            _OPERATION,
            operands,
            f"the tile has rank {rank(tile)}, the global tensor {rank(gmem_layout)}",
            "give one stage of the tile, for instance take(smem_layout, 0, 2)",
        )
    extents = _box_extents(operands, tile)
    missing = [mode for mode in range(rank(gmem_layout)) if mode not in extents and gmem_layout[mode].size() != 1]
    modes = (*extents, *missing)
    boxes = _boxes(operands, tile, mode, extents, bits)
    _check_smem(operands, boxes)
    box_shape = tuple(extents.get(mode, 1) for mode in modes)
    box = _divide_among(operands, list(box_shape), multicast)
    dims = tuple(gmem_layout[mode].size() for mode in modes)
    strides = _strides_bytes(operands, gmem_layout, modes, dims, bits)
    try:
        tensor_map = TensorMap(dtype, dims, strides, box, global_address=global_address, swizzle=mode)
    except LayoutError as error:
        raise error.within(_OPERATION, operands) from error
    return TmaCopy(tensor_map, modes, boxes, multicast, box_shape)


def _check_smem(operands: tuple[object, ...], boxes: tuple[TmaBox, ...]) -> None:
    """Check that the boxes fit in the shared memory of a CTA."""
    end_bytes = max(box.smem_offset_bytes + box.tx_bytes for box in boxes)
    if end_bytes > SMEM_BYTES_PER_CTA:
        fitting = sum(box.smem_offset_bytes + box.tx_bytes <= SMEM_BYTES_PER_CTA for box in boxes)
        remedy = f"take a smaller tile: {fitting} of its {len(boxes)} boxes fit"
        raise LayoutError(_OPERATION, operands, f"the tile of {smem_overrun(end_bytes, remedy)}")


def _check_gmem(operands: tuple[object, ...], gmem_layout: object) -> None:
    if not isinstance(gmem_layout, Layout):
        raise LayoutError(_OPERATION, operands, f"the global tensor must be a Layout, got {type(gmem_layout).__name__}")
    if depth(gmem_layout) > 1 or any(not isinstance(stride, int) for stride in wrap(gmem_layout.stride)):
        raise LayoutError(_OPERATION, operands, "the global tensor must be flat, one stride for each mode")


def _box_extents(operands: tuple[object, ...], tile: Layout) -> dict[int, int]:
    """Return mode -> extent of the largest box that is contiguous in the tile, contiguous mode first.

    Walking shared memory from index 0, the run of each mode that starts at its element 0 and steps by 1.
    """
    coordinates = make_identity_layout(product_each(tile.shape))
    walk = coalesce(composition(coordinates, right_inverse(tile)))
    extents: dict[int, int] = {}
    for extent, stride in zip(flatten_to_tuple(walk.shape), flatten_to_tuple(walk.stride), strict=True):
        if not isinstance(stride, ScaledBasis) or stride.value != 1 or stride.modes[0] in extents:
            break
        extents[stride.modes[0]] = extent
    if not extents:
        raise LayoutError(_OPERATION, operands, "no run of the tile's elements is contiguous in shared memory")
    return extents


def _boxes(
    operands: tuple[object, ...], tile: Layout, mode: AnySwizzleMode, extents: dict[int, int], bits: int
) -> tuple[TmaBox, ...]:
    starts = [range(0, size(tile, i), extents.get(i, 1)) for i in range(rank(tile))]
    tx_bytes = prod(extents.values()) * bits // 8
    alignment = SMEM_ALIGNMENT if mode == "INTER" else min(pattern_bytes(mode), max(SMEM_ALIGNMENT, tx_bytes))
    boxes = []
    for coordinate in product(*starts):
        offset_bytes = tile(*coordinate) * bits // 8
        if offset_bytes % alignment:
            raise LayoutError(
                _OPERATION,
                operands,
                f"the box at {coordinate} starts at byte {offset_bytes} of the tile; it must be at a multiple of"
                f" {alignment} bytes",
                "tile shared memory with a GMMA layout atom",
            )
        boxes.append(TmaBox(coordinate, offset_bytes, tx_bytes))
    return tuple(sorted(boxes, key=lambda box: box.smem_offset_bytes))


def _divide_among(operands: tuple[object, ...], box: list[int], multicast: int) -> tuple[int, ...]:
    """Divide a box among the CTAs of a multicast, outermost dimension first."""
    if multicast < 1:
        raise LayoutError(_OPERATION, operands, f"multicast must be at least 1, got {multicast}")
    whole, left = tuple(box), multicast
    for i in reversed(range(len(box))):
        if box[i] % left and left % box[i]:
            raise LayoutError(
                _OPERATION,
                operands,
                f"{multicast} CTAs do not divide the box {whole} evenly:"
                f" {left} of them would share an extent of {box[i]}",
            )
        box[i], left = max(1, box[i] // left), -(-left // box[i])
    if left > 1:
        raise LayoutError(_OPERATION, operands, f"{multicast} CTAs are more than the box has elements")
    return tuple(box)


def _strides_bytes(
    operands: tuple[object, ...], gmem_layout: Layout, modes: tuple[int, ...], dims: tuple[int, ...], bits: int
) -> tuple[int, ...]:
    strides = [wrap(gmem_layout.stride)[mode] for mode in modes]
    if strides[0] != 1 and dims[0] != 1:
        raise LayoutError(
            _OPERATION,
            operands,
            f"mode {modes[0]} is contiguous in shared memory, but has stride {strides[0]} in global memory",
            "give both the same major: TMA does not transpose",
        )
    for mode, stride in zip(modes[1:], strides[1:], strict=True):
        if stride * bits % 8:
            raise LayoutError(_OPERATION, operands, f"the stride of mode {mode}, {stride}, is no number of bytes")
    # The stride of a dimension of extent 1 is never taken: any that the hardware accepts will do.
    taken = zip(dims[1:], strides[1:], strict=True)
    return tuple(stride * bits // 8 if extent > 1 else UNIT_BYTES for extent, stride in taken)
