"""Bytes of tensors that operators touch, as runs."""

import pytest
import torch
from hypothesis import given, strategies as st

from cutepy.frontends.torch_device.touches import _runs

pytestmark = pytest.mark.dsl


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=3),
    st.integers(0, 5),
    st.sampled_from([torch.uint8, torch.bfloat16, torch.float32]),
)
def test_runs_are_the_bytes_of_the_elements(modes, offset, dtype):
    memory = torch.zeros(128, dtype=dtype)
    tensor = memory.as_strided([extent for extent, _ in modes], [stride for _, stride in modes], offset)
    starts, size = _runs(tensor)
    width = tensor.element_size()
    elements = {0}
    for extent, stride in modes:
        elements = {at + stride * n for at in elements for n in range(extent)}
    expected = {tensor.data_ptr() + at * width + n for at in elements for n in range(width)}
    assert {int(start) + n for start in starts for n in range(size)} == expected


def test_contiguous_tensors_are_one_run():
    memory = torch.zeros(6, 5, 4)
    assert (len(_runs(memory)[0]), _runs(memory)[1]) == (1, 6 * 5 * 4 * 4)
    assert (len(_runs(memory[:, 1:3])[0]), _runs(memory[:, 1:3])[1]) == (6, 2 * 4 * 4)
