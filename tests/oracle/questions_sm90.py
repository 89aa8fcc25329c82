"""Random cases about Hopper: shared-memory atoms and tiles, descriptors, MMA atoms and tiled MMAs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from tests.oracle.draw import Draw, write
from tests.oracle.questions import Question

_BITS = {"half_t": 16, "bfloat16_t": 16, "int8_t": 8, "uint8_t": 8, "float_e4m3_t": 8, "float_e5m2_t": 8}
_BITS |= {"tfloat32_t": 32, "float": 32}
_SPANS = {"INTER": 128, "SW32": 256, "SW64": 512, "SW128": 1024}
_SIZES = (8, 16, 32, 64, 96, 128, 192, 256)
_FP8, _INT8 = ("E4M3", "E5M2"), ("S8", "U8")
_KINDS = (
    *("x16_F16F16F16_SS", "x16_F16F16F16_RS", "x16_F32F16F16_SS", "x16_F32F16F16_RS", "x16_F32BF16BF16_SS"),
    *("x16_F32BF16BF16_RS", "x8_F32TF32TF32_SS_TN", "x8_F32TF32TF32_RS_TN"),
    *(f"x32_{c}{a}{b}_{s}_TN" for c, a, b, s in product(("F16", "F32"), _FP8, _FP8, ("SS", "RS"))),
    *(f"x32_S32{a}{b}_{s}_TN{e}" for a, b, s, e in product(_INT8, _INT8, ("SS", "RS"), ("", "_SATURATE"))),
)
_ATOM_LAYOUTS = (
    *("(1,1,1):(0,0,0)", "(2,1,1):(1,0,0)", "(1,2,1):(0,1,0)", "(2,2,1):(1,2,0)", "(2,2,1):(2,1,0)", "(4,1,1):(1,0,0)"),
    *("(1,4,1):(0,1,0)", "(3,1,1):(1,0,0)", "(1,1,2):(0,0,1)", "(2,1,2):(1,0,2)", "(1,3,1):(0,1,0)", "(4,2,1):(1,4,0)"),
)


def atom_names() -> list[str]:
    """Every SM90 MMA atom that CuTe has without its extended shapes."""
    return [f"SM90_64x{n}{kind}" for n in _SIZES for kind in _KINDS]


def extended_atom_names() -> list[str]:
    """The atoms of the remaining n, multiples of 8 below 256; the s8 and u8 ones exist for n = 24 and from 48 by 16."""
    n_values = [n for n in range(8, 257, 8) if n not in _SIZES]
    integer = [n for n in n_values if n == 24 or n % 16 == 0]
    return [f"SM90_64x{n}{kind}" for kind in _KINDS for n in (integer if "_S32" in kind else n_values)]


def hopper(seed: int, count: int) -> Iterator[Question]:
    """At least `count` different questions; those about one descriptor iterator come together."""
    draw, seen = Draw(seed), set()
    while len(seen) < count:
        for question in draw.random.choices((_staged, _descriptors, _tiled), (2, 3, 4))[0](draw):
            if question not in seen:
                seen.add(question)
                yield question


def _atom(draw: Draw) -> tuple[str, str, str]:
    return draw.random.choice(("MN", "K")), draw.random.choice(tuple(_SPANS)), draw.random.choice(tuple(_BITS))


def _shape(draw: Draw, major: str, swizzle: str, kind: str) -> tuple[int, ...]:
    """A staged tile that the atom mostly divides."""
    contiguous = _SPANS[swizzle] // _BITS[kind]
    unit = (contiguous, 8) if major == "MN" else (8, contiguous)
    modes = [u * draw.random.choice((1, 2, 2, 3, 4, 8)) for u in unit]
    if draw.chance(0.4):
        modes = [draw.random.choice(_SIZES), draw.random.choice((16, 32, 64, 128))]
    return (*modes, *(draw.random.choice((1, 2, 3, 4, 5)) for _ in range(draw.random.choice((0, 1, 1, 1, 2)))))


def _order(draw: Draw, rank: int) -> str:
    order = list(range(1, rank + 1))
    if draw.chance(0.6):
        order[:2] = [2, 1]
    else:
        draw.random.shuffle(order)
    return write(tuple(order))


def _staged(draw: Draw) -> list[Question]:
    major, swizzle, kind = _atom(draw)
    if draw.chance(0.15):
        op = draw.random.choice(("gmma_atom", "gmma_atom_position_independent"))
        return [(op, (major, swizzle, kind, _BITS[kind]))]
    shape = _shape(draw, major, swizzle, kind)
    order = [_order(draw, len(shape))] if draw.chance(0.4) else []
    return [("tile_to_shape", (major, swizzle, kind, write(shape), *order))]


def _descriptors(draw: Draw) -> list[Question]:
    major, swizzle, kind = _atom(draw)
    modes = list(_shape(draw, major, swizzle, kind)[:2])
    shape = (*modes, draw.random.choice((1, 2, 3, 4)))
    text = write(shape) + (f";order={_order(draw, 3)}" if draw.chance(0.35) else "")
    whole = 128 // _BITS[kind] if major == "MN" else 8  # narrower tiles split a 16-byte unit between descriptors
    mn = draw.random.choice([s for s in _SIZES if s >= whole and (modes[0] % s == 0 or draw.chance(0.05))] or [16])
    k = 256 // _BITS[kind]
    found: list[Question] = [("desc_iterator_layout", (major, swizzle, kind, text, mn, k))]
    for _ in range(6):
        block = [draw.random.randrange(max(1, extent)) for extent in (modes[0] // mn, modes[1] // k, shape[2])]
        address = draw.random.choice(("0x400", "0x2400", "0xc400", "0x18000", "0x20400"))
        found.append(("make_gmma_desc", (major, swizzle, kind, text, mn, k, *block, address)))
    return found


def _tiled(draw: Draw) -> list[Question]:
    atom = (
        draw.random.choice(atom_names())
        if draw.chance(0.4)
        else f"SM90_64x{draw.random.choice(_SIZES)}x16_F32F16F16_SS"
    )
    layout = draw.random.choice(_ATOM_LAYOUTS)
    kind = draw.random.random()
    if kind < 0.15:
        op = draw.random.choice(("thr_layout_vmnk", "tile_shape", "thr_size"))
        return [(op, (atom, layout))]
    if kind < 0.30:
        return [(f"get_layout{draw.random.choice('ABC')}_TV", (atom, layout))]
    operand = draw.random.choice("ABC")
    tensor = _operand(draw)
    if kind < 0.5:
        return [(f"thrfrg_{operand}", (atom, layout, tensor))]
    if kind < 0.62:
        return [(f"partition_shape_{operand}", (atom, layout, tensor))]
    if kind < 0.7:
        return [("fragment_C", (atom, layout, tensor))]
    threads = 128 * prod(int(x) for x in layout.split(":")[0].strip("()").split(","))
    return [(f"partition_{operand}", (atom, layout, tensor, draw.random.randrange(threads))) for _ in range(2)]


def _operand(draw: Draw) -> str:
    """A matrix, maybe with more modes, row- or column-major or padded."""
    rows, columns = (draw.random.choice((64, 64, 128, 128, 192, 256, 384)) for _ in range(2))
    pad = draw.random.choice((0, 0, 0, 8))
    rest = draw.random.choice(((), (), (), (3,), (2, 4)))
    strides = (1, rows + pad) if draw.chance(0.5) else (columns + pad, 1)
    start, steps = (rows + pad) * (columns + pad), []
    for extent in rest:
        steps.append(start)
        start *= extent
    return f"{write((rows, columns, *rest))}:{write((*strides, *steps))}"
