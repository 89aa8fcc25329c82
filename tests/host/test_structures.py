"""Arguments that people who come from `cute.compile` hold: structures of tensors, the DSL's tensors, pointers."""

import pickle

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_tensor, make_ptr

import cutepy
from cutepy.host.arguments import ArgumentError
from cutepy.host.specs import PointerSpec, TensorSpec
from tests.host import structures
from tests.host.structures import Inner, Outer, Pair, Scaling
from tests.messages import refuses

pytestmark = pytest.mark.dsl

SPEC = TensorSpec("float32", (32,))


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))


def test_named_tuples():
    for function in (structures.of_pair, structures.of_any_pair):
        made = cutepy.compile(function, Pair(SPEC, None, 1.0), SPEC)
        assert str(made.parameters[0]) == f"pair: (.x: {SPEC}, .y: none, .factor: scalar)"
        x, y = torch.randn(32), torch.zeros(32)
        with cutepy.simulate():
            made(Pair(x, None, 3.0), y)
            torch.testing.assert_close(y, 3 * x)
            made((x, None, 2.0), y)
            torch.testing.assert_close(y, 2 * x)
            with refuses(TypeError):
                made(Pair(x, x, 3.0), y)
            with refuses(ArgumentError):
                made(Pair(x[:16], None, 3.0), y)


def test_what_is_constant_in_a_named_tuple_is_compiled_in():
    made = cutepy.compile(structures.of_scaling, Scaling(SPEC, 2, "negated"), SPEC)
    assert str(made.parameters[0]) == f"scaling: (.x: {SPEC}, .times: constant, .sign: constant)"
    x, y = torch.randn(32), torch.zeros(32)
    with cutepy.simulate():
        for constants in ((2, "negated"), (None, None)):
            made(Scaling(x, *constants), y.zero_())
            torch.testing.assert_close(y, -2 * x)
        with refuses(ArgumentError):
            made(Scaling(x, 3, "negated"), y)
    assert not cutepy.compile(structures.of_scaling, Scaling(SPEC, 3, "negated"), SPEC).cost().cached


def test_dataclasses_within_dataclasses():
    made = cutepy.compile(structures.of_outer, Outer(Inner(SPEC, 2), SPEC, 1.0))
    for function in (made, pickle.loads(pickle.dumps(made))):
        x, y = torch.randn(32), torch.zeros(32)
        with cutepy.simulate():
            function(Outer(Inner(x, 2), y, 3.0))
            torch.testing.assert_close(y, 6 * x)
            with refuses(ArgumentError):
                function(Outer(Inner(x, 3), y, 3.0))
            with refuses(TypeError):
                function(x)
    assert not cutepy.compile(structures.of_outer, Outer(Inner(SPEC, 3), SPEC, 1.0)).cost().cached


def test_an_example_is_left_as_it_was():
    inner = Inner(torch.zeros(32), 2)
    outer = Outer(inner, torch.zeros(32), 1.0)
    cutepy.compile(structures.of_outer, outer)
    assert outer.inner is inner
    assert isinstance(outer.y, torch.Tensor)


@pytest.mark.parametrize(
    "example",
    [PointerSpec("float32"), make_ptr(cutlass.Float32, 0, cute.AddressSpace.gmem, assumed_align=4)],
    ids=["spec", "pointer"],
)
def test_pointers(example):
    made = cutepy.compile(structures.of_pointer, example, SPEC)
    y = torch.zeros(32)
    for x in (torch.randn(32), np.arange(32, dtype=np.float32)):
        with cutepy.simulate():
            made(x, y)
        torch.testing.assert_close(y, 2 * torch.as_tensor(x))
    assert cutepy.compile(structures.of_pointer, PointerSpec("float32"), SPEC).cost().cached
    with cutepy.simulate(), refuses(TypeError):
        made("x", y)


def test_a_stream_needs_no_tensor():
    made = cutepy.compile(structures.of_pointers, PointerSpec("float32"), PointerSpec("float32"), 1)
    for function in (made, pickle.loads(pickle.dumps(made))):
        x, y = torch.randn(32), torch.zeros(32)
        with cutepy.simulate() as run:
            function(x, y, 1)
            function(x, n=1, y=y)
        torch.testing.assert_close(y, 2 * x)
        assert len(run.launches) == 2
    with cutepy.simulate(), refuses(TypeError):
        made(x, y)
    with cutepy.simulate(), refuses(TypeError):
        made(x, y=y)


@pytest.mark.gpu
def test_a_stream_without_a_tensor_is_the_current_one():
    made = cutepy.compile(structures.of_pointers, PointerSpec("float32"), PointerSpec("float32"), 1)
    x, y = torch.randn(32, device="cuda"), torch.zeros(32, device="cuda")
    made(x, y, 1)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):  # refuses launches on any other stream
        made(x, y, 1)
    y.zero_()
    graph.replay()
    torch.testing.assert_close(y, 2 * x)


@pytest.mark.parametrize("dtype", [torch.float16, np.float16, "torch.float16"])
def test_types_of_pointers_may_be_named_in_any_way(dtype):
    assert PointerSpec(dtype) == PointerSpec("float16", align=2)


def test_alignment_of_a_pointer_is_compiled_in():
    made = [cutepy.compile(structures.of_pointer, PointerSpec("float32", align=n), SPEC) for n in (4, 16)]
    assert not made[1].cost().cached


@pytest.mark.parametrize(
    "change",
    [{"align": 3}, {"space": "smem"}],
)
def test_wrong_pointers_are_refused(change):
    with refuses(ValueError):
        PointerSpec("float32", **change)


def symbolic(divisibility):
    n = cute.sym_int(divisibility=divisibility)
    return [make_fake_tensor(cutlass.Float32, (n,), (1,), assumed_align=16) for _ in "xy"]


@pytest.mark.parametrize(
    ("examples", "wrong"),
    [
        (lambda: symbolic(4), (28, 32)),
        (lambda: symbolic(4), (30, 30)),
        (lambda: [make_fake_compact_tensor(cutlass.Float32, (32,), assumed_align=16) for _ in "xy"], (28, 32)),
        (
            lambda: [
                from_dlpack(torch.zeros(32), assumed_align=16).mark_compact_shape_dynamic(0, (0,), 4) for _ in "xy"
            ],
            (32, 30),
        ),
        (lambda: [from_dlpack(torch.zeros(32)) for _ in "xy"], (32, 16)),
    ],
    ids=["symbols", "divisor", "compact", "dynamic", "static"],
)
def test_tensors_of_the_dsl(examples, wrong):
    """They are for a GPU, wherever what they were made of is."""
    made = cutepy.compile(structures.of_tensors, *examples())
    assert ".global" in made.ptx
    x, y = torch.randn(32), torch.zeros(32)
    with cutepy.simulate():
        made(x, y)
        torch.testing.assert_close(x, y)
        with refuses(ArgumentError):
            made(*map(torch.zeros, wrong))
    assert cutepy.compile(structures.of_tensors, *examples()).cost().cached


def test_strides_of_a_tensor_of_the_dsl_keep_their_divisors():
    """Code that depends on the divisors, such as copies of 16 bytes, compiles as it does for the DSL."""
    x = torch.zeros(4, 32, 8)
    tensor = from_dlpack(x, assumed_align=16).mark_layout_dynamic(2).mark_compact_shape_dynamic(2, (0, 1, 2), 4)
    made = cutepy.compile(structures.of_rows, tensor)
    assert "ld.global.v4" in made.ptx
    assert made.parameters[0].spec.divisibility.items() >= {"n2": 4, "n3_stride": 4, "n4_stride": 4}.items()


def test_named_tuples_with_constants_that_nothing_announces():
    made = cutepy.compile(structures.of_any_fixed, structures.Fixed(SPEC, 3), SPEC)
    x, y = torch.randn(32), torch.zeros(32)
    with cutepy.simulate():
        made(structures.Fixed(x, 3), y)
    torch.testing.assert_close(y, 3 * x)
