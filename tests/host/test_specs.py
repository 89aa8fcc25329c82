"""Descriptions of tensors: what they refuse, and what they read off an example."""

import pickle

import numpy as np
import pytest
import torch

from cutepy.host.arguments import Parameter
from cutepy.host.parallel_compilation import Variant, _task
from cutepy.host.specs import PointerSpec, TensorSpec, dtype_name
from tests.messages import refuses


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("float16", ("m", 0)), {}),
        (("float16", ("m", "2k")), {}),
        (("float16", ("m", "k")), {"strides": ("m", 1)}),
        (("float16", ("m", "k")), {"strides": (1,)}),
        (("float16", ("m", "k")), {"strides": ("ld", -1)}),
        (("float16", ("m", "k")), {"stride_order": (0, 2)}),
        (("float16", ("m", "k")), {"stride_order": (0, 1), "strides": ("ld", 1)}),
        (("float16", ("m", "k")), {"divisibility": {"n": 8}}),
        (("float16", ("m", "k")), {"divisibility": {"m": 0}}),
        (("half", ("m", "k")), {}),
        ((float, ("m", "k")), {}),
        (("float16", "mk"), {}),
        (("float16", ("m", True)), {}),
        (("float16", ("m", "k")), {"align": 12}),
        (("float16", ("m", "k")), {"nonempty": ("m", "n")}),
        (("float16", ("m", 8)), {"nonempty": "m"}),
    ],
)
def test_nonsense_is_refused(arguments, named):
    with refuses(ValueError):
        TensorSpec(*arguments, **named)


@pytest.mark.parametrize(
    ("tensor", "shape", "text"),
    [
        (torch.empty(4, 6), None, "TensorSpec(float32 (4, 6), align 16)"),
        (torch.empty(4, 6), ("m", None), "TensorSpec(float32 (m, 6), align 16)"),
        (torch.empty(4, 6).T, ("m", "n"), "TensorSpec(float32 (m, n) order (0, 1), align 16)"),
        (torch.empty(4, 6)[:, :3], None, "TensorSpec(float32 (4, 3):(6, 1), align 16)"),
        (torch.empty(8, 6)[1:, :1], None, "TensorSpec(float32 (7, 1):(6, 1), align 8)"),
        (torch.empty(2, 3, 4).permute(1, 0, 2), None, "TensorSpec(float32 (3, 2, 4) order (1, 2, 0), align 16)"),
        (torch.empty(4, 1), None, "TensorSpec(float32 (4, 1), align 16)"),
        (torch.empty(4, dtype=torch.bfloat16, device="meta"), ("n",), "TensorSpec(bfloat16 (n,), align 16)"),
        (torch.empty(2, 2).expand(3, 2, 2), None, "TensorSpec(float32 (3, 2, 2):(0, 2, 1), align 16)"),
    ],
)
def test_an_example_is_described(tensor, shape, text):
    assert str(TensorSpec.like(tensor, shape)) == text


def test_an_example_that_is_not_compact_cannot_be_named():
    with refuses(ValueError):
        TensorSpec.like(torch.empty(4, 6)[:, :3], ("m", None))
    with refuses(ValueError):
        TensorSpec.like(torch.empty(4, 6), (4, 7))
    with refuses(ValueError):
        TensorSpec.like(torch.empty(4, 6), ("m",))


@pytest.mark.parametrize("dtype", [torch.float16, np.dtype("float16"), np.float16, "float16", "torch.float16"])
def test_dtypes_have_torchs_names(dtype):
    assert dtype_name(dtype) == "float16"
    assert TensorSpec(dtype, (4,)).dtype == "float16"


@pytest.mark.parametrize(
    ("dtype", "given", "align"),
    [("int8", 0, 1), ("uint8", 1, 1), ("float16", 0, 2), ("float16", 1, 1), ("int64", 0, 8)],
)
def test_pointers_are_aligned_to_elements_unless_told_otherwise(dtype, given, align):
    assert PointerSpec(dtype, align=given).align == align


@pytest.mark.parametrize("named", [{"align": 12}, {"align": -2}, {"space": "smem"}])
def test_pointers_of_no_sense_are_refused(named):
    with refuses(ValueError):
        PointerSpec("float16", **named)


def test_a_parameter_survives_json():
    spec = TensorSpec("float16", ("m", 4), strides=("ld", 1), divisibility={"m": 8}, align=32)
    items = (Parameter("[0]", "tensor", spec), Parameter("[1]", "scalar", number="Int64"))
    tuple_ = Parameter("t", "tuple", items=items)
    for parameter in (Parameter("a", "tensor", spec), Parameter("n", "none"), tuple_):
        assert Parameter.from_json(parameter.to_json()) == parameter


def test_processes_that_compile_get_specs_in_place_of_tensors():
    vector, spec = torch.zeros(4, 6), TensorSpec("float32", ("n",))
    variant = Variant(max, (vector, 1.5, spec, None, [vector, (2, vector)]), named={"bias": vector, "scale": 2.0})
    _, function, examples, named, _ = pickle.loads(_task(variant))
    like = TensorSpec.like(vector)
    assert (function, examples) == (max, (like, 1.5, spec, None, [like, (2, like)]))
    assert named == {"bias": like, "scale": 2.0}
