"""Operands of an SM90 atom: shared-memory layouts, descriptors field by field, and owners of A, B and C."""

from __future__ import annotations

import re
from typing import Any

from cutepy.explorer.parameters import BadParameterError, Parameters
from cutepy.layouts import Layout, sm90, tile_to_shape, to_text
from cutepy.layouts.capacity import smem_overrun
from cutepy.layouts.errors import LayoutError
from cutepy.layouts.render import picture_of, render_raw
from cutepy.layouts.sm90.arch import (
    GMMA_LAYOUT_TYPE,
    MAJORS,
    SMEM_BYTES_PER_CTA,
    SWIZZLE_MODES,
    UNIT_BYTES,
    Major,
    SwizzleMode,
)

TYPES = tuple(dict.fromkeys(name.split("_")[2] for name in sm90.wgmma_names()))
"""Types of accumulator, A and B together, by CuTe's names: F32F16F16."""

SOURCES = ("SS", "RS")
COPIES = ("ldmatrix_A", "stmatrix_C")
"""Copies tiled after the MMA: the load of A into registers, and the store of accumulators rounded to 16 bits."""

PICTURES = ("sA", "sB", "A", "B", "C", *COPIES)
MAX_TILE = 512
MAX_STAGES = 16
MAX_LISTED = 64
"""Number of descriptors to list; of more, the first and the total."""

_FIELDS = (
    ("start address", 0, 14, "start_address"),
    ("leading byte offset (LBO)", 16, 14, "leading_byte_offset"),
    ("stride byte offset (SBO)", 32, 14, "stride_byte_offset"),
    ("base offset", 49, 3, "base_offset"),
    ("layout type", 62, 2, "layout_type"),
)
"""Name, first bit, bits, attribute: PTX ISA, "Matrix Descriptor Format"."""


def operands(asked: Parameters) -> dict[str, Any]:
    """Return the operands of an atom in a tile: layouts, descriptors, and one picture of them."""
    asked.known(
        "types", "n", "source", "major_a", "major_b", "swizzle_a", "swizzle_b", "tile_m", "tile_n", "tile_k", "stages",
        "address", "picture",
    )  # fmt: skip
    traits = _atom(asked)
    tile = _tile(asked, traits)
    stages, address = asked.number("stages", 1, MAX_STAGES, 1), asked.number("address", 0, (1 << 18) - 16, 0)
    if address % UNIT_BYTES:
        raise BadParameterError("address", f"address must be a multiple of {UNIT_BYTES} bytes, got {address}")
    warpgroups = max(1, tile[0] // 64) if tile[0] % 64 == 0 else 1
    mma = sm90.TiledMMA(traits, Layout((min(warpgroups, 2), 1, 1)))
    answer: dict[str, Any] = {
        "atom": traits.name,
        "ptx": traits.ptx,
        "shape_mnk": list(traits.shape_mnk),
        "mma": str(mma),
        "threads": mma.thr_size,
    }
    smem: dict[str, _Operand] = {}
    staged = [("A", tile[0], 64, traits.a_bits), ("B", tile[1], traits.shape_mnk[1], traits.b_bits)]
    if traits.a_source == "rmem":
        staged = staged[1:]
    size_bytes = sum(extent * tile[2] * stages * bits // 8 for _, extent, _, bits in staged)
    if address + size_bytes > 1 << 18:  # no descriptor has such an address
        raise BadParameterError(
            "stages", _overrun(size_bytes, stages) or f"{size_bytes} bytes from {address} on end beyond shared memory"
        )
    for name, extent, mma_extent, bits in staged:
        smem[name] = _Operand(asked, name, (extent, tile[2], stages), (mma_extent, traits.shape_mnk[2]), bits, address)
        address += smem[name].size_bytes
        answer[f"s{name}"] = smem[name].told()
    answer["partitions"] = _partitions(mma, tile)
    answer["smem_bytes"] = sum(operand.size_bytes for operand in smem.values())
    answer["fits"] = answer["smem_bytes"] <= SMEM_BYTES_PER_CTA
    answer["overrun"] = "" if answer["fits"] else _overrun(answer["smem_bytes"], stages)
    answer["picture"] = _picture(asked, mma, tile, smem)
    return answer


def _overrun(smem_bytes: int, stages: int) -> str:
    """Describe the excess of the operands over shared memory, and the stages that would fit."""
    fitting = SMEM_BYTES_PER_CTA // (smem_bytes // stages)
    return smem_overrun(smem_bytes, f"{fitting} of the {stages} stages fit" if fitting else "use a smaller tile")


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


class _Operand:
    """A or B in shared memory."""

    def __init__(
        self,
        asked: Parameters,
        name: str,
        shape: tuple[int, int, int],
        mma_shape: tuple[int, int],
        bits: int,
        address: int,
    ) -> None:
        self.name = name
        self.mma_shape = mma_shape
        self.bits = bits
        field = name.lower()
        self.major: Major = asked.choice(f"major_{field}", MAJORS, "K")
        if self.major == "MN" and bits != 16:
            raise BadParameterError(
                f"major_{field}",
                f"wgmma takes MN-major operands of 16-bit elements only, got {bits}-bit ones for {name}",
            )
        swizzle: SwizzleMode = asked.choice(f"swizzle_{field}", SWIZZLE_MODES, "SW128")
        atom = sm90.gmma_layout_atom(self.major, swizzle, bits)
        extents = shape if shape[2] > 1 else shape[:2]
        field = f"swizzle_{field}"
        try:
            self.layout = tile_to_shape(atom, extents)
            self.iterator = sm90.GmmaDescriptorIterator(
                self.layout, major=self.major, bits=bits, mma_shape=mma_shape, base_address=address
            )
        except LayoutError as error:
            raise BadParameterError(field, str(error)) from error
        self.atom = atom
        self.size_bytes = shape[0] * shape[1] * shape[2] * bits // 8
        self.blocks = tuple(
            mode if isinstance(mode, int) else Layout(mode).size() for mode in self.iterator.layout.shape[1:]
        )

    def coordinates(self) -> list[tuple[int, ...]]:
        """List the coordinates of all descriptors, blocks along MN fastest."""
        found: list[tuple[int, ...]] = [()]
        for extent in self.blocks[::-1]:
            found = [(i, *rest) for rest in found for i in range(extent)]
        return sorted(found, key=lambda coordinate: coordinate[::-1])

    def told(self) -> dict[str, Any]:
        """Return the layout, and the descriptors with their fields."""
        coordinates = self.coordinates()
        return {
            "layout": to_text(self.layout),
            "atom": to_text(self.atom),
            "major": self.major,
            "bits": self.bits,
            "bytes": self.size_bytes,
            "start_address": self.iterator.base_address,
            "iterator": str(self.iterator),
            "fields": _fields(self.iterator.first),
            "explanation": self.iterator.first.explain(),
            "descriptors": [
                {
                    "coordinate": to_text(coordinate),
                    "descriptor": f"{int(self.iterator[coordinate]):#018x}",
                    "start_address": self.iterator[coordinate].start_address,
                }
                for coordinate in coordinates[:MAX_LISTED]
            ],
            "descriptor_count": len(coordinates),
        }

    def picture(self) -> dict[str, Any]:
        """Draw the tile, each element with the descriptor whose MMA reads it."""
        drawn = render_raw(picture_of(self.layout, bits=self.bits, address=self.iterator.base_address))
        (grid,) = drawn["grids"]
        coordinates = self.coordinates()
        number = {coordinate: i for i, coordinate in enumerate(coordinates)}
        mn, k = self.mma_shape
        # Labels are those of a cell's first element, also where cells are units or tiles: MN and stage down, K across.
        down = [tuple(map(int, label.split(","))) for label in grid["rows"]["labels"]]
        across = [int(label) // k for label in grid["columns"]["labels"]]
        grid["cells"]["descriptor"] = [number[(row // mn, column, *stage)] for row, *stage in down for column in across]
        grid["descriptors"] = [
            f"tCr{self.name}[{','.join(map(str, c))}] {int(self.iterator[c]):#018x}" for c in coordinates
        ]
        return drawn


def _fields(descriptor: sm90.GmmaDescriptor) -> list[dict[str, Any]]:
    """Explain the bit fields of a descriptor."""
    word = int(descriptor)
    layout_types = {value: mode for mode, value in GMMA_LAYOUT_TYPE.items()}
    found = []
    for name, first, bits, attribute in _FIELDS:
        raw = word >> first & (1 << bits) - 1
        value = getattr(descriptor, attribute)
        if attribute == "layout_type":
            meaning = f"swizzle {layout_types[value]}"
        elif attribute == "base_offset":
            meaning = (
                "the pattern starts at a multiple of its period" if not value else f"{value} rows into the pattern"
            )
        else:
            meaning = f"{value} bytes ({value:#x}), kept in units of {UNIT_BYTES}"
        found.append({"field": name, "bits": f"{first}..{first + bits - 1}", "raw": raw, "meaning": meaning})
    return found


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
    asked: Parameters, mma: sm90.TiledMMA, tile: tuple[int, int, int], smem: dict[str, _Operand]
) -> dict[str, Any]:
    chosen = asked.choice("picture", PICTURES, "C")
    if chosen in COPIES:
        return render_raw(picture_of(_copy(chosen, mma)))
    if chosen in "ABC":
        return render_raw(mma._picture_(operand=chosen))  # type: ignore[arg-type]
    if chosen[1] not in smem:
        raise BadParameterError("picture", "A comes from registers (RS), not from shared memory: draw sB, A, B or C")
    return smem[chosen[1]].picture()
