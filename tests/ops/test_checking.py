"""Checks of operands by themselves: shapes of products, what belongs to groups, and tracing."""

import pytest
import torch

from cutepy.ops import gemm
from cutepy.ops.checking import may_overlap, result_shape, untraced
from cutepy.ops.grouped import _owned
from tests.messages import refuses


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((3, 5), (7, 5), [3, 7]),
        ((2, 3, 5), (7, 5), [2, 3, 7]),
        ((4, 2, 3, 5), (7, 5), [4, 2, 3, 7]),
        ((2, 3, 5), (2, 7, 5), [2, 3, 7]),
        ((4, 1, 3, 5), (2, 7, 5), [4, 2, 3, 7]),
        ((3, 5), (4, 2, 7, 5), [4, 2, 3, 7]),
    ],
)
def test_batches_of_a_product_broadcast(a, b, expected):
    assert list(result_shape(torch.empty(a), torch.empty(b))) == expected


@pytest.mark.parametrize(("a", "b"), [((3, 5), (7, 4)), ((2, 3, 5), (3, 7, 5)), ((2, 3, 5), (2, 5, 7))])
def test_operands_of_no_product_are_refused(a, b):
    with refuses(ValueError):
        result_shape(torch.empty(a), torch.empty(b))


def test_tensors_overlap_where_they_share_a_byte():
    block, other = torch.empty(8, 8), torch.empty(8, 8)
    assert may_overlap(block[:, :4], block[:, 3:])
    assert not may_overlap(block[:, :4], block[:, 4:])
    assert may_overlap(block[:4], block[3:])
    assert not may_overlap(block[:4], block[4:])
    assert not may_overlap(block, other)
    assert not may_overlap(block, block[:0])
    assert not may_overlap(block[:0], block)
    assert not may_overlap(block, block.to("meta"))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_dtype_of_a_result_is_that_of_the_tensor_that_it_is_written_to(device):
    a, b, out = (torch.zeros(8, n, dtype=torch.float16, device=device) for n in (16, 16, 8))
    for out_dtype in (None, torch.float16):
        assert gemm(a, b, out=out, out_dtype=out_dtype) is out
    with refuses(TypeError):
        gemm(a, b, out=out, out_dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("groups", "along", "shape", "expected"),
    [
        ([2, 3, 5], "m", (6, 4), [[n < 5] for n in range(6)]),
        ([2, 3, 5], "n", (4, 6), [[n < 5 for n in range(6)]]),
        ([2, 0], "m", (2, 3, 4), [[[n < end] for n in range(3)] for end in (2, 0)]),
        ([2, 0], "n", (2, 3, 4), [[[n < end for n in range(4)]] for end in (2, 0)]),
    ],
)
def test_elements_of_a_product_belong_to_groups(groups, along, shape, expected):
    assert _owned(torch.tensor(groups), along, shape).tolist() == expected
    assert _owned(torch.tensor(groups), "k", shape) is None


@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated:DeprecationWarning")
def test_what_is_not_traced_leaves_what_is_traced_around_it():
    def function(x):
        y = x + 1
        assert untraced(lambda: torch._C._get_tracing_state())() is None
        with pytest.raises(ZeroDivisionError):
            untraced(lambda: 1 // 0)()
        return y * 2

    traced = torch.jit.trace(function, torch.ones(2), check_trace=False)
    assert traced(torch.tensor([3.0])).tolist() == [8.0]
    assert "aten::mul" in str(traced.graph)


UNCONVERTED = [n for n in ("float4_e2m1fn_x2", "uint4", "int4", "bits8") if hasattr(torch, n)]


@pytest.mark.parametrize("dtype", UNCONVERTED)
def test_types_that_torch_does_not_convert_are_not_told_to_be_converted(dtype):
    a = torch.empty(16, 16, dtype=getattr(torch, dtype))
    with refuses(TypeError):
        gemm(a, a)
    assert a.view(torch.uint8).shape == a.shape


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
def test_quantised_tensors_are_dequantised():
    a = torch.empty(16, 16, dtype=torch.quint8)
    with refuses(TypeError):
        gemm(a, a)


@pytest.mark.parametrize("name", ["c", "bias"])
def test_complex_addends_are_added_to_the_result(name):
    a = torch.zeros(16, 16).half()
    given = {"c": torch.zeros(16, 16), "bias": torch.zeros(16)}[name].to(torch.complex64)
    with refuses(TypeError):
        gemm(a, a, **{name: given})
