"""Tensor maps that host code has the driver encode and change: tiled ones, and those of im2col mode.

References
----------
CUDA driver API, "Tensor Map Object Management": cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col,
cuTensorMapReplaceAddress.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, get_args

from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import SWIZZLE_MODES, TMA_SWIZZLE, TMA_UNSETTLED
from cutepy.layouts.sm90.tensor_map import MAX_RANK, Interleave, L2Promotion, OobFill
from cutepy.layouts.sm90.tensor_map_bits import ALIGNMENT, SIZE_BYTES
from cutepy.runtime.devices import device

# CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle and so on, each in the driver's order.
TYPES = "u8 u16 u32 s32 u64 s64 f16 f32 f64 bf16 f32.ftz tf32 tf32.ftz".split()


def encode_tiled(
    target: int,
    dtype: int,
    rank: int,
    address: int | None,
    dims: int,
    strides: int | None,
    box: int,
    steps: int,
    modes: Sequence[int],
) -> None:
    """Encode a tensor map, from the driver's arguments.

    Parameters
    ----------
    target : int
        Address of the 128 bytes.
    dtype, rank : int
    address : int or None
        Of the tensor.
    dims, strides, box, steps : int
        Addresses of arrays: `rank` extents (64 bits), `rank` - 1 strides in bytes (64 bits), `rank` extents of the box
        and element strides (32 bits).
    modes : sequence of int
        Interleave, swizzle, L2 promotion and fill.

    Raises
    ------
    LayoutError
        If it is a map that the driver refuses.
    ValueError
        If an argument is not one of its enumeration, or the target is misaligned.
    """
    tensor = _tensor("cuTensorMapEncodeTiled", target, dtype, rank, address, dims, strides, steps, modes)
    from cutepy.layouts.sm100.narrow_map import NARROW_TYPES, NarrowTensorMap  # a warm start does without

    kind = NarrowTensorMap if tensor["dtype"] in NARROW_TYPES else TensorMap
    made = kind(**tensor, box=_array(ctypes.c_uint32, box, rank))
    ctypes.memmove(target, to_bytes(made), SIZE_BYTES)


def encode_im2col(
    target: int,
    dtype: int,
    rank: int,
    address: int | None,
    dims: int,
    strides: int | None,
    lower: int,
    upper: int,
    channels: int,
    pixels: int,
    steps: int,
    modes: Sequence[int],
) -> None:
    """Encode a tensor map of im2col mode, from the driver's arguments.

    Parameters
    ----------
    target, dtype, rank, address, dims, strides, steps, modes
        As of `encode_tiled`.
    lower, upper : int
        Addresses of arrays: `rank` - 2 corners of the bounding box (32 bits), W first.
    channels, pixels : int

    Raises
    ------
    LayoutError
        If it is a map that the driver refuses.
    ValueError
        If an argument is not one of its enumeration, or the target is misaligned.
    """
    tensor = _tensor("cuTensorMapEncodeIm2col", target, dtype, rank, address, dims, strides, steps, modes)
    made = Im2colTensorMap(
        **tensor,
        lower_corner=_array(ctypes.c_int32, lower, max(rank - 2, 0)),
        upper_corner=_array(ctypes.c_int32, upper, max(rank - 2, 0)),
        channels_per_pixel=channels,
        pixels_per_column=pixels,
    )
    ctypes.memmove(target, to_bytes(made), SIZE_BYTES)


def _tensor(
    call: str,
    target: int,
    dtype: int,
    rank: int,
    address: int | None,
    dims: int,
    strides: int | None,
    steps: int,
    modes: Sequence[int],
) -> dict[str, Any]:
    """Return the tensor's parameters from the arguments of a call."""
    from cutepy.layouts.sm100.narrow_map import NARROW_TYPES

    _check_target(call, target)
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"{call}: the rank must be 1 to {MAX_RANK}, got {rank}")

    def named(what: str, names: Sequence[str], index: int) -> str:
        if not 0 <= index < len(names):
            raise ValueError(f"{call}: the {what} must be 0 to {len(names) - 1}, got {index}")
        return names[index]

    interleave, swizzle, promotion, fill = modes
    is_blackwell = device().capability >= (10, 0)
    if is_blackwell and 0 <= swizzle - len(TMA_SWIZZLE) < len(TMA_UNSETTLED):
        unsettled = [*TMA_UNSETTLED.values()][swizzle - len(TMA_SWIZZLE)]
        raise ValueError(f"{call}: no public document settles the rows that {unsettled} exchanges")
    return {
        "dtype": named("data type", TYPES + [*NARROW_TYPES] * is_blackwell, dtype),
        "dims": _array(ctypes.c_uint64, dims, rank),
        "strides_bytes": _array(ctypes.c_uint64, strides or 0, rank - 1),
        "global_address": address or 0,
        "element_strides": _array(ctypes.c_uint32, steps, rank),
        "interleave": named("interleave", get_args(Interleave), interleave),
        "swizzle": named("swizzle", tuple(TMA_SWIZZLE) if is_blackwell else SWIZZLE_MODES, swizzle),
        "l2_promotion": named("L2 promotion", get_args(L2Promotion), promotion),
        "oob_fill": named("fill", get_args(OobFill), fill),
    }


def to_bytes(tensor_map: TensorMap | Im2colTensorMap) -> bytes:
    """Return the 128 bytes of a tensor map."""
    return struct.pack("<8Q", *tensor_map.encode()).ljust(SIZE_BYTES, b"\0")


def replace_address(target: int, address: int | None) -> None:
    """Replace the address in a tensor map; on an error the map stays unchanged.

    Raises
    ------
    LayoutError
        If TMA can't take the address, or `target` holds no tensor map.
    ValueError
        If the target is misaligned.
    """
    _check_target("cuTensorMapReplaceAddress", target)
    words = (ctypes.c_uint64 * 8).from_address(target)
    replaced = [address or 0, *words[1:]]
    bits = sum(word << 64 * n for n, word in enumerate(replaced))
    from cutepy.layouts.sm100.narrow_map import tensor_map_class

    tensor_map_class(bits).decode(replaced)  # encoding checks the address, too
    words[0] = replaced[0]


def _check_target(call: str, target: int) -> None:
    if target % ALIGNMENT:
        raise ValueError(f"{call}: a tensor map must be at a multiple of 64, got {target:#x}")


def _array(kind: Any, address: int, count: int) -> tuple[int, ...]:  # noqa: ANN401
    return tuple((kind * count).from_address(address)) if count else ()
