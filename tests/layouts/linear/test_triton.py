"""Triton's own linear layouts, where it is installed: the same text, the same algebra."""

import pytest
from hypothesis import given, settings, strategies as st

from cutepy.layouts import LayoutError
from cutepy.layouts.linear import LinearLayout, parse_linear
from tests.layouts.linear.drawing import linear_layouts, permutations

pytestmark = pytest.mark.integration

theirs = pytest.importorskip("triton._C.libtriton", reason="needs Triton's bindings").linear_layout
if not hasattr(getattr(theirs, "LinearLayout", None), "from_bases"):
    pytest.skip("this Triton has no bindings of its linear layouts", allow_module_level=True)


def to_triton(layout):
    return theirs.LinearLayout.from_bases(
        list(layout.bases.items()), list(layout.out_dims), list(layout.out_dims.values()), False
    )


def of_triton(layout):
    return LinearLayout(dict(layout.bases), dict(layout.out_dims))


@given(linear_layouts())
def test_the_same_text_and_properties(layout):
    other = to_triton(layout)
    assert of_triton(other) == layout
    assert str(layout) == str(other).strip("\n")
    assert parse_linear(str(other)) == layout
    assert layout.is_surjective == other.is_surjective()
    assert layout.is_injective == other.is_injective()
    assert layout.is_invertible == other.is_invertible()
    for index in range(min(layout.size(), 16)):
        inputs = layout._inputs(index)
        assert layout.apply(inputs) == dict(other.apply(inputs))


@given(st.data())
def test_the_same_compositions(data):
    inner = data.draw(linear_layouts())
    outer = data.draw(linear_layouts(ins=data.draw(permutations(inner.out_dims))))
    expected = to_triton(inner).compose(to_triton(outer))
    assert of_triton(expected) == inner.compose(outer)


@given(linear_layouts(), linear_layouts())
def test_the_same_products(a, b):
    for mine, others in ((a.in_dims, b.in_dims), (a.out_dims, b.out_dims)):
        if [n for n in mine if n in others] != [n for n in others if n in mine]:
            return  # Triton ends the process where orders differ
    expected = of_triton(to_triton(a) * to_triton(b))
    assert a * b == expected


@settings(max_examples=100)
@given(linear_layouts())
def test_the_same_inverses(layout):
    if not layout.is_surjective:  # Triton ends the process
        return
    if layout.is_injective:
        assert of_triton(to_triton(layout).invert()) == layout.invert()
    assert of_triton(to_triton(layout).pseudoinvert()) == layout.pseudoinvert()


@settings(max_examples=100)
@given(st.data())
def test_what_one_finds_in_the_other_is_there(data):
    b = data.draw(linear_layouts())
    a = data.draw(linear_layouts(outs=b.out_dims))
    if not b.is_surjective:
        return
    try:
        ours = a.invert_and_compose(b)
    except LayoutError:
        return
    # Where several inputs have one output, each may pick another; what is found there is the same.
    found = of_triton(to_triton(a).invert_and_compose(to_triton(b)))
    assert found.compose(b) == ours.compose(b) == a
