"""Random cases for every operation of the reference vectors, with operands drawn as the vectors draw theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.oracle.draw import Draw, Tree, flat, shaped, size, write

Question = tuple[str, tuple[int | str, ...]]
_TYPES = ("uint8_t", "uint16_t", "uint32_t", "uint64_t", "uint128_t")


def algebra(draw: Draw) -> Question:
    """One question about IntTuples, layouts, swizzles or composed layouts."""
    names = list(_ALGEBRA)
    name = draw.random.choices(names, [_WEIGHTS.get(n, 1.0) for n in names])[0]
    return _ALGEBRA[name](name, draw)


def questions(seed: int, count: int, *, only: frozenset[str] | None = None) -> Iterator[Question]:
    """`count` different algebra questions, all of `only`'s operations when given."""
    draw, seen = Draw(seed), set()
    while len(seen) < count:
        question = algebra(draw)
        if question not in seen and (only is None or question[0].split("<")[0] in only):
            seen.add(question)
            yield question


# --------------------------------------------------------------------------------------------------------------------
# One function per kind of signature


def _some_layout(draw: Draw) -> str:
    return draw.composed() if draw.chance(0.25) else str(draw.layout())


def _unary(name: str, draw: Draw) -> Question:
    return name, (_some_layout(draw),)


def _unary_plain(name: str, draw: Draw) -> Question:
    return name, (str(draw.layout()),)


def _unary_swizzled(name: str, draw: Draw) -> Question:
    kind = draw.random.random()
    operand = draw.swizzle() if kind < 0.3 else draw.composed() if kind < 0.6 else str(draw.layout())
    return name, (operand,)


def _shape_unary(name: str, draw: Draw) -> Question:
    shape = draw.shape(depth=3)
    return name, (shape if isinstance(shape, int) else write(shape),)


def _value(tree: Tree) -> int | str:
    return tree if isinstance(tree, int) else write(tree)


def _profiled(name: str, draw: Draw) -> Question:
    """`coalesce` and `filter` with and without a profile."""
    layout = draw.layout()
    if draw.chance(0.5) or isinstance(layout.shape, int):
        return name, (_some_layout(draw) if name == "coalesce" else str(layout),)
    ones = write(tuple(1 for _ in layout.shape[: draw.random.randint(1, len(layout.shape))]))
    nested = write(tuple(1 if isinstance(m, int) or draw.chance(0.5) else tuple(1 for _ in m) for m in layout.shape))
    operand = draw.composed(layout) if draw.chance(0.2) else str(layout)
    return name, (operand, ones if draw.chance(0.7) else nested)


def _complement(name: str, draw: Draw) -> Question:
    layout = draw.bijection() if draw.chance(0.3) else draw.layout()
    if draw.chance(0.35):
        return name, (str(layout),)
    return name, (str(layout), draw.target(size(layout.shape)))


def _composition(name: str, draw: Draw) -> Question:
    kind = draw.random.random()
    if kind < 0.10:
        return name, (draw.swizzle(), str(draw.layout()))
    if kind < 0.16:
        return name, (draw.composed(), str(draw.tile_layout(64)))
    if kind < 0.22:
        return name, (str(draw.pow2_layout()), draw.swizzle())
    if kind < 0.25:
        return name, (str(draw.pow2_layout()), draw.composed())
    if kind < 0.27:
        return name, (draw.swizzle(), draw.swizzle())
    left = draw.layout()
    if kind < 0.60:
        return name, (str(left), str(draw.layout()))
    return name, (str(left), draw.tiler(left.shape))


def _divide(name: str, draw: Draw) -> Question:
    layout = draw.layout()
    operand = draw.composed(layout) if draw.chance(0.15) else str(layout)
    return name, (operand, draw.tiler(layout.shape))


def _product(name: str, draw: Draw) -> Question:
    layout = draw.layout()
    if name == "logical_product" and draw.chance(0.05):
        return name, (str(draw.pow2_layout()), draw.composed())
    operand = draw.composed(layout) if draw.chance(0.1) else str(layout)
    kind = draw.random.random()
    if name in ("blocked_product", "raked_product"):
        return name, (operand, str(draw.layout()))
    if kind < 0.15:
        return name, (operand, draw.random.choice((1, 2, 3, 4, 5, 6, 8)))
    if kind < 0.75:
        return name, (operand, str(draw.layout()))
    return name, (operand, draw.tiler(layout.shape))


def _tile_to_shape(name: str, draw: Draw) -> Question:
    block = draw.layout()
    modes = [size(m) for m in block.shape] if isinstance(block.shape, tuple) else [block.shape]
    modes += [draw.random.choice((1, 2, 3, 4)) for _ in range(draw.random.choice((0, 0, 0, 1, 2)))]
    target = tuple(m * draw.random.choice((1, 1, 2, 3, 4)) for m in modes)
    if draw.chance(0.1):
        target = tuple(m if draw.chance(0.7) else draw.random.choice((1, 2, 3, 6, 8, 16)) for m in target)
    operand = draw.composed(block) if draw.chance(0.2) else str(block)
    if draw.chance(0.5):
        return name, (operand, write(target))
    order = list(range(1, len(target) + 1))
    draw.random.shuffle(order)
    return name, (operand, write(target), write(tuple(order)))


def _pair(name: str, draw: Draw) -> Question:
    """Two layouts that share values or a shape: max_common_layout and max_common_vector."""
    first = draw.layout()
    second = draw.layout(first.shape) if draw.chance(0.6) else draw.layout()
    second = first if draw.chance(0.2) else second
    if draw.chance(0.2):
        both = name == "max_common_vector" and draw.chance(0.3)
        return name, (draw.composed(first), draw.composed(second) if both else str(second))
    return name, (str(first), draw.composed(second) if draw.chance(0.1) else str(second))


def _recast(name: str, draw: Draw) -> Question:
    n = draw.random.choice((2, 4, 8, 16))
    kind = draw.random.random()
    if kind < 0.2:
        return f"{name}<{n}>", (draw.swizzle(),)
    if kind < 0.4:
        return f"{name}<{n}>", (draw.composed(draw.pow2_layout()),)
    return f"{name}<{n}>", (str(draw.pow2_layout() if draw.chance(0.7) else draw.layout()),)


def _recast_layout(name: str, draw: Draw) -> Question:
    old, new = draw.random.choice(_TYPES), draw.random.choice(_TYPES)
    kind = draw.random.random()
    if kind < 0.25:
        return f"{name}<{old},{new}>", (draw.composed(draw.pow2_layout()),)
    return f"{name}<{old},{new}>", (str(draw.pow2_layout() if draw.chance(0.7) else draw.layout()),)


def _crd2idx(name: str, draw: Draw) -> Question:
    layout = draw.layout()
    coordinate = _value(draw.coordinate(layout.shape))
    if draw.chance(0.3):
        return name, (coordinate, _value(layout.shape))
    return name, (coordinate, _value(layout.shape), _value(layout.stride))


def _idx2crd(name: str, draw: Draw) -> Question:
    layout = draw.layout()
    index = draw.random.randrange(size(layout.shape) + (3 if draw.chance(0.1) else 0))
    if draw.chance(0.4):
        return name, (index, _value(layout.shape))
    layout = draw.bijection() if draw.chance(0.7) else layout
    index = draw.random.randrange(size(layout.shape))
    return name, (index, _value(layout.shape), _value(layout.stride))


def _crd2crd(name: str, draw: Draw) -> Question:
    shape = draw.shape()
    other = write(tuple(size(m) for m in shape)) if isinstance(shape, tuple) else shape
    target = other if draw.chance(0.5) else size(shape)
    return name, (_value(draw.coordinate(shape)), target, _value(shape))


def _coordinate_of(name: str, draw: Draw) -> Question:
    layout = draw.bijection() if draw.chance(0.8) else draw.layout()
    return name, (str(layout), draw.random.randrange(size(layout.shape)))


def _mode_numbers(name: str, draw: Draw) -> Question:
    layout = draw.layout(rank=draw.random.choice((2, 3, 3, 4, 5)))
    rank = len(layout.shape) if isinstance(layout.shape, tuple) else 1
    operand = draw.composed(layout) if draw.chance(0.25) and name != "select" else str(layout)
    if name == "select":
        modes = list(range(rank))
        draw.random.shuffle(modes)
        return name, (operand, write(tuple(modes[: draw.random.randint(1, rank)])))
    if name == "get":
        mode = draw.random.randrange(rank)
        inner = layout.shape[mode] if isinstance(layout.shape, tuple) else layout.shape
        if isinstance(inner, tuple) and draw.chance(0.5) and ":" in operand and " o " not in operand:
            return name, (operand, mode, draw.random.randrange(len(inner)))
        return name, (operand, mode)
    begin = draw.random.randrange(rank)
    end = draw.random.randint(begin + 1, rank)
    return name, (operand, begin, end)


def _pend(name: str, draw: Draw) -> Question:
    layout = draw.layout()
    rank = len(layout.shape) if isinstance(layout.shape, tuple) else 1
    kind = draw.random.random()
    if kind < 0.35:
        return name, (str(layout), rank + draw.random.randint(0, 3))
    if kind < 0.7:
        return name, (str(layout), str(draw.layout()))
    return name, (str(layout), rank + draw.random.randint(0, 3), str(draw.layout(draw.random.choice((1, 2, 4)))))


def _slice(name: str, draw: Draw) -> Question:
    layout = draw.layout() if draw.chance(0.5) else draw.pow2_layout()
    slicer = draw.slicer(layout.shape)
    return name, (slicer, draw.composed(layout) if draw.chance(0.5) else str(layout))


def _relation(name: str, draw: Draw) -> Question:
    first = draw.shape()
    kind = draw.random.random()
    second: Tree = draw.shape()
    if kind < 0.3:
        second = first
    elif kind < 0.5 and isinstance(first, tuple):
        second = tuple(size(m) for m in first)
    elif kind < 0.6:
        second = size(first)
    elif kind < 0.75 and isinstance(first, tuple):
        second = tuple(m if isinstance(m, tuple) or draw.chance(0.6) else (m, 1) for m in first)
    pair = (first, second) if draw.chance(0.6) else (second, first)
    return name, (_value(pair[0]), _value(pair[1]))


def _scalar_like(name: str, draw: Draw) -> Question:
    """`ceil_div`, `shape_div` and their kin: an IntTuple by an integer or by a tuple of its rank."""
    first = draw.shape()
    if isinstance(first, int) or draw.chance(0.4):
        return name, (_value(first), draw.random.choice((1, 2, 3, 4, 8, 16)))
    if draw.chance(0.25):
        return name, (draw.random.choice((8, 16, 24, 64)), _value(first))
    return name, (_value(first), write(tuple(draw.random.choice((1, 2, 3, 4, 5, 8)) for _ in first)))


def _same_rank(name: str, draw: Draw) -> Question:
    """Two IntTuples of one profile."""
    shape = draw.shape()
    leaves = [draw.random.choice((1, 2, 3, 4, 8)) for _ in flat(shape)]
    return name, (_value(shape), _value(shaped(leaves, shape)))


def _ordered(name: str, draw: Draw) -> Question:
    shape = draw.shape(rank=draw.random.choice((1, 2, 2, 3, 3, 4, 5)), depth=1 if draw.chance(0.7) else 2)
    assert isinstance(shape, tuple)
    order = list(range(len(shape)))
    draw.random.shuffle(order)
    if draw.chance(0.1):
        order = [draw.random.choice((0, 1, 2, 5)) for _ in order]
    return name, (write(shape), write(tuple(order)))


def _domain(name: str, draw: Draw) -> Question:
    shape = draw.shape(extents=(1, 2, 2, 4, 4, 8, 8, 3, 6, 192))
    if draw.chance(0.2):
        return name, (_value(shape), _value(draw.shape(extents=(2, 4, 8))))
    return name, (_value(shape), draw.random.choice(draw.divisors(size(shape))))


def _swizzle_only(name: str, draw: Draw) -> Question:
    return name, (draw.swizzle(),)


def _eval(name: str, draw: Draw) -> Question:
    small = Draw(draw.random.getrandbits(32), limit=256)
    return name, (_some_layout(small),)


_ALGEBRA: dict[str, Callable[[str, Draw], Question]] = {
    **dict.fromkeys(("coalesce", "filter"), _profiled),
    **dict.fromkeys(("flatten", "size", "rank", "cosize", "depth"), _unary),
    **dict.fromkeys(("filter_zeros", "nullspace", "make_layout_like"), _unary_plain),
    **dict.fromkeys(("left_inverse", "right_inverse", "max_alignment"), _unary_swizzled),
    "make_fragment_like": _unary,
    **dict.fromkeys(("make_layout_left", "make_layout_right", "make_identity_layout", "product"), _shape_unary),
    "product_each": _shape_unary,
    "complement": _complement,
    "composition": _composition,
    **dict.fromkeys(("logical_divide", "zipped_divide", "tiled_divide", "flat_divide"), _divide),
    **dict.fromkeys(("logical_product", "zipped_product", "tiled_product", "flat_product"), _product),
    **dict.fromkeys(("blocked_product", "raked_product"), _product),
    "tile_to_shape": _tile_to_shape,
    **dict.fromkeys(("max_common_layout", "max_common_vector"), _pair),
    **dict.fromkeys(("upcast", "downcast"), _recast),
    "recast_layout": _recast_layout,
    "crd2idx": _crd2idx,
    "idx2crd": _idx2crd,
    "crd2crd": _crd2crd,
    **dict.fromkeys(("get_1d_coord", "get_hier_coord", "get_flat_coord"), _coordinate_of),
    **dict.fromkeys(("get", "take", "select", "group"), _mode_numbers),
    **dict.fromkeys(("append", "prepend"), _pend),
    **dict.fromkeys(("slice", "slice_and_offset"), _slice),
    **dict.fromkeys(("congruent", "weakly_congruent", "compatible", "evenly_divides"), _relation),
    **dict.fromkeys(("ceil_div", "shape_div"), _scalar_like),
    **dict.fromkeys(("elem_less", "elem_scale", "elem_leq", "inner_product"), _same_rank),
    "make_ordered_layout": _ordered,
    "domain_distribute": _domain,
    "swizzle_apply": _swizzle_only,
    "eval": _eval,
}
_WEIGHTS = {"composition": 6.0, "complement": 3.0, "logical_divide": 3.0, "tile_to_shape": 3.0, "left_inverse": 3.0}
_WEIGHTS |= {"right_inverse": 3.0, "zipped_divide": 2.0, "logical_product": 3.0, "slice_and_offset": 3.0, "slice": 2.0}
_WEIGHTS |= {"coalesce": 2.0, "max_common_layout": 2.0, "upcast": 2.0, "downcast": 2.0, "recast_layout": 2.0}
_WEIGHTS |= {"size": 0.4, "rank": 0.4, "depth": 0.4, "product": 0.4, "eval": 0.5, "swizzle_apply": 0.2}
