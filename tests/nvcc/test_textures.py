"""Textures and surfaces that host code of CUDA C++ makes."""

import numpy as np
import pytest

from cutepy.frontends.cuda_runtime import load_cuda_library
from tests.nvcc.compiler import compiled


@pytest.fixture(scope="module")
def library():
    host, ptx = (compiled("textures.cu", form) for form in ("so", "ptx"))
    return load_cuda_library(host, ptx.read_text())


def test_arrays_and_linear_memory(library):
    image = np.random.default_rng(0).standard_normal((9, 40, 2)).astype(np.float32)
    line, out = np.arange(1, 41, dtype=np.float32), np.zeros((9, 40, 4), np.float32)
    assert library.call("sampled", image, line, out, 40, 9) == 0
    np.testing.assert_array_equal(out[..., :2], image)
    np.testing.assert_array_equal(out[..., 2], np.broadcast_to(line, (9, 40)))
    np.testing.assert_array_equal(out[..., 3], 0)


def test_a_surface_is_written(library):
    image = np.random.default_rng(0).integers(0, 256, (9, 40)).astype(np.uint8)
    out = np.zeros((40, 9), np.uint8)
    assert library.call("transposed", image, out, 40, 9) == 0
    np.testing.assert_array_equal(out, image.T)


def test_three_dimensions_and_layers(library):
    cube, layers = np.random.default_rng(0).integers(-9, 9, (2, 2, 3, 32)).astype(np.float32)
    out = np.zeros((2, 32), np.float32)
    assert library.call("deepened", cube, layers, out) == 0
    np.testing.assert_array_equal(out[0], (cube[0, 1] + cube[1, 1]) / 2)
    np.testing.assert_array_equal(out[1], layers[1, 0])
