"""Linear layouts against brute force over all inputs, and Triton's published examples."""

import copy
import pickle
from functools import lru_cache

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError
from cutepy.layouts.linear import LinearLayout, f2, parse_linear
from cutepy.layouts.render import picture_of
from tests.layouts.linear.drawing import linear_layouts, permutations
from tests.messages import refuses

L = LinearLayout


@lru_cache(16)
def table(layout):
    """All inputs -> outputs, bit by bit from the bases, as named values."""
    result = {}
    names = list(layout.in_dims)
    for index in range(layout.size()):
        rest, inputs = index, {}
        out = dict.fromkeys(layout.out_dims, 0)
        for name in names:
            inputs[name] = rest % layout.in_dims[name]
            rest //= layout.in_dims[name]
            for bit, basis in enumerate(layout.bases[name]):
                if inputs[name] & 1 << bit:
                    out = {o: x ^ y for (o, x), y in zip(out.items(), basis, strict=True)}
        result[tuple(sorted(inputs.items()))] = out
    return result


def check_a_layout_is_what_its_bases_say(layout):
    for inputs, outputs in table(layout).items():
        assert layout.apply(dict(inputs)) == outputs
    values = list(table(layout).values())
    assert [layout(i) for i in range(layout.size())] == [
        next(iter(v.values())) if len(v) == 1 else tuple(v.values()) for v in values
    ]


def check_layouts_are_values_and_read_back(layout):
    for same in (
        eval(repr(layout)),
        parse_linear(str(layout)),
        parse_linear(repr(layout)) if layout.in_dims else layout,
        pickle.loads(pickle.dumps(layout)),
        copy.deepcopy(layout),
        L(layout.bases, layout.out_dims),
        L.of_columns(layout.columns, layout.in_dims, layout.out_dims),
    ):
        assert same == layout
        assert hash(same) == hash(layout)
    assert layout != "text"
    with pytest.raises(AttributeError):
        layout._columns = ()


def check_rank_and_kernel_are_those_of_the_table(layout):
    values = [tuple(v.values()) for v in table(layout).values()]
    assert len(set(values)) == 1 << layout.rank()
    zeros = {inputs for inputs, v in table(layout).items() if not any(v.values())}
    kernel = layout.kernel()
    assert len(zeros) == 1 << len(kernel)
    assert all(tuple(sorted(k.items())) in zeros for k in kernel)
    assert layout.is_injective == (len(set(values)) == len(values))
    total = 1
    for size in layout.out_dims.values():
        total *= size
    assert layout.is_surjective == (len(set(values)) == total)
    assert layout.is_invertible == (layout.is_injective and layout.is_surjective)


@given(st.data())
def test_composition_is_one_after_the_other(data):
    inner = data.draw(linear_layouts())
    outer = data.draw(linear_layouts(ins=data.draw(permutations(inner.out_dims))))
    both = inner.compose(outer)
    for inputs, middle in table(inner).items():
        assert both.apply(dict(inputs)) == outer.apply(middle)


def check_a_product_has_the_second_s_bits_above_the_first_s(a, b):
    product = a * b
    others = list(table(b).items())[:4]
    for x, f_x in list(table(a).items())[-16:]:
        for y, f_y in others:
            x_at, y_at = dict(x), dict(y)
            inputs = {n: x_at.get(n, 0) + a.in_dims.get(n, 1) * y_at.get(n, 0) for n in product.in_dims}
            outputs = {n: f_x.get(n, 0) + a.out_dims.get(n, 1) * f_y.get(n, 0) for n in product.out_dims}
            assert product.apply(inputs) == outputs
    divided = product.left_divide(a)
    assert a * divided == product
    assert set(divided.in_dims) == set(product.in_dims)


def check_a_left_division_gives_the_layout_back_or_there_is_none(layout, tile):
    try:
        rest = layout.left_divide(tile)
    except LayoutError:
        # By brute force: no input in the tile's part may leave it, none outside of it may reach in.
        if not (set(tile.in_dims) <= set(layout.in_dims) and set(tile.out_dims) <= set(layout.out_dims)):
            return
        if any(size > layout.in_dims[n] for n, size in tile.in_dims.items()):
            return
        if any(size > layout.out_dims[n] for n, size in tile.out_dims.items()):
            return
        right = True
        for inputs, outputs in table(layout).items():
            low = {n: dict(inputs)[n] % tile.in_dims[n] for n in tile.in_dims}
            inner = tile.apply(low)
            right &= all(outputs[n] % size == inner[n] for n, size in tile.out_dims.items())
            inside = all(dict(inputs)[n] < tile.in_dims.get(n, 1) for n in layout.in_dims)
            high_part = any(outputs[n] >= tile.out_dims.get(n, 1) for n in layout.out_dims)
            right &= not (inside and high_part)
        assert not right
        return
    product = tile * rest
    assert product.transpose_ins(layout.in_dims).transpose_outs(layout.out_dims) == layout


@given(linear_layouts(), linear_layouts())
def test_any_two_layouts(layout, tile):
    check_a_product_has_the_second_s_bits_above_the_first_s(layout, tile)
    check_a_left_division_gives_the_layout_back_or_there_is_none(layout, tile)


def check_inverses(layout):
    if not layout.is_surjective:
        with pytest.raises(LayoutError, match=r"not surjective|not injective"):
            layout.invert()
        with pytest.raises(LayoutError):
            layout.pseudoinvert()
        return
    right = layout.pseudoinvert()
    assert right.compose(layout).columns == tuple(1 << i for i in range(len(right.columns)))
    if layout.is_injective:
        inverse = layout.invert()
        assert inverse == right
        assert layout.compose(inverse).columns == tuple(1 << i for i in range(len(layout.columns)))
    else:
        with pytest.raises(LayoutError, match=r"not injective: .* and 0 have one output; take pseudoinvert"):
            layout.invert()


@given(st.data())
def test_where_one_layout_finds_what_another_has(data):
    b = data.draw(linear_layouts())
    a = data.draw(linear_layouts(outs=data.draw(permutations(b.out_dims))))
    reached = {tuple(sorted(v.items())) for v in table(b).values()}
    if all(tuple(sorted(v.items())) in reached for v in table(a).values()):
        where = a.invert_and_compose(b)
        assert list(where.in_dims) == list(a.in_dims)
        for inputs, outputs in table(a).items():
            assert b.apply(where.apply(dict(inputs))) == outputs
    else:
        with pytest.raises(LayoutError):
            a.invert_and_compose(b)


@given(st.data())
def test_reshapes_and_transposes_keep_the_function(data):
    layout = data.draw(linear_layouts())
    bits = len(layout.columns)
    cut = data.draw(st.integers(0, bits))
    parted = layout.reshape_ins({"low": 1 << cut, "high": 1 << (bits - cut)})
    assert [parted(i) for i in range(parted.size())] == [layout(i) for i in range(layout.size())]
    assert parted.flatten_ins("x").reshape_ins(layout.in_dims) == layout
    out_bits = sum(size.bit_length() - 1 for size in layout.out_dims.values())
    low = data.draw(st.integers(0, out_bits))
    if layout.out_dims:
        outs = layout.reshape_outs({"low": 1 << low, "high": 1 << (out_bits - low)})
        assert [a + (b << low) for a, b in map(outs, range(outs.size()))] == list(
            map(layout.flatten_outs(), range(layout.size()))
        )
    ins, names = data.draw(permutations(layout.in_dims)), data.draw(permutations(layout.out_dims))
    turned = layout.transpose_ins(ins).transpose_outs(names)
    assert table(turned) == {k: {n: v[n] for n in names} for k, v in table(layout).items()}
    some_in = data.draw(st.lists(st.sampled_from(list(layout.in_dims) or ["-"]), unique=True))
    some_out = data.draw(st.lists(st.sampled_from(list(layout.out_dims) or ["-"]), unique=True))
    if "-" not in some_in + some_out:
        part = layout.sublayout(some_in, some_out)
        for inputs, outputs in table(part).items():
            whole = layout.apply({**dict.fromkeys(layout.in_dims, 0), **dict(inputs)})
            assert outputs == {n: whole[n] for n in layout.out_dims if n in some_out}


@given(st.lists(st.integers(0, 63), max_size=6), st.lists(st.integers(0, 63), max_size=6), st.integers(0, 63))
def test_subspaces_are_those_of_brute_force(a, b, target):
    def span(vectors):
        values = {0}
        for v in vectors:
            values |= {x ^ v for x in values}
        return values

    assert set(f2.span_of(a)) == span(a)
    assert span(f2.intersection(a, b)) == span(a) & span(b)
    assert span([*a, *f2.complement(a, 6, b)]) == set(range(64))
    mask = f2.Echelon(a).solve(target)
    assert (mask is not None) == (target in span(a))
    assert mask is None or f2.times(a, mask) == target
    assert len(span(f2.kernel(a))) == 2 ** len(a) // len(span(a))
    assert all(f2.times(a, k) == 0 for k in f2.kernel(a))


# Facts of triton-lang/triton, unittest/Tools/LinearLayoutTest.cpp: (bases, out-dimensions) of arguments and results.


def test_triton_s_constructors():
    assert L.identity(32, "i", "o") == L({"i": [1, 2, 4, 8, 16]}, ["o"])
    assert L.identity(1, "i", "o") == L({"i": []}, ["o"])
    assert L.zeros(32, "i", "o") == L({"i": [0] * 5}, ["o"])


def test_triton_s_products():
    a, b = L.identity(32, "in1", "out1"), L.identity(16, "in2", "out2")
    assert (a * b).bases == {"in1": [[1 << i, 0] for i in range(5)], "in2": [[0, 1 << i] for i in range(4)]}
    assert L.identity(16, "i", "o") * L.identity(32, "i", "o") == L.identity(512, "i", "o")
    assert L({}, {}) * a == a
    assert L.identity(8, "i", "o") * L.zeros(16, "i", "o") == L({"i": [1, 2, 4, 0, 0, 0, 0]}, ["o"])
    assert (L.zeros(16, "i", "out1") * L({"i": []}, ["out2"])).bases == {"i": [[0, 0]] * 4}
    overlapping = L.identity(4, "i", "out1") * L.identity(8, "i", "out2")
    assert overlapping.bases == {"i": [[1, 0], [2, 0], [0, 1], [0, 2], [0, 4]]}


def test_triton_s_composition():
    first = L({"in1": [[1, 1], [0, 1]], "in2": [[1, 0], [1, 2]]}, ["out1", "out2"])
    second = L({"out1": [[2, 2], [1, 0]], "out2": [[1, 1], [2, 1]]}, ["out3", "out4"])
    both = first.compose(second)
    assert both == L({"in1": [[3, 3], [1, 1]], "in2": [[2, 2], [0, 3]]}, {"out3": 4, "out4": 4})
    assert not both.is_surjective


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"in1": [2, 1, 4]}, {"in2": [4, 1, 2]}, {"in1": [[4], [2], [1]]}),
        ({"in1": [2, 1, 4]}, {"in2": [0, 2, 1, 4]}, {"in1": [[2], [4], [8]]}),
        ({"in1": [2, 1, 4], "in2": [0]}, {"i": [4, 1, 2]}, {"in1": [[4], [2], [1]], "in2": [[0]]}),
        ({"i": [1, 2, 4]}, {"i": [0, 4, 1, 2]}, {"i": [[4], [8], [2]]}),
        ({"in1": [1, 2, 4]}, {"in2": [4, 1, 2, 0]}, {"in1": [[2], [4], [1]]}),
        ({"i": [1, 2, 4]}, {"i": [0, 4, 1, 2, 0]}, {"i": [[4], [8], [2]]}),
        ({"in1": [1, 2], "in2": [0]}, {"in3": [2, 1], "in4": [0]}, {"in1": [[2, 0], [1, 0]], "in2": [[0, 0]]}),
    ],
)
def test_triton_s_inverses(first, second, expected):
    a, b = L(first, ["out"]), L(second, ["out"])
    found = a.invert_and_compose(b)
    assert found.bases == expected
    assert found.out_dims == b.in_dims
    assert found.compose(b) == a


def test_triton_s_reshapes():
    layout = L({"in1": [1, 4, 8], "in2": [2]}, ["out"])
    assert layout.reshape_ins({"in3": 2, "in4": 8}) == L({"in3": [1], "in4": [4, 8, 2]}, ["out"])
    assert layout.flatten_ins("in1") == L({"in1": [1, 4, 8, 2]}, ["out"])
    outs = L({"in1": [1, 4, 8], "in2": [3]}, ["out"]).reshape_outs({"out2": 2, "out3": 8})
    assert outs.bases == {"in1": [[1, 0], [0, 2], [0, 4]], "in2": [[1, 1]]}
    flat = L({"in1": [[1, 0], [4, 1], [8, 4]], "in2": [[3, 2]]}, {"out1": 16, "out2": 8}).flatten_outs()
    assert flat.bases == {"in1": [[1], [4 + 16], [8 + 64]], "in2": [[3 + 32]]}


def test_sizes_are_part_of_a_layout():
    assert L.identity(4, "i", "o") != L({"i": [1, 2]}, {"o": 8})
    assert L({"i": [1, 2]}, ["o"]) != L({"j": [1, 2]}, ["o"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: L({"i": [1]}, {"o": 3}),
        lambda: L({"i": [2]}, {"o": 2}),
        lambda: L({"i": [[1, 1], [1]]}, ["o", "p"]),
        lambda: L({"i": [-1]}, {"o": 2}),
        lambda: L({"i": [1]}, ["o"])(2),
        lambda: L({"i": [1], "j": [1]}, ["o"])(2, 0),
        lambda: L({"i": [1], "j": [1]}, ["o"])(1, 1, 1),
        lambda: L({"i": [1]}, ["o"]).apply({"j": 1}),
        lambda: L({"i": [1]}, ["o"]).compose(L({"p": [1]}, ["q"])),
        lambda: L({"i": [2]}, {"o": 4}).compose(L({"o": [1]}, ["q"])),
        lambda: L({"i": [1]}, ["o"]).reshape_ins({"a": 4}),
        lambda: L({"i": [1]}, ["o"]).transpose_outs(["p"]),
        lambda: L({"i": [1]}, ["o"]).sublayout(["j"], ["o"]),
        lambda: L.of_columns([1], {"i": 4}, {"o": 2}),
        lambda: L.of_columns([2], {"i": 2}, {"o": 2}),
        lambda: L({"i": [1, 4]}, {"o": 8}).left_divide(L.identity(4, "i", "o")),
        lambda: L({"i": [1], "j": [3]}, {"o": 4}).left_divide(L.identity(2, "i", "o")),
        lambda: L({"i": [1]}, {"o": 4}).left_divide(L.identity(2, "j", "o")),
    ],
)
def test_errors_say_what_is_wrong(make):
    with refuses(LayoutError):
        make()


def check_the_picture_is_the_matrix(layout):
    grid = picture_of(layout)
    sizes = list(layout.out_dims.values())
    inputs = [(name, bit) for name, size in layout.in_dims.items() for bit in range(bits(size))]
    assert grid.columns.size == len(inputs)
    for j, (name, bit) in enumerate(inputs):
        told = layout.apply({other: (1 << bit) * (other == name) for other in layout.in_dims})
        packed, place = 0, 0
        for x, size in zip(told.values(), sizes, strict=True):
            packed |= x << place
            place += bits(size)
        assert [grid.cell(i, j).text for i in range(grid.rows.size)] == [str(packed >> i & 1) for i in range(place)]
    assert layout._repr_html_()
    assert layout._repr_svg_()


@given(linear_layouts())
def test_any_layout(layout):
    check_a_layout_is_what_its_bases_say(layout)
    check_layouts_are_values_and_read_back(layout)
    check_rank_and_kernel_are_those_of_the_table(layout)
    check_inverses(layout)
    check_the_picture_is_the_matrix(layout)


def bits(size):
    return size.bit_length() - 1
