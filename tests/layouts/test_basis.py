"""Scaled bases are unit steps along one mode of a coordinate."""

import copy
import pickle

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import E, LayoutError, ScaledBasis, add_coordinates, basis_get, basis_value, crd2idx, parse
from cutepy.layouts.basis import as_coordinate, has_basis
from cutepy.testing import strategies as lst
from tests.layouts import brute_force as bf
from tests.messages import refuses

PATHS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
BASES = st.builds(ScaledBasis, st.integers(-8, 8), PATHS)
SHAPES = lst.shapes(max_depth=2)


def total(*counters):
    result = {}
    for counter in counters:
        for path, x in counter.items():
            result[path] = result.get(path, 0) + x
    return {path: x for path, x in result.items() if x}


def check_a_basis_is_zero_but_at_its_mode(basis):
    crd = as_coordinate(basis)
    assert bf.coordinate_entries(crd) == ({basis.modes: basis.value} if basis.value else {})
    assert basis_get(basis, crd) == basis.value == basis_value(basis)


@given(BASES, st.integers(-5, 5))
def test_scaling_a_basis_scales_its_coordinate(basis, factor):
    assert basis * factor == factor * basis == ScaledBasis(basis.value * factor, basis.modes)
    assert -basis == basis * -1
    assert abs(basis) == ScaledBasis(abs(basis.value), basis.modes)


@st.composite
def coordinates_of_one_shape(draw):
    shape = draw(SHAPES)
    return [draw(st.sampled_from(bf.coordinates(shape))) for _ in range(3)]


@given(coordinates_of_one_shape())
def test_adding_coordinates_is_a_commutative_monoid(crds):
    a, b, c = crds
    assert bf.coordinate_entries(add_coordinates(a, b)) == total(bf.coordinate_entries(a), bf.coordinate_entries(b))
    assert add_coordinates(a, b) == add_coordinates(b, a)
    assert add_coordinates(add_coordinates(a, b), c) == add_coordinates(a, add_coordinates(b, c))
    assert add_coordinates(a, 0) == a


@given(st.lists(st.builds(ScaledBasis, st.integers(1, 8), st.sampled_from(((0, 0), (0, 1), (1,)))), min_size=2))
def test_sums_of_bases_collect_what_each_adds(bases):
    result = bases[0]
    for basis in bases[1:]:
        result = result + basis
    assert bf.coordinate_entries(as_coordinate(result)) == total(*({b.modes: b.value} for b in bases))


def check_bases_are_values(basis):
    assert eval(repr(basis)) == basis
    assert parse(str(basis)) == basis
    assert pickle.loads(pickle.dumps(basis)) == basis
    assert copy.deepcopy(basis) == basis
    assert hash(ScaledBasis(basis.value, basis.modes)) == hash(basis)
    assert basis != ScaledBasis(basis.value + 1, basis.modes)
    assert basis != (basis.value, basis.modes)
    for change in (lambda: setattr(basis, "value", 1), lambda: delattr(basis, "value")):
        with pytest.raises(AttributeError):
            change()


@given(BASES)
def test_any_basis(basis):
    check_a_basis_is_zero_but_at_its_mode(basis)
    check_bases_are_values(basis)


def test_unit_bases():
    assert E() == 1
    assert E(1, 0) == ScaledBasis(1, (1, 0))
    assert str(E(1, 0)) == "1@0@1"
    assert basis_value(7) == 7
    assert basis_get(7, (1, 2)) == (1, 2)
    assert basis_get(E(0), 5) == 5
    assert crd2idx((2, 3), (4, 8), (E(1), E(0))) == (3, 2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ScaledBasis(1.5, (0,)), TypeError),
        (lambda: ScaledBasis(True, (0,)), TypeError),
        (lambda: ScaledBasis(1, ()), TypeError),
        (lambda: ScaledBasis(1, (-1,)), TypeError),
        (lambda: ScaledBasis(1, 0), TypeError),
        (lambda: E(0) * 1.5, TypeError),
        (lambda: add_coordinates((1, 2), 3), LayoutError),
        (lambda: basis_get(E(1), 5), LayoutError),
        (lambda: basis_get(E(2), (1, 2)), LayoutError),
    ],
)
def test_operands_that_do_not_fit(call, error):
    with refuses(error):
        call()


def test_a_basis_is_found_at_any_depth():
    assert [has_basis(d) for d in (1, (), (1, 2), ((1, 2), 3), (1, (2, (3,))))] == [False] * 5
    assert all(map(has_basis, (E(0), (1, E(0)), ((1, E(1)), 3), (1, (2, (E(0),))))))
