"""Random cases about copies, tiled by threads and values, after MMAs and after other copies; and a warp's MMAs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tests.oracle.draw import Draw, write
from tests.oracle.questions import Question

WARP_ATOMS = (
    *("SM80_16x8x8_F16F16F16F16_TN", "SM80_16x8x16_F16F16F16F16_TN", "SM80_16x8x8_F32F16F16F32_TN"),
    *("SM80_16x8x16_F32F16F16F32_TN", "SM80_16x8x8_F32BF16BF16F32_TN", "SM80_16x8x16_F32BF16BF16F32_TN"),
    *("SM80_16x8x4_F32TF32TF32F32_TN", "SM80_16x8x8_F32TF32TF32F32_TN", "SM80_8x8x4_F64F64F64F64_TN"),
    *(
        f"SM80_{shape}_S32{a}{b}S32_TN{saturate}"
        for shape in ("8x8x16", "16x8x16", "16x8x32")
        for a in ("S8", "U8")
        for b in ("S8", "U8")
        for saturate in ("", "_SATURATE")
    ),
    *(f"SM89_16x8x32_{d}{a}{b}{d}_TN" for d in ("F32", "F16") for a in ("E4M3", "E5M2") for b in ("E4M3", "E5M2")),
    *(f"SM90_16x8x{k}_F64F64F64F64_TN" for k in (4, 8, 16)),
)
"""The atoms of a warp that CuTe has and cutepy knows."""

_LDSM = (*(f"SM75_U32x{n}_LDSM_N" for n in (1, 2, 4)), *(f"SM75_U16x{n}_LDSM_T" for n in (2, 4, 8)))
_STSM = (*(f"SM90_U32x{n}_STSM_N" for n in (1, 2, 4)), *(f"SM90_U16x{n}_STSM_T" for n in (2, 4, 8)))
_WARP_LAYOUTS = (
    *("(1,1,1):(0,0,0)", "(2,1,1):(1,0,0)", "(1,2,1):(0,1,0)", "(2,2,1):(1,2,0)", "(2,2,1):(2,1,0)", "(1,4,1):(0,1,0)"),
    *("(4,1,1):(1,0,0)", "(1,1,2):(0,0,1)", "(2,1,2):(1,0,2)", "(1,2,2):(0,1,2)", "(4,2,1):(1,4,0)"),
)
_WGMMA = ("SM90_64x16x16_F32F16F16_RS", "SM90_64x64x16_F32F16F16_SS", "SM90_64x32x32_F32E4M3E4M3_RS_TN")


def copies(seed: int, count: int) -> Iterator[Question]:
    """At least `count` different questions."""
    draw, seen = Draw(seed), set()
    while len(seen) < count:
        for question in draw.random.choices((_by_layouts, _after_mma, _after_copy, _warp_mma), (3, 4, 2, 2))[0](draw):
            if question not in seen:
                seen.add(question)
                yield question


def _plain(draw: Draw, bits: int) -> tuple[str, int]:
    """An atom of one thread, and how many values it moves."""
    width = draw.random.choice([w for w in (8, 16, 32, 64, 128) if w >= bits])
    names = [f"UniversalCopy<uint{width}_t>"]
    if width >= 32:
        names.append(f"SM80_CP_ASYNC_CACHEALWAYS<uint{width}_t>")
    if width == 128:
        names.append("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>")
    return draw.random.choice(names), width // bits


def _compact(draw: Draw, extents: tuple[int, ...]) -> str:
    order = list(range(len(extents)))
    draw.random.shuffle(order)
    strides = [0] * len(extents)
    reached = 1
    for mode in order:
        strides[mode], reached = reached, reached * extents[mode]
    return f"{write(extents)}:{write(tuple(strides))}"


def _layouts(draw: Draw, values: int, *, warp: bool) -> tuple[str, str, tuple[int, ...]]:
    """Layouts of threads and of a multiple of `values` values, and the extents of their tile."""
    rank = draw.random.choice((2, 2, 2, 2, 3, 1))
    threads = [draw.random.choice((1, 2, 4, 8)) for _ in range(rank)]
    if warp:
        threads[0] *= max(1, 32 // prod(threads))
    elements = [draw.random.choice((1, 1, 2)) for _ in range(rank)]
    elements[draw.random.randrange(rank)] *= values
    tile = tuple(t * v for t, v in zip(threads, elements, strict=True))
    return _compact(draw, tuple(threads)), _compact(draw, tuple(elements)), tile


def _tensor(draw: Draw, tile: tuple[int, ...]) -> str:
    extents = [extent * draw.random.choice((1, 1, 2, 3)) for extent in tile]
    extents += [draw.random.choice((2, 3)) for _ in range(draw.random.choice((0, 0, 1)))]
    return _compact(draw, tuple(extents))


def _questions(draw: Draw, spec: tuple[str | int, ...], tile: tuple[int, ...] | None) -> list[Question]:
    ops = ["TiledLayout_TV", "Tiler_MN", "get_layoutS_TV", "get_layoutD_TV"]
    found = [(op, spec) for op in draw.random.sample(ops, 2)]
    if tile is not None:
        found.append((draw.random.choice(("tidfrg_S", "tidfrg_D")), (*spec, _tensor(draw, tile))))
    return found


def _by_layouts(draw: Draw) -> list[Question]:
    bits = draw.random.choice((8, 16, 16, 32))
    if draw.chance(0.3):
        atom, bits, values = draw.random.choice((*_LDSM, *_STSM)), 16, 8
        threads, elements, tile = _layouts(draw, values, warp=True)
    else:
        atom, values = _plain(draw, bits)
        threads, elements, tile = _layouts(draw, values, warp=False)
    spec = (atom, bits, "tv", threads, elements, "")
    found = _questions(draw, spec, tile)
    if draw.chance(0.5):
        count = prod(int(x) for x in elements.split(":")[0].strip("()").split(","))
        extents = [draw.random.choice((1, 2, 3)) for _ in (*tile, *draw.random.choice(((), (), (0,))))]
        found.append(("retile", (*spec, _compact(draw, (count, *extents)))))
    return found


def _after_mma(draw: Draw) -> list[Question]:
    mma = draw.random.choice((*WARP_ATOMS, *WARP_ATOMS[:6], *_WGMMA))
    warpgroup = mma.startswith("SM90_64x")
    layout = draw.random.choice(_WARP_LAYOUTS[:5] if warpgroup else _WARP_LAYOUTS)
    kind = draw.random.choice(("A", "C", "C_atom") if warpgroup and "_RS" in mma else ("C", "C_atom"))
    if not warpgroup:
        kind = draw.random.choice(("A", "B", "A", "B", "C", "C_atom"))
        m, n, k = (int(x) for x in mma.split("_")[1].split("x"))
        atoms = [int(x) for x in layout.split(":")[0].strip("()").split(",")]
        if draw.chance(0.4) and atoms[2] == 1:
            layout += f";({m * atoms[0]},{n * atoms[1] * 2},{k})"
    bits = {"F16": 16, "BF1": 16, "TF3": 32, "F64": 64}.get(_operand_type(mma), 8) if kind in "AB" else 16
    choices = [f"UniversalCopy<uint{bits}_t>", f"UniversalCopy<uint{bits}_t>"]
    if bits == 16:
        choices += _LDSM if kind in "AB" else _STSM
    spec = (draw.random.choice(choices), bits, kind, mma, layout, "")
    return _questions(draw, spec, None)


def _operand_type(mma: str) -> str:
    types = mma.split("_")[2]
    for accumulator in ("F16", "F32", "F64", "S32"):
        if types.startswith(accumulator):
            return types[len(accumulator) :][:3]
    raise ValueError(mma)


def _after_copy(draw: Draw) -> list[Question]:
    side = draw.random.choice("SD")
    base = draw.random.choice((*_LDSM, *_STSM, "UniversalCopy<uint128_t>"))
    threads, elements, tile = _layouts(draw, 8, warp=True)
    atom = draw.random.choice(("UniversalCopy<uint16_t>", "UniversalCopy<uint32_t>", "UniversalCopy<uint64_t>"))
    return _questions(draw, (atom, 16, side, base, threads, elements), tile)


def _warp_mma(draw: Draw) -> list[Question]:
    atom = draw.random.choice(WARP_ATOMS)
    if draw.chance(0.3):
        return [("mma_traits", (atom,))]
    layout = draw.random.choice(_WARP_LAYOUTS)
    atoms = [int(x) for x in layout.split(":")[0].strip("()").split(",")]
    m, n, k = (int(x) for x in atom.split("_")[1].split("x"))
    if draw.chance(0.3):
        layout += f";({m * atoms[0]},{n * atoms[1] * 2},{k * atoms[2]})"
    found: list[Question] = [(f"get_layout{draw.random.choice('ABC')}_TV", (atom, layout))]
    operand = draw.random.choice("ABC")
    extents = {"A": (m, k), "B": (n, k), "C": (m, n)}[operand]
    extents = tuple(8 * extent for extent in extents)
    found.append((f"thrfrg_{operand}", (atom, layout, _compact(draw, extents))))
    return found
