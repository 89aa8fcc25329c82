"""Whatever well-typed operands a public function gets, only LayoutError and TypeError leave it, and say what failed."""

import inspect
import pickle

import pytest
from hypothesis import given, settings, strategies as st

import cutepy.layouts as cl
from cutepy.layouts import ComposedLayout, Layout, LayoutError, ParseError, Swizzle, composition, parse, to_text
from cutepy.testing import strategies as lst
from tests.messages import pins, refuses

N = st.integers(-2, 8)
PLAIN = lst.layouts(signed=True)
LAYOUT = lst.any_layouts()
TUPLE = lst.int_tuples()
SHAPE = lst.shapes()
INDEX = lst.int_tuples(st.integers(-2, 8))
CRD = lst.int_tuples(st.integers(-2, 8) | st.none())
PROFILE = lst.int_tuples(st.just(1))
WIDTH = st.sampled_from((0, 1, 3, 8, 16, 32))
SWIZZLE = lst.swizzles()
BASIS = st.builds(cl.ScaledBasis, N, st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple))
ANY = TUPLE | SHAPE | LAYOUT
TILE = st.none() | st.integers(0, 8) | lst.layouts(max_leaves=2) | SWIZZLE
TILER = st.one_of(lst.layouts(), LAYOUT, st.integers(-1, 12), lst.int_tuples(TILE, max_leaves=3), SWIZZLE)

OPERANDS = {
    "ComposedLayout": (LAYOUT | SWIZZLE, N | TUPLE | BASIS, LAYOUT),
    "E": (N, N),
    "Layout": (TUPLE, TUPLE),
    "ScaledBasis": (N, INDEX),
    "SmemPtr": (N, N),
    "Swizzle": (N, N, N),
    "add_coordinates": (INDEX | BASIS, INDEX | BASIS),
    "append": (ANY, N | PLAIN | TUPLE),
    "basis_get": (BASIS | N, TUPLE),
    "basis_value": (BASIS | N,),
    "blocked_product": (LAYOUT, TILER),
    "ceil_div": (SHAPE, SHAPE | N | lst.layouts()),
    "coalesce": (LAYOUT | SHAPE, PROFILE),
    "colex_geq": (TUPLE, TUPLE),
    "colex_gtr": (TUPLE, TUPLE),
    "colex_leq": (TUPLE, TUPLE),
    "colex_less": (TUPLE, TUPLE),
    "compact_col_major": (SHAPE, INDEX),
    "compact_order": (SHAPE, INDEX),
    "compact_row_major": (SHAPE, INDEX),
    "compatible": (ANY, ANY),
    "complement": (LAYOUT | N, N | SHAPE | LAYOUT),
    "composition": (LAYOUT | SWIZZLE, TILER),
    "congruent": (ANY, ANY),
    "coprofile": (PLAIN | lst.basis_layouts(),),
    "coshape": (LAYOUT,),
    "cosize": (LAYOUT | SWIZZLE,),
    "crd2crd": (INDEX, SHAPE, SHAPE),
    "crd2idx": (CRD, SHAPE, TUPLE),
    "depth": (ANY, N),
    "dice": (CRD, ANY),
    "domain_distribute": (SHAPE | LAYOUT, N),
    "domain_offset": (INDEX, LAYOUT),
    "downcast": (LAYOUT | SWIZZLE | N, N),
    "elem_geq": (TUPLE, TUPLE),
    "elem_gtr": (TUPLE, TUPLE),
    "elem_leq": (TUPLE, TUPLE),
    "elem_less": (TUPLE, TUPLE),
    "elem_scale": (TUPLE, TUPLE),
    "evenly_divides": (ANY, TILER),
    "filter": (LAYOUT, PROFILE),
    "filter_zeros": (ANY, PROFILE),
    "flat_divide": (LAYOUT, TILER),
    "flat_product": (LAYOUT, TILER),
    "flatten": (ANY,),
    "flatten_to_tuple": (TUPLE,),
    "get": (ANY, N, N),
    "get_1d_coord": (PLAIN, N),
    "get_flat_coord": (PLAIN, N),
    "get_hier_coord": (PLAIN, N),
    "get_nonswizzle_portion": (LAYOUT,),
    "get_swizzle_portion": (LAYOUT,),
    "group": (ANY, N, N),
    "has_none": (CRD,),
    "idx2crd": (INDEX, SHAPE, TUPLE),
    "inner_product": (TUPLE, TUPLE),
    "is_int": (ANY,),
    "is_layout": (ANY,),
    "is_tuple": (ANY,),
    "left_inverse": (LAYOUT | N | SWIZZLE,),
    "lex_geq": (TUPLE, TUPLE),
    "lex_gtr": (TUPLE, TUPLE),
    "lex_leq": (TUPLE, TUPLE),
    "lex_less": (TUPLE, TUPLE),
    "logical_divide": (LAYOUT, TILER),
    "logical_product": (LAYOUT, TILER),
    "make_basis_like": (SHAPE,),
    "make_composed_layout": (LAYOUT | SWIZZLE, N | TUPLE, LAYOUT),
    "make_fragment_like": (LAYOUT | SHAPE,),
    "make_identity_layout": (SHAPE,),
    "make_layout": (TUPLE, TUPLE),
    "make_layout_left": (SHAPE,),
    "make_layout_like": (PLAIN,),
    "make_layout_right": (SHAPE,),
    "make_ordered_layout": (SHAPE, INDEX),
    "make_swizzle": (st.integers(-1, 64), st.integers(-1, 64)),
    "max_alignment": (LAYOUT | N | SWIZZLE,),
    "max_common_layout": (LAYOUT, LAYOUT),
    "max_common_vector": (LAYOUT, LAYOUT),
    "nullspace": (LAYOUT,),
    "parse": (lst.values().map(to_text) | st.text("0123456789(),:_@<>SwxoK ", max_size=20),),
    "prefix_product": (SHAPE, INDEX),
    "prepend": (ANY, N | PLAIN | TUPLE),
    "product": (TUPLE,),
    "product_each": (TUPLE,),
    "product_like": (TUPLE, TUPLE),
    "raked_product": (LAYOUT, TILER),
    "rank": (ANY, N),
    "recast_layout": (LAYOUT | SWIZZLE, WIDTH, WIDTH),
    "repeat_like": (TUPLE, N),
    "replace": (ANY, N, PLAIN | TUPLE),
    "right_inverse": (LAYOUT | N | SWIZZLE,),
    "round_up": (SHAPE, SHAPE | N),
    "select": (ANY, st.lists(N, min_size=1, max_size=3).map(tuple)),
    "shape": (ANY, N),
    "shape_div": (SHAPE, SHAPE | N),
    "shiftl": (st.integers(0, 64), N),
    "shiftr": (st.integers(0, 64), N),
    "signum": (N,),
    "size": (ANY, N),
    "slice_": (CRD, ANY),
    "slice_and_offset": (CRD, LAYOUT),
    "stride": (LAYOUT, N),
    "suffix_product": (SHAPE, INDEX),
    "take": (ANY, N, N),
    "tile_to_shape": (LAYOUT, SHAPE, INDEX),
    "tile_unzip": (LAYOUT, TILER),
    "tiled_divide": (LAYOUT, TILER),
    "tiled_product": (LAYOUT, TILER),
    "to_text": (lst.values(),),
    "tuple_gcd": (TUPLE,),
    "tuple_max": (TUPLE,),
    "tuple_min": (TUPLE,),
    "tuple_sum": (TUPLE,),
    "unflatten": (ANY, INDEX),
    "unwrap": (TUPLE,),
    "upcast": (LAYOUT | SWIZZLE | N, N),
    "weakly_compatible": (ANY, ANY),
    "weakly_congruent": (ANY, ANY),
    "wrap": (TUPLE,),
    "zip_modes": (ANY,),
    "zipped_divide": (LAYOUT, TILER),
    "zipped_product": (LAYOUT, TILER),
}
# Not functions on layouts: classes to test against, errors, and functions that take a function.
TAKES_A_FUNCTION = {"hier_unzip", "steps", "transform_layout", "transform_leaf"}
# Of rooms with tests of their own.
ROOMS = {
    "LinearLayout",
    "bank_conflicts",
    "compare",
    "conversion",
    "save",
    "show",
    "to_layout",
    "to_linear",
    "warp_access",
}
PASTES = {"PrintedCopy", "PrintedMMA", "parse_all"}
ERRORS = {"InexactError", "LayoutError", "ParseError"}
NO_OPERANDS = {"IntTuple", "Integer", "LayoutBase", *ERRORS, *ROOMS, *PASTES, *TAKES_A_FUNCTION}
CALLS = st.sampled_from(sorted(OPERANDS)).flatmap(lambda name: st.tuples(st.just(name), st.tuples(*OPERANDS[name])))


def test_every_public_function_is_called():
    functions = {name for name in cl.__all__ if not inspect.ismodule(getattr(cl, name))}
    assert functions - set(OPERANDS) - NO_OPERANDS == set()


@settings(max_examples=2 * settings().max_examples)
@given(CALLS)
def test_only_layout_errors_and_type_errors_leave_a_public_function(call):
    name, operands = call
    try:
        getattr(cl, name)(*operands)
    except TypeError:
        pass
    except ParseError as error:
        assert name == "parse"
        assert 0 <= error.position <= len(error.text)
    except LayoutError as error:
        assert error.operation == name
        assert str(error).startswith(f"{name}(")
        assert all(to_text(operand) in str(error) for operand in operands)
        assert error.condition


@given(CALLS)
def test_operands_are_left_as_they_were(call):
    name, operands = call
    before = to_text(operands) if name != "parse" else operands[0]
    try:
        first = getattr(cl, name)(*operands)
    except (LayoutError, TypeError):
        return
    assert (to_text(operands) if name != "parse" else operands[0]) == before
    assert getattr(cl, name)(*operands) == first


def test_the_message_holds_operation_operands_condition_and_hint():
    error = LayoutError("composition", (Layout(4), (2, None)), "too many modes", "drop one")
    assert str(error) == "composition(4:1, <2,_>): too many modes; drop one"
    assert (error.operation, error.operands) == ("composition", (Layout(4), (2, None)))
    assert (error.condition, error.hint) == ("too many modes", "drop one")
    assert isinstance(error, ValueError)


def test_operands_outside_the_notation_are_shown_by_repr():
    assert str(LayoutError("f", ("text", 1.5), "no")) == "f('text', 1.5): no"


def test_an_error_inside_another_operation_tells_both():
    inner = LayoutError("composition", (Layout(4), 3), "no")
    outer = inner.within("logical_divide", (Layout(4), 3))
    assert str(outer) == "logical_divide(4:1, 3): no (in composition(4:1, 3))"
    assert outer.within("zipped_divide", (1,)).origin == "composition(4:1, 3)"


def test_the_public_call_is_reported_and_the_inner_one_named():
    with pytest.raises(LayoutError) as caught:
        cl.logical_divide(Layout((4, 3), (1, 5)), 6)
    assert caught.value.operation == "logical_divide"
    assert caught.value.operands == (Layout((4, 3), (1, 5)), 6)
    assert caught.value.origin.startswith("composition((4,3):(1,5), ")
    pins(str(caught.value))


def test_operands_given_by_name_are_shown_and_those_left_out_are_not():
    overlapping = Layout((4, 4), (1, 2))
    with refuses(LayoutError):
        cl.complement(overlapping, max_idx=20)
    with refuses(LayoutError):
        cl.complement(overlapping)


def test_a_division_by_zero_is_an_error_of_the_call():
    with refuses(LayoutError):
        cl.ceil_div(4, 0)
    with refuses(LayoutError):
        cl.weakly_compatible(0, 4)


@pytest.mark.parametrize("call", [lambda: composition(Layout((8, 8), (8, 1)), Layout(4, 3)), lambda: parse("(1,")])
def test_errors_survive_pickling(call):
    with pytest.raises(LayoutError) as caught:
        call()
    same = pickle.loads(pickle.dumps(caught.value))
    assert type(same) is type(caught.value)
    assert str(same) == str(caught.value)


def test_a_parse_error_points_at_the_character():
    with pytest.raises(ParseError) as caught:
        parse("(2,\t3]")
    assert str(caught.value).splitlines()[1:] == ["  (2, 3]", "       ^"]
    assert (caught.value.text, caught.value.position) == ("(2,\t3]", 5)


def test_composed_operands_are_shown_in_the_notation():
    with pytest.raises(LayoutError) as caught:
        cl.stride(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(4)))
    assert str(caught.value) == "stride(Sw<1,0,1> o 0 o 4:1): only a plain Layout has strides"
