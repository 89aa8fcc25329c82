"""Host code of CUDA C++."""

import numpy as np
import pytest

import cutepy
from cutepy.frontends.cuda_runtime import load_cuda_library
from cutepy.sim import MemoryAccessError
from tests.nvcc.compiler import compiled


@pytest.fixture(scope="module")
def library():
    return load_cuda_library(compiled("host.cu", "so"), compiled("host.cu").read_text())


def test_launches_and_memory(library):
    out = np.zeros(100, np.int32)
    with cutepy.simulate() as simulation:
        assert library.call("filled", out, 100) == 0
    np.testing.assert_array_equal(out, np.arange(100) + 40)
    assert [(launch.name, launch.grid) for launch in simulation.launches] == [("_Z4fillPii", (4, 1, 1))]


def test_clusters(library):
    out = np.zeros(8, np.int32)
    assert library.call("ranked", out, 8, 4) == 0
    np.testing.assert_array_equal(out, [0, 2, 4, 6] * 2)


def test_cooperative_launches(library):
    x, y = np.zeros(6, np.int32), np.zeros(6, np.int32)
    assert library.call("met", x, y, 6) == 0
    np.testing.assert_array_equal(y, np.arange(6)[::-1])


def test_errors_of_kernels_reach_python(library):
    with pytest.raises(MemoryAccessError, match="past the end of"):
        library.call("overrun", np.zeros(8, np.int32), 32)
    test_clusters(library)
