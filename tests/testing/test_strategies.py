"""The strategies draw what they promise, reach what matters, and shrink to what a person can read."""

import subprocess
import sys

import pytest
from hypothesis import Phase, find, given, settings, strategies as st

import cutepy.testing
from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    SmemPtr,
    coalesce,
    complement,
    composition,
    evenly_divides,
    parse,
    sm90,
    to_text,
)
from cutepy.testing import strategies as lst
from cutepy.testing.strategies.operands import _draw_runs
from cutepy.testing.strategies.shapes import favouring
from tests.layouts import brute_force as bf
from tests.messages import refuses


def depth(t):
    return 1 + max(map(depth, t)) if isinstance(t, tuple) else 0


def rank(t):
    return len(t) if isinstance(t, tuple) else 1


LIMITS = st.fixed_dictionaries(
    {
        "max_rank": st.integers(1, 4),
        "max_depth": st.integers(2, 3),
        "max_leaves": st.integers(1, 5),
        "max_extent": st.integers(2, 9),
        "max_size": st.integers(2, 100),
        "size_one": st.booleans(),
        "powers_of_two": st.booleans(),
    }
)


@given(st.data(), LIMITS)
def test_shapes_keep_to_their_limits(data, limits):
    shape = data.draw(lst.shapes(**limits))
    extents = bf.leaves(shape)
    assert rank(shape) <= limits["max_rank"]
    assert depth(shape) <= limits["max_depth"]
    assert len(extents) <= limits["max_leaves"]
    assert max(extents) <= limits["max_extent"]
    assert bf.size(shape) <= limits["max_size"]
    assert min(extents) >= (1 if limits["size_one"] else 2)
    assert all(n & (n - 1) == 0 for n in extents) or not limits["powers_of_two"]


@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 3))
def test_int_tuples_keep_to_their_limits(data, max_leaves, max_rank, max_depth):
    t = data.draw(lst.int_tuples(st.just(0), max_leaves=max_leaves, max_rank=max_rank, max_depth=max_depth))
    assert len(bf.leaves(t)) <= max_leaves
    assert rank(t) <= max_rank
    assert depth(t) <= max_depth


@given(lst.layouts(compact=True))
def test_compact_layouts_are_bijections(layout):
    assert sorted(bf.table(layout)) == list(range(layout.size()))


@given(lst.layouts(injective=True))
def test_injective_layouts_are_injective(layout):
    assert len(set(bf.table(layout))) == layout.size()


@given(st.data(), lst.shapes(), st.integers(1, 20))
def test_layouts_take_a_shape_and_keep_to_their_strides(data, shape, max_stride):
    layout = data.draw(lst.layouts(shape, max_stride=max_stride, zero_strides=False))
    assert layout.shape == shape
    assert all(d > 0 for d in bf.leaves(layout.stride))
    assert data.draw(lst.layouts(st.just(shape))).shape == shape


def steps_within(a, b):
    """(step, extent) of each mode of B in the mode of A, but the last, that it steps in and not over."""
    for extent, step in bf.modes(b):
        step = abs(step)
        for mode in bf.leaves(coalesce(a).shape)[:-1] if extent > 1 and step else ():
            if step < mode:
                yield step, mode
                break
            step //= mode


def signs(layout):
    return {d > 0 for s, d in bf.modes(layout) if d and s > 1}


def is_wrapped(t):
    """Return True if a mode is a tuple of one."""
    return isinstance(t, tuple) and (len(t) == 1 or any(map(is_wrapped, t)))


def free_steps(block, tiler):
    """As `steps_within`, of a tiler's steps in what its block leaves free."""
    return steps_within(complement(block, 1 << 20), tiler)


def strides_of_modes(tile):
    """The step between atoms in each mode of a tile; of one atom only, more than any."""
    layout = tile.layoutA if isinstance(tile, ComposedLayout) else tile
    return [mode[-1].stride if bf.size(mode[-1].shape) > 1 else layout.size() for mode in layout]


MATTERS = [
    (lst.composable_pairs(), lambda x: any(1 < step and mode % step for step, mode in steps_within(*x))),
    (
        lst.composable_pairs(lst.layouts(max_size=512)),
        lambda x: sum(m % step > 0 for step, m in steps_within(*x)) > 1,
    ),
    (lst.composable_pairs(), lambda x: signs(x[1]) == {False}),
    (lst.composable_pairs(), lambda x: signs(x[1]) == {False, True}),
    (lst.composable_pairs(), lambda x: signs(x[1]) == {False} and depth(composition(*x).shape) > depth(x[1].shape)),
    (
        lst.composable_pairs(),
        lambda x: any(s > 1 and d == 0 for s, d in bf.modes(x[1])) and bf.size(x[1].shape) > 4,
    ),
    (lst.composable_pairs(), lambda x: any(s == 1 and d for s, d in bf.modes(x[1]))),
    (lst.composable_pairs(), lambda x: depth(x[1].shape) == 2),
    (lst.composable_pairs(lst.layouts(signed=True)), lambda x: signs(x[0]) == signs(x[1]) == {False}),
    (lst.layouts(), lambda x: any(s == 1 and d for s, d in bf.modes(x))),
    (lst.layouts(), lambda x: is_wrapped(x.shape) and x.size() > 1),
    (lst.layouts(), lambda x: any(d % 2 and d > 8 for d in bf.leaves(x.stride))),
    (lst.layouts(signed=True), lambda x: signs(x) == {False, True}),
    (lst.layouts(injective=True), lambda x: x.cosize() > 2 * x.size() > 4),
    (lst.layouts(injective=True, zero_strides=True), lambda x: len(set(bf.table(x))) < x.size() < x.cosize()),
    (lst.layouts(compact=True, signed=True), lambda x: signs(x) == {False, True}),
    (lst.shapes(size_zero=True), lambda x: 0 in bf.leaves(x) and len(bf.leaves(x)) > 2),
    (lst.layouts(size_zero=True), lambda x: x.size() == 0 and max(bf.leaves(x.stride)) > 1),
    (lst.basis_layouts(), lambda x: len({d.modes for d in bf.leaves(x.stride)}) == 3),
    (lst.basis_layouts(signed=True), lambda x: {d.value > 0 for d in bf.leaves(x.stride)} == {True, False}),
    (lst.basis_layouts(zero_strides=True), lambda x: 0 in bf.leaves(x.stride)),
    (lst.swizzles(), lambda x: x.bits == 0),
    (lst.swizzles(), lambda x: abs(x.shift) > x.bits > 1),
    (lst.composed_layouts(), lambda x: x.offset == 0),
    (lst.composed_layouts(pointers=True), lambda x: isinstance(x.offset, SmemPtr) and x.offset.address is None),
    (lst.composed_layouts(nested=True), lambda x: isinstance(x.layoutB, Layout)),
    (lst.any_layouts(), lambda x: bf.is_plain_swizzled(x) and signs(x.layoutA) == {False}),
    (lst.tiler_layouts(Layout((4, 6))), lambda x: len(bf.modes(x)) > 1 and depth(x.shape) == 2),
    (lst.tilers(Layout((4, (2, 6)))), lambda x: type(x) is int and 24 % x == 0 and x > 1),
    (lst.tilers(Layout((4, (2, 6)))), lambda x: type(x) is tuple and type(x[-1]) is tuple),
    (lst.product_operands(), lambda x: any(mode % step for step, mode in free_steps(*x))),
    (lst.product_operands(), lambda x: x[0].size() == 1 < x[1].size()),
    (lst.target_shapes(Layout((2, 3))), lambda x: len(x) == 3 and x[2] > 1),
    (lst.coordinates((4, (2, 6))), lambda x: type(x) is tuple and type(x[1]) is int and x[1] > 6),
    (lst.coordinates((4, (2, 6))), lambda x: x == 47),
    (lst.coordinates((4, (2, 6))), lambda x: x == (3, 11)),
    (lst.coordinates((4, (2, 6))), lambda x: x == (3, (1, 5))),
    (lst.slice_coordinates((4, (2, 6))), lambda x: x is None),
    (lst.int_tuples(), lambda x: 0 in bf.leaves(x) and min(bf.leaves(x)) < 0 and depth(x) == 2),
    (lst.smem_tiles(), lambda x: strides_of_modes(x)[2] < min(strides_of_modes(x)[:2])),
    (lst.layouts(), lambda x: 0 in bf.leaves(x.stride) and x.size() > 1),
    (lst.layouts(signed=True), lambda x: any(d < 0 for d in bf.leaves(x.stride))),
    (lst.layouts(), lambda x: len(set(bf.table(x))) < x.size() and 0 not in bf.leaves(x.stride)),
    (lst.layouts(), lambda x: any(type(s) is tuple for s in (x.shape if type(x.shape) is tuple else ()))),
    (lst.layouts(), lambda x: 1 in bf.leaves(x.shape) and x.rank() == 3),
    (lst.composable_pairs(), lambda x: max(bf.table(x[1])) >= x[0].size() > 3),
    (lst.composable_pairs(), lambda x: depth(composition(*x).shape) > depth(x[1].shape)),
    (lst.product_operands(), lambda x: x[0].size() > 2 < x[1].size() and x[1].rank() > 1),
    (lst.swizzles(), lambda x: x.shift < 0 < x.bits),
    (lst.composed_layouts(nested=True), lambda x: isinstance(x.layoutA, ComposedLayout)),
    (lst.composed_layouts(nested=True), lambda x: isinstance(x.layoutB, ComposedLayout)),
    (lst.composed_layouts(pointers=True), lambda x: isinstance(x.offset, SmemPtr) and x.offset.address),
    (lst.values(), lambda x: type(x) is tuple and any(isinstance(e, Layout) for e in x)),
    (lst.tilers(Layout((4, (2, 6)))), lambda x: type(x) is tuple and None in x),
    (lst.slice_coordinates((4, (2, 6))), lambda x: type(x) is tuple and type(x[1]) is tuple and None in x[1]),
]


@pytest.mark.parametrize(
    ("strategy", "condition"),
    [case if n % 4 == 0 else pytest.param(*case, marks=pytest.mark.integration) for n, case in enumerate(MATTERS)],
    ids=lambda value: None if callable(value) else str(value),  # a function's text holds its address
)
def test_what_matters_is_drawn(strategy, condition):
    find(strategy, condition, settings=settings(max_examples=2000, derandomize=True, phases=[Phase.generate]))


@pytest.mark.parametrize(("some", "count"), [([-1], 50), ([-1, -2], 40), ([-1, -2, -3], 2)])
def test_half_of_the_draws_are_of_the_favoured(some, count):
    drawn = []

    @settings(derandomize=True, max_examples=200)
    @given(favouring(some, range(count)))
    def draw(value):
        drawn.append(value)

    draw()
    share = sum(value < 0 for value in drawn) / len(drawn)
    assert 0.3 < share < 0.8
    assert set(some) <= set(drawn)


@pytest.mark.parametrize(
    ("strategy", "condition", "simplest"),
    [
        (lst.shapes(), lambda x: bf.size(x) >= 4, "4"),
        (lst.layouts(), lambda x: x.size() >= 4, "4:0"),
        (lst.layouts(compact=True), lambda x: x(1) > 1, "(2,2):(2,1)"),
        (lst.composable_pairs(), lambda x: composition(*x).size() > 1, None),
        (lst.swizzles(), lambda x: x.bits > 0, "Sw<1,0,1>"),
        (lst.composed_layouts(), lambda x: x(1) != x.layoutA(1), None),
    ],
)
def test_what_is_found_shrinks(strategy, condition, simplest):
    found = to_text(find(strategy, condition, settings=settings(max_examples=2000, derandomize=True)))
    assert found == simplest if simplest else len(found) < 25


@given(st.data(), lst.shapes())
def test_coordinates_lie_in_their_shape(data, shape):
    assert Layout(shape)(data.draw(lst.coordinates(shape))) in range(bf.size(shape))
    crd = data.draw(lst.slice_coordinates(Layout(shape)))
    assert Layout(shape)(crd).size() <= bf.size(shape)
    assert crd is None or None in bf.leaves(crd)


@given(st.data(), lst.layouts())
def test_tilers_divide(data, layout):
    tiler = data.draw(lst.tiler_layouts(layout))
    assert evenly_divides(layout.shape, tiler)
    assert len(set(bf.table(tiler))) == tiler.size()
    assert set(bf.table(tiler)) <= set(range(layout.size()))


@given(st.data(), lst.layouts(max_size=16))
def test_target_shapes_are_multiples(data, block):
    target = data.draw(lst.target_shapes(block, max_copies=5))
    sizes = [mode.size() for mode in block] + [1] * (len(target) - block.rank())
    assert all(n % size == 0 for n, size in zip(target, sizes, strict=True))
    assert bf.size(target) <= 5 * block.size()


@given(lst.smem_tiles(max_copies=2, max_stages=2))
def test_smem_tiles_are_bijections(tile):
    assert tile.rank() == 3
    assert sorted(bf.table(tile)) == list(range(tile.size()))


@given(lst.gmma_atoms(), lst.gmma_atoms(pointer_swizzle=True), lst.wgmma_atom_names())
def test_hopper_strategies_draw_what_hopper_has(atom, in_bytes, name):
    assert isinstance(atom, (Layout, ComposedLayout))
    assert isinstance(in_bytes.offset, SmemPtr)
    assert sm90.wgmma_traits(name).name == name


def test_many_pairs_of_layouts_cannot_be_composed():
    """This is why composable_pairs exists."""
    composed, refused = [], []

    @settings(max_examples=500, derandomize=True, database=None)
    @given(lst.layouts(), lst.layouts())
    def compose(a, b):
        try:
            composed.append(composition(a, b))
        except LayoutError as error:
            assert error.operation == "composition"
            refused.append(error)

    compose()
    assert len(refused) > (len(composed) + len(refused)) / 4


@given(lst.composable_pairs())
def test_composable_pairs_can_be_composed(pair):
    a, b = pair
    assert composition(a, b, exact=True).size() == b.size()


@given(lst.composable_pairs(lst.layouts(signed=True)))
def test_composable_pairs_with_signs_and_modes_of_one(pair):
    a, b = pair
    assert composition(a, b, exact=True).size() == b.size()


STEPS = [("(3,2):(1,10)", ["3:3", "4:6", "5:-6"]), ("(6,2):(1,7)", ["2:-1", "2:-2", "3:-2", "4:-12", "5:1"])]


@pytest.mark.parametrize(("a", "b"), [(a, b) for a, steps in STEPS for b in steps])
def test_steps_of_one_mode_are_drawn(a, b):
    """Legal right operands: composition accepts them as exact."""
    wanted = parse(b)
    assert composition(parse(a), wanted, exact=True)
    pairs = lst.composable_pairs(st.just(parse(a)))
    found = settings(max_examples=8000, derandomize=True, phases=[Phase.generate])
    find(pairs, lambda pair: coalesce(pair[1]) == wanted and pair[1].rank() == 1, settings=found)


def test_runs_that_end_amid_a_mode_are_drawn():
    """Of digits 4 and 2 the first is a run of three steps."""
    runs = st.composite(_draw_runs)([4, 2], whole=False)
    found = settings(max_examples=2000, derandomize=True, phases=[Phase.generate])
    find(runs, lambda drawn: sorted(drawn) == [(2, 4), (3, 1)], settings=found)


@given(lst.composable_pairs(signed=False))
def test_composable_pairs_without_signs(pair):
    assert min(bf.leaves(pair[1].stride)) >= 0


def test_the_package_needs_hypothesis_for_the_strategies_only():
    code = "import sys; sys.modules['hypothesis'] = None; import cutepy.testing as t; print(sorted(t.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['numerics', 'strategies']"
    assert set(cutepy.testing.__all__) <= set(dir(cutepy.testing))
    with refuses(AttributeError):
        _ = cutepy.testing.nothing
