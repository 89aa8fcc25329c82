"""Exports keep the order of strides: of three dimensions, where an order differs from its inverse."""

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cutepy.aot
from cutepy import TensorSpec
from cutepy.aot import c_library, tables, tree
from cutepy.aot.variant import order_of

pytestmark = pytest.mark.dsl

SHAPE = (2, 3, 5)
ORDERS = list(itertools.permutations(range(3)))


def strides_of(places):
    """Give the strides of a compact tensor, of which each dimension has one place in their order."""
    strides = [0, 0, 0]
    for dimension in range(3):
        below = [other for other in range(3) if places[other] < places[dimension]]
        strides[dimension] = torch.Size([SHAPE[other] for other in below]).numel()
    return strides


def exported(places, shape=SHAPE):
    """Give an operation of one tensor x, as far as exports ask it."""
    variant = SimpleNamespace(tensors={"x": TensorSpec("float32", shape, stride_order=places)}, divisibility={})
    op = SimpleNamespace(
        variants=[variant], tensors=("x",), inputs=("x",), names=(), choices={}, numbers={}, test_extents=()
    )
    return op, variant, variant.tensors["x"]


@pytest.mark.parametrize("places", ORDERS, ids=str)
def test_dimensions_are_listed_from_that_of_the_smallest_stride(places):
    strides = strides_of(places)
    by_stride = tuple(sorted(range(3), key=lambda dimension: strides[dimension]))
    assert TensorSpec("float32", SHAPE, stride_order=places).expected_strides == tuple(strides)
    assert order_of(TensorSpec("float32", SHAPE, stride_order=places)) == by_stride
    assert order_of(TensorSpec("float32", SHAPE, strides=strides)) == by_stride
    assert order_of(TensorSpec.like(torch.empty_strided(SHAPE, strides), align=4)) == by_stride


def test_an_order_that_is_not_its_inverse():
    assert order_of(TensorSpec("float32", ("b", "m", "n"), stride_order=(1, 2, 0))) == (2, 0, 1)
    assert order_of(TensorSpec("float32", ("b", "m", "n"), stride_order=(2, 0, 1))) == (1, 2, 0)
    assert order_of(TensorSpec("float32", ("b", "m", "n"), strides=("sb", 1, "sn"))) == (1, 2, 0)


def test_of_dimensions_of_one_stride_the_last_comes_first():
    assert order_of(TensorSpec("float32", (1, 8), strides=(1, 1))) == (1, 0)
    assert order_of(TensorSpec("float32", ("b", "m", "n"), strides=(8, 8, "sn"))) == (1, 0, 2)
    assert order_of(TensorSpec("float32", ("b", "m", "n"), strides=("sb", "sm", 1))) == (2, 1, 0)


@pytest.mark.parametrize("places", ORDERS, ids=str)
def test_the_tables_and_the_example_have_the_tensor_s_order(places):
    op, variant, spec = exported(places)
    strides = strides_of(places)
    listed = re.search(r"\{(\d), (\d), (\d)\}\}+$", tables._form(op, variant, spec))
    assert listed is not None
    assert [strides[int(dimension)] for dimension in listed.groups()] == sorted(strides)
    (example,) = c_library._example(op)
    assert (example["shape"], example["strides"]) == (list(SHAPE), strides)


@pytest.mark.parametrize("places", ORDERS, ids=str)
def test_the_exported_test_makes_tensors_of_that_order(places):
    op, variant, _ = exported(places)
    text = (Path(cutepy.aot.__file__).parent / "templates" / "test.py.jinja").read_text()
    source = re.search(r"^def tensor\(.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    assert source is not None
    namespace = {"torch": SimpleNamespace(randn=lambda shape, device: torch.randn(shape), float32=torch.float32)}
    exec(source.group(), namespace)
    made = namespace["tensor"](*tree._test_value(op, variant, "x", {}))
    assert (tuple(made.shape), list(made.stride())) == (SHAPE, strides_of(places))
