"""Bytes of tensors that operators touch, as runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import cutepy
from cutepy.frontends.torch_device import touches
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


@pytest.mark.parametrize("inner", ["frontends/triton/cublas.py", "frontends/torch_device/operators.py", "torch"])
def test_an_access_is_of_the_innermost_line_of_the_users(inner):
    """Lines of torch and of the frontends are none."""
    file = Path(torch.__file__) if inner == "torch" else Path(cutepy.__file__).parent / inner
    of_library: dict[str, Any] = {}
    exec(compile("def call(function):\n    return function()", str(file), "exec"), of_library)
    assert of_library["call"](lambda: touches._caller()).file == __file__
    assert of_library["call"](touches._caller).file == __file__
