"""Random calls made on pycute and on cutepy.layouts alike, and the classes into which their disagreements fall.

A class is a row of the table in docs/pycute.md and a condition on one disagreement. The conditions are as narrow as
the operands allow, so that a disagreement of any other kind finds no class.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from cutepy import layouts
from cutepy.layouts import Layout, LayoutError, flatten_to_tuple, parse, product, to_text

RAISES = "raises"
# What pycute raises on operands that it does not take; cutepy raises LayoutError and nothing else.
PYCUTE_ERRORS = (AssertionError, ZeroDivisionError, IndexError, TypeError, ValueError)


@dataclass(frozen=True)
class Call:
    """A function and its operands: ints, None, Layouts of cutepy, and tuples of these."""

    function: str
    operands: tuple[Any, ...]

    def on(self, module: ModuleType) -> str:
        """Make the call in `module`: the result in the notation, or RAISES."""
        operands = [of_module(operand, module) for operand in self.operands]
        function = _METHODS.get(self.function) or getattr(module, self.function)
        errors = LayoutError if module is layouts else PYCUTE_ERRORS
        try:
            result = function(*operands)
        except errors:
            return RAISES
        return to_text(of_module(result, layouts))

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(to_text, self.operands))})"


_METHODS: dict[str, Callable[..., Any]] = {
    "call": lambda layout, crd: layout(crd),
    "mode": lambda layout, i: layout[i],
}


def of_module(value: Any, module: ModuleType) -> Any:
    if isinstance(value, tuple):
        return tuple(of_module(element, module) for element in value)
    if hasattr(value, "shape") and not isinstance(value, module.Layout):
        return module.Layout(value.shape, value.stride)
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Drawing calls
# ---------------------------------------------------------------------------------------------------------------------

EXTENTS = (1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16)


def draw_shape(rng: random.Random, depth: int = 2, modes: int = 3) -> Any:
    if depth and rng.random() < 0.45:
        return tuple(draw_shape(rng, depth - 1, modes) for _ in range(rng.randint(1, modes)))
    return rng.choice(EXTENTS)


def draw_layout(rng: random.Random, depth: int = 2, modes: int = 3) -> Layout:
    """Draw a layout whose modes stand in some order, with gaps, zeros, overlaps and negative strides now and then."""
    shape = draw_shape(rng, depth, modes)
    extents = flatten_to_tuple(shape)
    order = list(range(len(extents)))
    kind = rng.random()
    if kind > 0.35:
        rng.shuffle(order)
    strides = [0] * len(extents)
    current = rng.choice((1, 2, 3)) if kind > 0.8 else 1
    for mode in order:
        strides[mode] = current
        current *= extents[mode] * (rng.choice((2, 3, 4)) if kind > 0.6 and rng.random() < 0.3 else 1)
    for mode, extent in enumerate(extents):
        chance = rng.random()
        if chance < 0.07 or (extent == 1 and chance < 0.4):
            strides[mode] = 0
        elif chance < 0.10:
            strides[mode] = -strides[mode]
        elif chance < 0.14:
            strides[mode] = rng.choice((1, 2, 3, 5, 7, 12))
    return Layout(shape, layouts.unflatten(tuple(strides), shape))


def draw_coordinate(rng: random.Random, shape: Any, underscores: float = 0.0) -> Any:
    if rng.random() < underscores:
        return None
    if isinstance(shape, tuple) and rng.random() < 0.8:
        return tuple(draw_coordinate(rng, mode, underscores) for mode in shape)
    return rng.randrange(product(shape))


def draw_tiler(rng: random.Random, layout: Layout) -> Any:
    kind = rng.random()
    if kind < 0.35:
        return draw_layout(rng, 1, 2)
    if kind < 0.5:
        return rng.choice((1, 2, 3, 4, 6, 8, 16))
    if kind < 0.55:
        return None
    return tuple(_draw_mode_tiler(rng) for _ in range(rng.randint(1, len(layout))))


def _draw_mode_tiler(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice((1, 2, 2, 4, 4, 8))
    if kind < 0.65:
        return draw_layout(rng, 1, 2)
    return Layout(rng.choice((1, 2, 4)), rng.choice((1, 1, 2, 4))) if kind < 0.9 else None


def _layout(rng: random.Random) -> tuple[Any, ...]:
    return (draw_layout(rng),)


def _layout_and_tiler(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    return layout, draw_tiler(rng, layout)


def _layout_and_profile(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    return layout, (1,) * rng.randint(1, len(layout))


def _layout_and_extent(rng: random.Random) -> tuple[Any, ...]:
    return draw_layout(rng), rng.choice((1, 2, 8, 24, 64, 100, 256))


def _layout_and_coordinate(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    return layout, draw_coordinate(rng, layout.shape, rng.choice((0.0, 0.5)))


def _slice_of_layout(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    return draw_coordinate(rng, layout.shape, 0.5), layout


def _slice_of_shape(rng: random.Random) -> tuple[Any, ...]:
    shape = draw_shape(rng)
    return draw_coordinate(rng, shape, 0.5), shape


def _crd_shape_stride(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    crd = draw_coordinate(rng, layout.shape)
    return (crd, layout.shape, layout.stride) if rng.random() < 0.7 else (crd, layout.shape)


def _index_shape_stride(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    if rng.random() < 0.5:
        return rng.randrange(64), layout.shape, layout.stride
    return draw_coordinate(rng, layout.shape), layout.shape


def _crd_and_shapes(rng: random.Random) -> tuple[Any, ...]:
    source = draw_shape(rng)
    return draw_coordinate(rng, source), rng.choice((source, draw_shape(rng))), source


def _shape(rng: random.Random) -> tuple[Any, ...]:
    return (draw_shape(rng),)


def _two_shapes(rng: random.Random) -> tuple[Any, ...]:
    shape = draw_shape(rng)
    return shape, rng.choice((draw_shape(rng), shape, rng.choice((1, 2, 3, 4, 6, 8, 12, 24, 48))))


def _layout_and_mode(rng: random.Random) -> tuple[Any, ...]:
    layout = draw_layout(rng)
    return layout, rng.randint(-len(layout), len(layout) - 1)


OPERANDS: dict[str, Callable[[random.Random], tuple[Any, ...]]] = {
    "Layout": _shape,
    "call": _layout_and_coordinate,
    "coalesce": lambda rng: rng.choice((_layout, _layout_and_profile))(rng),
    "complement": lambda rng: rng.choice((_layout, _layout_and_extent))(rng),
    "composition": _layout_and_tiler,
    "cosize": _layout,
    "crd2crd": _crd_and_shapes,
    "crd2idx": _crd_shape_stride,
    "elem_scale": _two_shapes,
    "filter": lambda rng: rng.choice((_layout, _layout_and_profile))(rng),
    "flatten": _shape,
    "idx2crd": _index_shape_stride,
    "inner_product": _two_shapes,
    "left_inverse": _layout,
    "logical_divide": _layout_and_tiler,
    "logical_product": _layout_and_tiler,
    "mode": _layout_and_mode,
    "prefix_product": _shape,
    "product": _shape,
    "right_inverse": _layout,
    "shape_div": _two_shapes,
    "size": _layout,
    "slice_": _slice_of_shape,
    "slice_and_offset": _slice_of_layout,
    "tiled_divide": _layout_and_tiler,
    "tiled_product": _layout_and_tiler,
    "tuple_max": _shape,
    "zipped_divide": _layout_and_tiler,
    "zipped_product": _layout_and_tiler,
}


def draw_calls(seed: int, each: int) -> Iterator[Call]:
    """Draw `each` calls of every function."""
    for function, operands in OPERANDS.items():
        rng = random.Random(f"{function} {seed}")
        for _ in range(each):
            yield Call(function, operands(rng))


# ---------------------------------------------------------------------------------------------------------------------
# Classes of disagreement
# ---------------------------------------------------------------------------------------------------------------------

COMPOSING = frozenset(
    f"{kind}_{operation}" for kind in ("logical", "zipped", "tiled") for operation in ("divide", "product")
) | {"composition"}
GATHERING = frozenset(name for name in COMPOSING if name.startswith(("zipped", "tiled")))


@dataclass(frozen=True)
class Disagreement:
    """One call whose outcomes differ."""

    call: Call
    pycute: str
    cutepy: str

    @property
    def function(self) -> str:
        return self.call.function

    @property
    def operands(self) -> tuple[Any, ...]:
        return self.call.operands

    @property
    def both_have_values(self) -> bool:
        return RAISES not in (self.pycute, self.cutepy)

    def __str__(self) -> str:
        return f"{self.call}: {self.pycute} in pycute, {self.cutepy} here"


def compare(call: Call, pycute: ModuleType) -> Disagreement | None:
    """Make a call on both sides; None where the outcomes are equal."""
    theirs, ours = call.on(pycute), call.on(layouts)
    return None if theirs == ours else Disagreement(call, theirs, ours)


def _any_leaf(condition: Callable[[Any], bool], value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_any_leaf(condition, element) for element in value)
    return condition(value)


def _strides(value: Any) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return sum(map(_strides, value), ())
    return flatten_to_tuple(value.stride) if isinstance(value, Layout) else ()


def _has_negative_stride(d: Disagreement) -> bool:
    integers = () if d.function in ("idx2crd", "crd2idx") and len(d.operands) < 3 else d.operands[2:]
    return any(stride < 0 for stride in (*_strides(d.operands), *flatten_to_tuple(integers)) if isinstance(stride, int))


def _without_strides_of_ones(text: str) -> str:
    def clear(value: Any) -> Any:
        if isinstance(value, Layout):
            return Layout(
                value.shape, layouts.transform_leaf(lambda s, d: d if s != 1 else 0, value.shape, value.stride)
            )
        return tuple(map(clear, value)) if isinstance(value, tuple) else value

    return to_text(clear(parse(text)))


def _sizes_one_differ(d: Disagreement) -> bool:
    return d.both_have_values and _without_strides_of_ones(d.pycute) == _without_strides_of_ones(d.cutepy)


def _holds_int(tiler: Any) -> bool:
    return _any_leaf(lambda x: isinstance(x, int), tiler)


def _holds_none(tiler: Any) -> bool:
    return _any_leaf(lambda x: x is None, tiler)


def _ends_in_size_one(d: Disagreement) -> bool:
    """Tell whether some mode that a tiler acts on ends in size 1, after which C++ goes on with its stride."""
    layout, tiler = d.operands
    if not isinstance(tiler, tuple):
        return bool(flatten_to_tuple(layout.shape)[-1:] == (1,))
    return any(
        _ends_in_size_one(Disagreement(Call(d.function, pair), "", "")) for pair in zip(layout, tiler, strict=False)
    )


def _rest_is_rank_one(d: Disagreement) -> bool:
    """Tell whether unpacking a rest of rank 1 is all that differs."""
    zipped = Call(d.function.replace("tiled", "zipped"), d.operands).on(layouts)
    return zipped != RAISES and len(parse(zipped)[1]) == 1


# Layouts drawn here can have millions of elements; larger ones are not evaluated.
LARGEST = 4096


def _composes(d: Disagreement) -> bool:
    """Tell whether C++'s composition with a layout is that of the functions, where the tiler's steps fit the modes."""
    layout, tiler = d.operands
    if d.function != "composition" or not isinstance(tiler, Layout):
        return True
    ends = [
        product(flatten_to_tuple(layout.shape)[:modes]) for modes in range(1, len(flatten_to_tuple(layout.shape)) + 1)
    ]
    if any(end % step and step % end for end in ends for step in _strides(tiler) if step):
        return True
    result = parse(d.cutepy)
    return all(result(i) == layout(tiler(i)) for i in range(min(tiler.size(), LARGEST)))


def _is_that_coordinate(d: Disagreement) -> bool:
    """Tell whether C++'s coordinate has the index that was asked for, where the strides are no matter."""
    crd, shape, *more = d.operands
    if d.function == "idx2crd" and more:
        leaves = zip(flatten_to_tuple(shape), flatten_to_tuple(more[0]), strict=True)
        return any(extent == 1 or stride < 0 for extent, stride in leaves)
    return _same_index(parse(d.cutepy), shape, crd, more[0] if more else shape)


def _same_index(a: Any, shape_a: Any, b: Any, shape_b: Any) -> bool:
    if isinstance(shape_a, tuple) and isinstance(shape_b, tuple) and isinstance(a, tuple) and isinstance(b, tuple):
        return all(map(_same_index, a, shape_a, b, shape_b))
    return bool(layouts.crd2idx(a, shape_a) == layouts.crd2idx(b, shape_b))


def _both_are_right_inverses(d: Disagreement) -> bool:
    """Tell whether both results invert, and C++'s is no smaller."""
    layout, theirs, ours = d.operands[0], parse(d.pycute), parse(d.cutepy)
    if theirs.size() > ours.size():
        return False
    return all(layout(inverse(i)) == i for inverse in (theirs, ours) for i in range(min(inverse.size(), LARGEST)))


def _inverts_from_the_left(d: Disagreement) -> bool:
    """Tell whether C++'s result inverts the layout, where that is possible: where no two coordinates share an index."""
    layout = d.operands[0]
    if d.cutepy == RAISES or layout.size() > LARGEST:
        return True
    indices = [layout(i) for i in range(layout.size())]
    inverse = parse(d.cutepy)
    return len(set(indices)) < len(indices) or all(inverse(index) == i for i, index in enumerate(indices))


CLASSES: dict[str, Callable[[Disagreement], bool]] = {
    "Flattening an integer": lambda d: d.function == "flatten" and isinstance(d.operands[0], int),
    "Slicing with a single underscore": lambda d: (
        (d.function == "call" and d.operands[1] is None)
        or (d.function in ("slice_", "slice_and_offset") and d.operands[0] is None)
    ),
    "Coordinates of indices": lambda d: d.function in ("idx2crd", "crd2crd") and _is_that_coordinate(d),
    "Layouts of rank 1": lambda d: d.function == "mode" and isinstance(d.operands[0].shape, int),
    "Negative strides": lambda d: (
        _has_negative_stride(d) and d.function in COMPOSING | {"complement", "cosize", "left_inverse", "right_inverse"}
    ),
    "Modes of size 1": lambda d: d.function == "Layout" or _sizes_one_differ(d),
    "Layouts that overlap themselves": lambda d: d.function == "complement" and d.cutepy == RAISES,
    "Right inverse": lambda d: d.function == "right_inverse" and _both_are_right_inverses(d),
    "Left inverse": lambda d: d.function == "left_inverse" and _inverts_from_the_left(d),
    "Products with an integer": lambda d: d.function.endswith("product") and _holds_int(d.operands[1]),
    "Gathering around an underscore": lambda d: d.function in GATHERING and _holds_none(d.operands[1]),
    "A rest of rank 1": lambda d: d.function.startswith("tiled") and _rest_is_rank_one(d),
    "Fewer tilers than modes": lambda d: (
        d.function == "composition" and isinstance(d.operands[1], tuple) and len(d.operands[1]) < len(d.operands[0])
    ),
    "A last mode of size 1": lambda d: (
        d.function in COMPOSING and d.both_have_values and _ends_in_size_one(d) and _composes(d)
    ),
    "Operands that C++ accepts": lambda d: d.function in COMPOSING and d.pycute == RAISES,
    "Operands that C++ rejects": lambda d: d.function in COMPOSING and d.cutepy == RAISES,
}


def classify(d: Disagreement) -> str | None:
    """Return the class of docs/pycute.md in which a disagreement falls, or None."""
    return next((name for name, condition in CLASSES.items() if condition(d)), None)
