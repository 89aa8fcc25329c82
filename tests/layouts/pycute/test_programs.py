"""A program written for pycute runs with cutepy.layouts in pycute's place."""

from __future__ import annotations

import inspect
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cutepy import layouts

# pycute's public functions, with its names for their parameters.
FUNCTIONS = {
    "coalesce": ["layout", "profile"],
    "complement": ["layout", "max_idx"],
    "composition": ["layoutA", "layoutB"],
    "cosize": ["layout"],
    "crd2crd": ["crd", "dst_shape", "src_shape"],
    "crd2idx": ["crd", "shape", "stride"],
    "elem_scale": ["a", "b"],
    "filter": ["layout", "profile"],
    "flatten": ["t"],
    "has_none": ["a"],
    "hier_unzip": ["splitter", "layoutA", "layoutB"],
    "idx2crd": ["idx", "shape", "stride"],
    "inner_product": ["a", "b"],
    "is_int": ["x"],
    "is_layout": ["x"],
    "is_tuple": ["x"],
    "left_inverse": ["layout"],
    "logical_divide": ["layoutA", "layoutB"],
    "logical_product": ["layoutA", "layoutB"],
    "make_layout": [],
    "prefix_product": ["a", "init"],
    "product": ["a"],
    "right_inverse": ["layout"],
    "shape_div": ["a", "b"],
    "shiftl": ["a", "s"],
    "shiftr": ["a", "s"],
    "signum": ["a"],
    "size": ["layout"],
    "slice_": ["crd", "trg"],
    "slice_and_offset": ["crd", "layout"],
    "tiled_divide": ["layoutA", "layoutB"],
    "tiled_product": ["layoutA", "layoutB"],
    "tuple_max": ["a"],
    "zipped_divide": ["layoutA", "layoutB"],
    "zipped_product": ["layoutA", "layoutB"],
}
CLASSES = {
    "ComposedLayout": ["layoutB", "offset", "layoutA"],
    "Integer": [],
    "Layout": [],
    "LayoutBase": [],
    "Swizzle": ["bits", "base", "shift"],
}


@pytest.fixture
def star(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Names that `from pycute import *` gives a program."""
    monkeypatch.setitem(sys.modules, "pycute", layouts)
    names: dict[str, Any] = {}
    exec("from pycute import *", names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_a_star_import_brings_pycutes_names(name: str, star: SimpleNamespace) -> None:
    assert callable(getattr(layouts, name))
    assert hasattr(star, name) == (name != "filter")  # which would shadow the builtin


@pytest.mark.parametrize(("name", "parameters"), list({**FUNCTIONS, **CLASSES}.items()))
def test_parameters_have_pycutes_names_and_order(name: str, parameters: list[str]) -> None:
    signature = inspect.signature(getattr(layouts, name)).parameters
    assert list(signature)[: len(parameters)] == parameters
    # What cutepy adds may be left out.
    for added in list(signature.values())[len(parameters) :]:
        assert added.default is not inspect.Parameter.empty or added.kind is added.VAR_POSITIONAL or name == "Layout"


@pytest.mark.parametrize(
    ("cls", "value", "expected"),
    [(int, 3, True), (bool, True, False), (float, 2.0, False), (str, "3", False), (tuple, (3,), False)],
)
def test_integers(cls: type, value: object, expected: bool, star: SimpleNamespace) -> None:
    assert issubclass(cls, star.Integer) is expected
    assert isinstance(value, star.Integer) is expected
    assert star.is_int(value) is expected


def test_int_tuples(star: SimpleNamespace) -> None:
    assert [star.product(t) for t in (7, (), (7,), (2, (3, (5,))))] == [7, 1, 7, 30]
    assert star.inner_product(((1, 2), 3), ((4, 5), 6)) == 32
    assert star.tuple_max((3, (9, (1,)))) == 9
    assert [star.signum(i) for i in (-4, 0, 9)] == [-1, 0, 1]
    assert star.elem_scale((2, (3, 4)), ((5, 6), (7, 8))) == (60, (21, 32))
    assert star.flatten((1, ((2,), ()), 3)) == (1, 2, 3)
    assert (star.has_none((1, (2, None))), star.has_none((1, 2)), star.has_none(None)) == (True, False, True)
    assert star.is_tuple(())
    assert not star.is_tuple([])


def test_shape_div(star: SimpleNamespace) -> None:
    assert star.shape_div(12, 4) == 3
    assert star.shape_div(4, 12) == 1
    assert star.shape_div((2, 6), 4) == (1, 3)
    assert star.shape_div(((2, 2), (6, 5)), 12) == ((1, 1), (2, 5))
    assert star.shape_div((8, (4, 6)), (2, (4, 12))) == (4, (1, 1))
    assert star.shape_div(24, (2, 3)) == 4


def test_prefix_product(star: SimpleNamespace) -> None:
    assert star.prefix_product(5) == 1
    assert star.prefix_product(5, 3) == 3
    assert star.prefix_product((2, (3, 1), 4)) == (1, (2, 6), 6)
    assert star.prefix_product((2, 3), 10) == (10, 20)
    assert star.prefix_product((2, (3, 4)), (10, 100)) == (10, (100, 300))


def test_coordinates(star: SimpleNamespace) -> None:
    shape, stride = (3, (2, 4)), (8, (4, 1))
    for i, crd in enumerate(itertools.product(range(4), range(2), range(3))):
        c2, c1, c0 = crd
        assert star.idx2crd(i, shape) == (c0, (c1, c2))
        assert star.crd2idx((c0, (c1, c2)), shape) == i
        assert star.crd2idx((c0, (c1, c2)), shape, stride) == star.crd2idx(i, shape, stride) == 8 * c0 + 4 * c1 + c2
        assert star.crd2crd((c0, (c1, c2)), 24, shape) == i
    assert star.crd2idx(None, shape) == 0
    assert star.crd2idx((1, None), shape, stride) == 8


def test_slicing(star: SimpleNamespace) -> None:
    assert star.slice_((None, 1), (4, 8)) == (4,)
    assert star.slice_((2, (None, 1)), (4, (8, 2))) == (8,)
    assert star.slice_((None, (None, 1)), (4, (8, 2))) == (4, 8)
    layout = star.Layout((4, (8, 2)), (1, (4, 32)))
    assert layout(None, (None, 1)) == star.Layout((4, 8), (1, 4))
    assert star.slice_and_offset((2, (None, 1)), layout) == (star.Layout((8,), (4,)), 34)


def test_a_layout_is_a_tuple_of_modes_and_a_function(star: SimpleNamespace) -> None:
    layout = star.Layout((4, (2, 3)), (6, (3, 1)))
    assert (layout.shape, layout.stride) == ((4, (2, 3)), (6, (3, 1)))
    assert (len(layout), len(star.Layout(8)), len(layout[1])) == (2, 1, 2)
    assert list(layout) == [layout[0], layout[1]] == [star.Layout(4, 6), star.Layout((2, 3), (3, 1))]
    assert layout[-1] == layout[1]
    assert layout[0:1] == star.Layout((4,), (6,))
    assert (layout.size(), star.size(layout), star.size((4, (2, 3)))) == (24, 24, 24)
    assert (layout.cosize(), star.cosize(layout)) == (24, 24)
    assert layout(3, (1, 2)) == layout((3, (1, 2))) == layout(3, 5) == layout(23) == 23
    assert eval(repr(layout), vars(star)) == layout
    assert (star.is_layout(layout), star.is_layout((4, 2))) == (True, False)
    assert isinstance(layout, star.LayoutBase)


def test_make_layout_takes_layouts_generators_and_lists(star: SimpleNamespace) -> None:
    a, b = star.Layout(4, 2), star.Layout((2, 3))
    expected = star.Layout((4, (2, 3)), (2, (1, 2)))
    assert star.make_layout(a, b) == expected
    assert star.make_layout(mode for mode in (a, b)) == expected
    assert star.make_layout([a, b]) == star.make_layout((a, b)) == expected
    assert star.make_layout(itertools.chain([a], [b])) == expected
    assert star.make_layout(a) == star.Layout((4,), (2,))


def test_swizzles(star: SimpleNamespace) -> None:
    for bits, base, shift in itertools.product(range(4), range(3), (-4, -3, 3, 4)):
        swizzle = star.Swizzle(bits, base, shift)
        assert (swizzle.bits, swizzle.base, swizzle.shift) == (bits, base, shift)
        mask = (1 << bits) - 1
        assert swizzle.yyy_msk == mask << (base + max(0, shift))
        assert swizzle.zzz_msk == mask << (base - min(0, shift))
        assert swizzle.size() == swizzle.cosize() == 1 << (bits + base + abs(shift))
        for i in range(0, swizzle.size(), 5):
            assert swizzle(i) == i ^ star.shiftr(i & swizzle.yyy_msk, shift)
            assert swizzle(swizzle(i)) == i
        assert eval(repr(swizzle), vars(star)) == swizzle
    assert (star.shiftr(12, 2), star.shiftr(12, -2), star.shiftl(3, 2), star.shiftl(12, -2)) == (3, 48, 12, 3)


def test_composed_layouts(star: SimpleNamespace) -> None:
    inner = star.Layout((8, 8), (8, 1))
    layout = star.ComposedLayout(star.Swizzle(3, 0, 3), 2, inner)
    assert (layout.layoutB, layout.offset, layout.layoutA) == (star.Swizzle(3, 0, 3), 2, inner)
    assert (len(layout), layout.size()) == (2, 64)
    assert [layout(i) for i in range(64)] == [layout.layoutB(2 + inner(i)) for i in range(64)]
    assert layout[0] == star.ComposedLayout(star.Swizzle(3, 0, 3), 2, inner[0])
    assert star.is_layout(layout)


# Small layouts of every kind: ranks 1 to 3, nested, padded, broadcast, reordered.
LAYOUTS = [
    layouts.Layout(shape, stride)
    for shape, stride in [
        (1, 0),
        (1, 1),
        (6, 0),
        (6, 1),
        (6, 3),
        ((), ()),
        ((1, 1), (0, 0)),
        ((4, 6), (1, 4)),
        ((4, 6), (6, 1)),
        ((4, 6), (1, 8)),
        ((4, 1, 6), (1, 5, 4)),
        ((2, 4, 8), (32, 1, 4)),
        ((3, 5), (0, 0)),
        ((3, (2, 4)), (8, (1, 2))),
        (((2, 2), (2, 2)), ((1, 4), (2, 8))),
        (((2, 2), (2, 2)), ((1, 8), (2, 32))),
        ((2, (4, 1), 3), (12, (3, 0), 1)),
        ((4, (4, 1)), (4, (1, 9))),
    ]
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_coalesce_keeps_the_function(layout: Any, star: SimpleNamespace) -> None:
    merged = star.coalesce(layout)
    assert star.size(merged) == star.size(layout)
    assert [merged(i) for i in range(star.size(layout))] == [layout(i) for i in range(star.size(layout))]
    assert len(star.flatten(merged.shape) if star.is_tuple(merged.shape) else (0,)) <= max(
        1, len(star.flatten((layout.shape,)))
    )
    if len(layout) > 1:
        by_mode = star.coalesce(layout, (1,) * len(layout))
        assert [by_mode[i] for i in range(len(layout))] == [star.coalesce(layout[i]) for i in range(len(layout))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_filter_keeps_the_image(layout: Any) -> None:
    kept = layouts.filter(layout)
    assert {kept(i) for i in range(kept.size())} == {layout(i) for i in range(layout.size())}
    assert 0 not in layouts.flatten((kept.stride,)) or kept == layouts.Layout(1, 0)


@pytest.mark.parametrize("bound", [None, 1, 20, 48])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_complement_is_disjoint_and_ordered(layout: Any, bound: int | None, star: SimpleNamespace) -> None:
    rest = star.complement(layout) if bound is None else star.complement(layout, bound)
    own = {layout(i) for i in range(layout.size())}
    others = [rest(i) for i in range(rest.size())]
    assert others == sorted(set(others))
    assert own.isdisjoint(set(others) - {0})
    if bound is not None:
        both = star.make_layout(layout, rest)
        assert star.cosize(both) >= bound
    assert star.complement(5, 20) == star.Layout(4, 5)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_inverses_invert(layout: Any, star: SimpleNamespace) -> None:
    right = star.right_inverse(layout)
    assert all(layout(right(i)) == i for i in range(star.size(right)))
    indices = [layout(i) for i in range(layout.size())]
    if len(set(indices)) == len(indices):
        left = star.left_inverse(layout)
        assert all(left(index) == i for i, index in enumerate(indices))


def test_inverses_of_integers_and_none(star: SimpleNamespace) -> None:
    assert (star.right_inverse(None), star.left_inverse(None)) == (None, None)
    assert star.right_inverse(6) == star.left_inverse(6) == star.Layout(6)


def is_power_of_two(x: int) -> bool:
    return x & (x - 1) == 0


# Where everything is a power of two, everything that must divide does.
POWERS_OF_TWO = [
    x for x in LAYOUTS if x.shape != () and all(map(is_power_of_two, layouts.flatten((x.shape, x.stride))))
]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        *itertools.product(POWERS_OF_TWO, POWERS_OF_TWO),
        (layouts.Layout(12, 2), layouts.Layout((4, 3), (3, 1))),
        (layouts.Layout((4, 3), (3, 1)), layouts.Layout((6, 2), (2, 1))),
        (layouts.Layout((4, 3)), layouts.Layout(12)),
        (layouts.Layout((4, 6, 8), (1, 4, 7)), layouts.Layout(6, 1)),
        (layouts.Layout((4, 6, 8, 10), (2, 3, 5, 7)), layouts.Layout(6, 12)),
        (layouts.Layout((10, 2), (16, 4)), layouts.Layout((5, 4), (1, 5))),
        (layouts.Layout((6, 2), (8, 2)), layouts.Layout((4, 3), (3, 1))),
    ],
    ids=str,
)
def test_composition_composes(a: Any, b: Any, star: SimpleNamespace) -> None:
    result = star.composition(a, b)
    assert star.size(result) == star.size(b)
    assert [result(i) for i in range(star.size(b))] == [a(b(i)) for i in range(star.size(b))]


def test_composition_with_tilers(star: SimpleNamespace) -> None:
    layout = star.Layout((12, (4, 8)), (59, (13, 1)))
    assert star.composition(layout, None) == layout
    assert star.composition(layout, 6) == star.Layout(6, 59)
    by_mode = star.composition(layout, (star.Layout(3, 4), 4))
    assert by_mode == star.make_layout(star.Layout(3, 236), star.Layout(4, 13))


@pytest.mark.parametrize("tiler", [(4, 2), 8, (2, None)], ids=str)
def test_divides_split_into_tile_and_rest(tiler: Any, star: SimpleNamespace) -> None:
    layout = star.Layout((8, 6), (6, 1))
    parts = star.logical_divide(layout, tiler)
    indices = {layout(i) for i in range(48)}
    assert {parts(i) for i in range(48)} == indices
    if star.has_none(tiler):
        return
    zipped, tiled = star.zipped_divide(layout, tiler), star.tiled_divide(layout, tiler)
    assert zipped == star.hier_unzip(star.logical_divide, layout, tiler)
    assert tiled == star.make_layout([zipped[0], *zipped[1]])
    assert star.size(zipped[0]) == 8
    assert {zipped(i) for i in range(48)} == indices


def test_products_repeat_the_block(star: SimpleNamespace) -> None:
    block, tiler = star.Layout((2, 3), (3, 1)), star.Layout((4, 2), (2, 1))
    result = star.logical_product(block, tiler)
    assert result[0] == block
    assert sorted(result(i) for i in range(48)) == list(range(48))
    assert star.zipped_product(block, tiler) == result
    assert star.tiled_product(block, tiler) == star.make_layout([result[0], *result[1]])
    assert star.logical_product(block, None) == block
