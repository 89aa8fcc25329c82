"""Arguments of Triton's tensor descriptors: the place of each field, and the meaning of each flag."""

import struct
from types import SimpleNamespace

import pytest

from cutepy.frontends.triton.arguments import KernelArguments
from cutepy.layouts.sm90 import TensorMap
from cutepy.layouts.sm100.narrow_map import NarrowTensorMap

FLAGS = [(padding, rounds) for padding in ("zero", "nan") for rounds in (False, True)]
METADATA = {"swizzle": 3, "elem_size": 4, "elem_type": 7, "block_size": [8, 32], "fp4_padded": False}


class _Tensor:
    def data_ptr(self):
        return 0x10000


def _descriptor(padding, rounds):
    return SimpleNamespace(base=_Tensor(), shape=[40, 64], strides=[96, 1], padding=padding, round_f32_to_tf32=rounds)


@pytest.mark.parametrize(("padding", "rounds"), FLAGS)
def test_a_descriptor_is_passed_as_its_fields_where_there_is_no_tensor_map(padding, rounds):
    """Triton's decompose_descriptor: base, shape, strides, whether to pad with NaN, whether to round to tf32."""
    flattened = KernelArguments([None])
    found = list(flattened.parameters(["tensordesc<fp32[8, 32]>"], [_descriptor(padding, rounds)]))
    assert found[:5] == [struct.pack("<q", n) for n in (0x10000, 40, 64, 96, 1)]
    assert found[5:7] == [bytes([padding == "nan"]), bytes([rounds])]
    assert found[7:] == [*(struct.pack("<i", n) for n in (40, 64)), *(struct.pack("<q", n) for n in (96, 1))]
    assert len(flattened.memory) == 1


@pytest.mark.parametrize(("padding", "rounds"), FLAGS)
def test_a_tensor_map_pads_and_rounds_as_the_descriptor_says(padding, rounds):
    found, *rest = KernelArguments([METADATA]).parameters(["tensordesc<fp32[8, 32]>"], [_descriptor(padding, rounds)])
    tensor = TensorMap.decode(struct.unpack("<8Q", found[:64]))
    assert (tensor.dtype, tensor.oob_fill) == ("tf32" if rounds else "f32", padding)
    assert (tensor.dims, tensor.strides_bytes, tensor.box) == ((64, 40), (384,), (32, 8))
    assert rest == [*(struct.pack("<i", n) for n in (40, 64)), *(struct.pack("<q", n) for n in (96, 1))]


def test_a_tensor_map_of_three_dimensions_has_the_contiguous_one_first():
    descriptor = SimpleNamespace(
        base=_Tensor(), shape=[5, 40, 64], strides=[4096, 96, 1], padding="zero", round_f32_to_tf32=False
    )
    found, *_ = KernelArguments([METADATA | {"block_size": [2, 8, 32]}]).parameters(
        ["tensordesc<fp32[2, 8, 32]>"], [descriptor]
    )
    tensor = TensorMap.decode(struct.unpack("<8Q", found[:64]))
    assert (tensor.dims, tensor.strides_bytes, tensor.box) == ((64, 40, 5), (384, 16384), (32, 8, 2))


def test_a_tensor_map_of_padded_fp4_counts_elements_of_four_bits():
    """16U4_ALIGN16B, number 14: bytes of two elements each, which TMA spreads to 16 in 16 bytes."""
    metadata = METADATA | {"elem_size": 1, "elem_type": 14, "block_size": [64, 128], "fp4_padded": True}
    descriptor = SimpleNamespace(base=_Tensor(), shape=[40, 128], strides=[128, 1], padding="zero")
    found, *_ = KernelArguments([metadata]).parameters(["tensordesc<u8[64, 64]>"], [descriptor])
    tensor = NarrowTensorMap.decode(struct.unpack("<16Q", found))
    assert (tensor.dtype, tensor.dims, tensor.strides_bytes) == ("b4x16_p64", (256, 40), (128,))
    assert (tensor.box, tensor.smem_bytes) == ((128, 64), 128 * 64)


def test_the_order_is_tritons():
    """Of the version that is installed, where there is one."""
    driver = pytest.importorskip("triton.backends.driver")
    descriptor = _descriptor("nan", False)
    base, *numbers, nan, rounds = driver.decompose_descriptor(descriptor)[: 1 + 2 + 2 + 2]
    found = list(KernelArguments([None]).parameters(["tensordesc<fp32[8, 32]>"], [descriptor]))
    assert (base, numbers, nan, rounds) == (descriptor.base, [40, 64, 96, 1], True, False)
    assert found[5:7] == [struct.pack("?", nan), struct.pack("?", rounds)]
