"""Operands of an SM90 atom: shared-memory layouts, descriptors field by field, and owners of A, B and C."""

from __future__ import annotations

import re
from typing import Any

from cutepy.explorer.parameters import BadParameterError, Parameters
from cutepy.explorer.smem_operand import END_BYTES, Form, SmemOperand, check_room, room
from cutepy.layouts import Layout, sm90, to_text
from cutepy.layouts.errors import LayoutError
from cutepy.layouts.render import picture_of, render_raw
from cutepy.layouts.sm90.arch import MAJORS, SWIZZLE_MODES, UNIT_BYTES, Major, SwizzleMode

TYPES = tuple(dict.fromkeys(name.split("_")[2] for name in sm90.wgmma_names()))
"""Types of accumulator, A and B together, by CuTe's names: F32F16F16."""

SOURCES = ("SS", "RS")
COPIES = ("ldmatrix_A", "stmatrix_C")
"""Copies tiled after the MMA: the load of A into registers, and the store of accumulators rounded to 16 bits."""

PICTURES = ("sA", "sB", "A", "B", "C", *COPIES)
MAX_TILE = 512
MAX_STAGES = 16

_WGMMA = Form(sm90.gmma_layout_atom, sm90.GmmaDescriptorIterator)


def operands(asked: Parameters) -> dict[str, Any]:
    """Return the operands of an atom in a tile: layouts, descriptors, and one picture of them."""
    asked.known(
        "types", "n", "source", "major_a", "major_b", "swizzle_a", "swizzle_b", "tile_m", "tile_n", "tile_k", "stages",
        "address", "picture",
    )  # fmt: skip
    traits = _atom(asked)
    tile = _tile(asked, traits)
    stages, address = asked.number("stages", 1, MAX_STAGES, 1), asked.number("address", 0, END_BYTES - UNIT_BYTES, 0)
    warpgroups = max(1, tile[0] // 64) if tile[0] % 64 == 0 else 1
    mma = sm90.TiledMMA(traits, Layout((min(warpgroups, 2), 1, 1)))
    answer: dict[str, Any] = {
        "atom": traits.name,
        "ptx": traits.ptx,
        "shape_mnk": list(traits.shape_mnk),
        "mma": str(mma),
        "threads": mma.thr_size,
    }
    smem: dict[str, SmemOperand] = {}
    staged = [("A", tile[0], 64, traits.a_bits), ("B", tile[1], traits.shape_mnk[1], traits.b_bits)]
    if traits.a_source == "rmem":
        staged = staged[1:]
    size_bytes = sum(extent * tile[2] * stages * bits // 8 for _, extent, _, bits in staged)
    check_room(size_bytes, address, stages)
    for name, extent, mma_extent, bits in staged:
        smem[name] = _operand(asked, name, (extent, tile[2], stages), (mma_extent, traits.shape_mnk[2]), bits, address)
        address += smem[name].size_bytes
        answer[f"s{name}"] = smem[name].told()
    answer["partitions"] = _partitions(mma, tile)
    answer |= room(smem, stages)
    answer["picture"] = _picture(asked, mma, tile, smem)
    return answer


def _operand(
    asked: Parameters, name: str, shape: tuple[int, int, int], mma_shape: tuple[int, int], bits: int, address: int
) -> SmemOperand:
    field = name.lower()
    major: Major = asked.choice(f"major_{field}", MAJORS, "K")
    if major == "MN" and bits != 16:
        raise BadParameterError(
            f"major_{field}", f"wgmma takes MN-major operands of 16-bit elements only, got {bits}-bit ones for {name}"
        )
    swizzle: SwizzleMode = asked.choice(f"swizzle_{field}", SWIZZLE_MODES, "SW128")
    return SmemOperand(_WGMMA, name, shape, mma_shape, bits, address, major=major, swizzle=swizzle)


def _atom(asked: Parameters) -> sm90.WgmmaTraits:
    types, source = asked.choice("types", TYPES, "F32F16F16"), asked.choice("source", SOURCES, "SS")
    n = asked.number("n", 8, 256, 128)
    some = next(name for name in sm90.wgmma_names() if f"_{types}_{source}" in name)
    name = re.sub(r"x\d+x", f"x{n}x", some, count=1)
    try:
        return sm90.wgmma_traits(name)
    except LayoutError as error:
        raise BadParameterError("n", str(error)) from error


def _tile(asked: Parameters, traits: sm90.WgmmaTraits) -> tuple[int, int, int]:
    m, n, k = traits.shape_mnk
    tile = []
    for name, default, step in (("tile_m", 128, m), ("tile_n", n, n), ("tile_k", 4 * k, k)):
        extent = asked.number(name, 1, MAX_TILE, default)
        if extent % step:
            raise BadParameterError(name, f"{name} must be a multiple of the atom's {step}, got {extent}")
        tile.append(extent)
    return tile[0], tile[1], tile[2]


def _partitions(mma: sm90.TiledMMA, tile: tuple[int, int, int]) -> dict[str, str]:
    m, n, k = tile
    parts = {}
    for name, extents in (("A", (m, k)), ("B", (n, k)), ("C", (m, n))):
        partition, _ = getattr(mma, f"partition_{name}")(Layout(extents), 0)
        parts[name] = to_text(partition)
    return parts


def _copy(chosen: str, mma: sm90.TiledMMA) -> sm90.TiledCopy:
    if chosen == "stmatrix_C":
        matrices = 4 if mma.traits.shape_mnk[1] % 16 == 0 else 2  # a matrix is 8 columns of 8 of a warp's 16 rows
        return sm90.make_tiled_copy_C(sm90.make_copy_atom(sm90.stmatrix_traits(matrices), 16), mma)
    if mma.traits.source("A") == "smem":
        raise BadParameterError("picture", "wgmma reads A from shared memory itself (SS): ldmatrix loads the A of RS")
    return sm90.make_tiled_copy_A(sm90.make_copy_atom(sm90.ldmatrix_traits(4), mma.traits.a_bits), mma)


def _picture(
    asked: Parameters, mma: sm90.TiledMMA, tile: tuple[int, int, int], smem: dict[str, SmemOperand]
) -> dict[str, Any]:
    chosen = asked.choice("picture", PICTURES, "C")
    if chosen in COPIES:
        return render_raw(picture_of(_copy(chosen, mma)))
    if chosen in "ABC":
        return render_raw(mma._picture_(operand=chosen))  # type: ignore[arg-type]
    if chosen[1] not in smem:
        raise BadParameterError("picture", "A comes from registers (RS), not from shared memory: draw sB, A, B or C")
    return smem[chosen[1]].picture()
