"""Pictures of Hopper's objects: fragments by thread and value, descriptors and boxes by address.

References
----------
PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma; "ldmatrix"; "stmatrix": the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..coordinates import idx2crd
from ..errors import LayoutError
from ..grids.axes import joined, orientation, sides
from ..grids.grid import Axis, Cell, Grid, Picture, table
from ..grids.of_threads import owned_grid, tv_grid
from ..grids.owners import owners_by_start
from ..hardware import pattern_rows, span_bytes
from ..layout import Layout
from ..modes import size
from ..writer import to_text
from .arch import (
    CORE_MATRIX_ROWS,
    DTYPE_BITS,
    SMEM_BANK_BYTES,
    SMEM_BANKS,
    UNIT_BITS,
    UNIT_BYTES,
    WARP_THREADS,
)
from .gmma import byte_swizzle
from .walk import Walk

_OPERANDS = {"A": ("M", "K"), "B": ("N", "K"), "C": ("M", "N")}
_LINE = "the 16-byte unit of its line of 32 banks (byte / 16 mod 8)"


def traits_picture(traits: Any, operand: str | None) -> Grid | Picture:  # noqa: ANN401 - MmaTraits
    """Return the owner of each element of A, B and C of one MMA instruction, or of one of them."""

    def grid(name: str) -> Grid:
        layout = {"A": traits.a_layout, "B": traits.b_layout, "C": traits.c_layout}[name]
        starts, values = ([layout[mode](i) for i in range(layout[mode].size())] for mode in range(2))
        return _operand(traits, name, traits.shape_mnk, starts, values, traits.thr_id)

    return _operands(grid, operand, traits.name)


def tiled_mma_picture(
    mma: Any,  # noqa: ANN401 - TiledMMA
    operand: str | None,
    tile_mnk: tuple[int, int, int] | None = None,
    *,
    title: str | None = None,
) -> Grid | Picture:
    """Return the owner of each element of A, B and C of a tile, or of one; the title is the tiling's text.

    Owners come from the threads' partitions, not from ``get_layoutC_TV``: with several atoms along K that layout maps
    beyond the tile, where truly the threads of all these atoms hold partial sums of the same element.
    """
    shape = mma.tile_shape if tile_mnk is None else tile_mnk
    threads = mma.thr_layout_vmnk
    sizes = tuple(size(threads, mode) for mode in range(4))

    def grid(name: str) -> Grid:
        x, y = _modes(name)
        partition = {"A": mma.thrfrg_A, "B": mma.thrfrg_B, "C": mma.thrfrg_C}[name]
        of_thread, of_value = partition(Layout((shape[x], shape[y])))  # (ThrV,(ThrX,ThrY)), (FrgV,(RestX,RestY))
        starts = []
        for place in range(threads.size()):
            crd: Any = idx2crd(place, sizes)
            starts.append(of_thread((crd[0], (crd[x + 1], crd[y + 1]))))
        values = [of_value(value) for value in range(of_value.size())]
        drawn = _operand(mma.traits, name, shape, starts, values, threads)
        if name == "C" and sizes[3] > 1:
            remark = f"{sizes[3]} atoms along K: their threads hold partial sums of the same element"
            drawn = drawn.but(caption=(*drawn.caption, remark))
        return drawn

    return _operands(grid, operand, str(mma) if title is None else title)


def matrix_copy_picture(traits: Any, bits: int) -> Picture:  # noqa: ANN401 - MatrixCopyTraits
    """Return both sides of ldmatrix or stmatrix: the rows that lanes address, and their registers."""
    elements = traits.in_elements(bits)
    across = UNIT_BITS // bits
    tile = Layout((CORE_MATRIX_ROWS, across, traits.num_matrices), (across, 1, CORE_MATRIX_ROWS * across))
    loads = traits.src_layout != traits.ref_layout
    smem = "shared memory: T addresses a row"
    titles = (smem, "registers") if loads else ("registers", smem)
    names = ("row", "column", "matrix")
    grids = [
        tv_grid(layout, tile, title=title, names=names)
        for layout, title in zip((elements.src_layout, elements.dst_layout), titles, strict=True)
    ]
    lanes = CORE_MATRIX_ROWS * traits.num_matrices
    if lanes < WARP_THREADS:
        side = titles.index(smem)
        said = f"the addresses of lanes 0 to {lanes - 1} count; the others repeat them"
        grids[side] = grids[side].but(caption=(*grids[side].caption, said))
    return Picture(tuple(grids), f"{traits.name}: {'ldmatrix' if loads else 'stmatrix'}, elements of {bits} bits")


def walk_grid(walk: Walk, shape_mn_k: tuple[int, int], title: str) -> Grid:
    """Return the addresses at which an MMA reads an operand tile, by units of 16 bytes: MN down, K across."""
    per_unit = UNIT_BITS // walk.bits
    along = {"MN": (per_unit, 1), "K": (1, per_unit)}[walk.major]
    rows = Axis(-(-shape_mn_k[0] // along[0]), label=lambda i: str(i * along[0]), names="MN")
    columns = Axis(-(-shape_mn_k[1] // along[1]), label=lambda j: str(j * along[1]), names="K")

    def cell(i: int, j: int) -> Cell:
        mn, k = i * along[0], j * along[1]
        byte = walk.address(mn, k)
        notes = (("holds", f"{per_unit} elements along {walk.major}"),)
        return _addressed(hex(byte), (mn, k), mn + k * shape_mn_k[0], byte, walk.bits, walk.start_address, notes)

    what = f"byte addresses of units of 16 bytes ({per_unit} elements of {walk.bits} bits along {walk.major})"
    return Grid(
        rows.tiled(pattern_rows(walk.swizzle) if walk.major == "K" else span_bytes(walk.swizzle) // UNIT_BYTES),
        columns.tiled(pattern_rows(walk.swizzle)) if walk.major == "MN" else columns,
        cell,
        title=title,
        caption=(f"{orientation(rows, columns)}; {what}", f"{walk.major}-major, {walk.swizzle}"),
        colours=_LINE,
    )


def iterator_grid(iterator: Any) -> Grid:  # noqa: ANN401 - GmmaDescriptorIterator
    """Return the start addresses of an operand's descriptors: blocks along MN and stages down, along K across."""
    layout = iterator.layout
    shape = layout.shape[1:]
    names = ("blocks along MN", "blocks along K", "stages", *(f"mode {mode}" for mode in range(4, len(shape) + 1)))
    rows, columns = sides(shape, names[: len(shape)])

    def cell(i: int, j: int) -> Cell:
        coordinate = joined(shape, rows.coordinate(i), columns.coordinate(j))
        descriptor = iterator[coordinate]
        start = descriptor.start_address
        notes = (("descriptor", f"{int(descriptor):#018x}"),)
        index = rows.flat(i) + columns.flat(j)
        return _addressed(hex(start), coordinate, index, start, iterator.bits, iterator.first.start_address, notes)

    return Grid(
        rows.axis,
        columns.axis,
        cell,
        title=str(iterator),
        caption=(
            f"{orientation(rows.axis, columns.axis)}; byte addresses at which descriptors start",
            f"{iterator.major}-major operand {to_text(iterator.smem_layout)} of {iterator.bits} bits",
        ),
        colours=_LINE,
    )


def tma_grid(copy: Any) -> Grid:  # noqa: ANN401 - TmaCopy
    """Return the place of each element of a TMA tile, and the box that moves it."""
    tensor_map = copy.tensor_map
    bits = DTYPE_BITS[tensor_map.dtype]
    extents = dict(zip(copy.modes, copy.box_shape, strict=True))
    rank = len(copy.boxes[0].coordinate)
    box_shape = [extents[mode] for mode in range(rank)]
    by_coordinate = {box.coordinate: (number, box) for number, box in enumerate(copy.boxes)}
    shape = tuple(max(box.coordinate[mode] for box in copy.boxes) + box_shape[mode] for mode in range(rank))
    rows, columns = sides(shape)
    swizzle = byte_swizzle(tensor_map.swizzle)
    steps = {mode: prod(copy.box_shape[:place]) for place, mode in enumerate(copy.modes)}

    def cell(i: int, j: int) -> Cell:
        coordinate = joined(shape, rows.coordinate(i), columns.coordinate(j))
        number, box = by_coordinate[tuple(c // e * e for c, e in zip(coordinate, box_shape, strict=True))]
        within = sum((c % e) * steps[mode] for mode, (c, e) in enumerate(zip(coordinate, box_shape, strict=True)))
        # As the hardware does: the bits of the address select, for a tile that starts at a multiple of the pattern.
        byte = swizzle(box.smem_offset_bytes + within * bits // 8)
        found = _addressed("", coordinate, rows.flat(i) + columns.flat(j), byte, bits, 0, (("box", str(number)),))
        return found._replace(text=str(found.offset), colour=number % 8)

    boxes = f"{len(copy.boxes)} box{'es' if len(copy.boxes) > 1 else ''} of {to_text(copy.box_shape)} elements"
    shared = f", each in {copy.multicast} parts {to_text(tensor_map.box)}" if copy.multicast > 1 else ""
    return Grid(
        _with_boxes(rows.axis, box_shape[0]),
        _with_boxes(columns.axis, box_shape[1]) if rank > 1 else columns.axis,
        cell,
        title=f"TMA copy of a tile {to_text(shape)}, {tensor_map.dtype}, {tensor_map.swizzle}",
        caption=(
            f"{orientation(rows.axis, columns.axis)}; offsets in shared memory, in elements of {bits} bits",
            f"{boxes}{shared}; {copy.tx_bytes} bytes",
        ),
        colours="box mod 8",
    )


def tensor_map_grid(tensor_map: Any) -> Grid:  # noqa: ANN401 - TensorMap
    """Return a table of a TMA descriptor's dimensions: of the tensor in global memory, and of one copy of it."""
    strides = (_bytes(tensor_map.bits), *tensor_map.strides_bytes)
    known = list(zip(tensor_map.dims, strides, tensor_map.box, tensor_map.element_strides, strict=True))
    drawn = table(
        [[str(number) for number in of_dimension] for of_dimension in known],
        [f"dimension {dimension}" for dimension in range(tensor_map.rank)],
        ("extent", "stride, bytes", "box", "every"),
    )
    said = f"{tensor_map.swizzle}, interleave {tensor_map.interleave}, L2 promotion {tensor_map.l2_promotion}"
    start = f"global address {tensor_map.global_address:#x}; a box is {tensor_map.box_bytes} bytes"
    outside = f"elements outside read as {tensor_map.oob_fill}"
    return drawn.but(title=f"TMA descriptor, {tensor_map.dtype}", caption=(said, start, outside))


def _bytes(bits: int) -> str:
    return f"{bits / 8:g}"


def walk_picture(title: str, walks: Sequence[Walk], shape_mn_k: tuple[int, int] | None) -> Picture:
    """Return the addresses of a tile for each possible reading of a descriptor's bits."""
    grids = []
    for walk in walks:
        shape = shape_mn_k or (64, 2 * UNIT_BITS // walk.bits)
        grids.append(walk_grid(walk, shape, f"{walk.major}-major, {walk.bits}-bit elements, {shape[0]}x{shape[1]}"))
    return Picture(tuple(grids), title)


def _addressed(
    text: str,
    coordinate: Any,  # noqa: ANN401 - IntTuple
    index: int,
    byte: int,
    bits: int,
    start: int,
    notes: tuple[tuple[str, str], ...],
) -> Cell:
    bank = byte // SMEM_BANK_BYTES % SMEM_BANKS
    return Cell(
        text,
        coordinate,
        index,
        (byte - start) * 8 // bits,
        byte,
        bank,
        colour=byte // UNIT_BYTES % (SMEM_BANKS * SMEM_BANK_BYTES // UNIT_BYTES),
        notes=notes,
    )


def _with_boxes(axis: Axis, extent: int) -> Axis:
    return axis.tiled(*dict.fromkeys((extent, *(tile for tile in axis.tiles if tile % extent == 0))))


def _operands(grid: Any, operand: str | None, title: str) -> Grid | Picture:  # noqa: ANN401 - operand -> Grid
    if operand is None:
        return Picture(tuple(grid(name) for name in _OPERANDS), title)
    if operand not in _OPERANDS:
        raise LayoutError("show", (title,), f"operand must be one of {', '.join(_OPERANDS)}, got {operand!r}")
    drawn: Grid = grid(operand)
    return drawn.but(title=f"{title}: {drawn.title}")


def _operand(
    traits: Any,  # noqa: ANN401 - MmaTraits
    name: str,
    shape_mnk: tuple[int, int, int],
    starts: Sequence[int],
    values: Sequence[int],
    threads: Layout,
) -> Grid:
    """Return the grid of an operand of which each thread holds ``start + value``."""
    extents = tuple(shape_mnk[mode] for mode in _modes(name))
    dtype = {"A": traits.a_dtype, "B": traits.b_dtype, "C": traits.c_dtype}[name]
    where = {"smem": "in shared memory", "rmem": "in registers", "tmem": "in tensor memory"}[traits.source(name)]
    numbers = [threads(place) for place in range(threads.size())]
    grid = owned_grid(
        owners_by_start(starts, values, numbers),
        extents,
        threads=threads.size(),
        title=f"{name}, {extents[0]}x{extents[1]}, {f'{dtype} {where}'.lstrip()}",
        names=_OPERANDS[name],
        operands=(traits.name, name),
    )
    # A thread's two accumulators of a row stand in an 8x8 block whatever their width; foreign types may be unknown.
    return _in_core_matrices(grid, 16 if name == "C" else DTYPE_BITS.get(dtype, 16))


def _modes(name: str) -> tuple[int, int]:
    """Modes among M, N, K of an operand."""
    x, y = ("MNK".index(mode) for mode in _OPERANDS[name])
    return x, y


def _in_core_matrices(grid: Grid, bits: int) -> Grid:
    """Draw lines where core matrices end, and where warps' rows do."""
    return grid.but(rows=grid.rows.tiled(CORE_MATRIX_ROWS, 64), columns=grid.columns.tiled(UNIT_BITS // bits))
