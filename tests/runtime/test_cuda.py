"""Calls of CUDA's driver, and errors about an old driver; with a driver that has no GPU."""

import ctypes
import re
import shutil
from dataclasses import replace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402
from cutepy.runtime import cuda  # noqa: E402
from cutepy.runtime.host_abi import FUNCTIONS  # noqa: E402
from cutepy.runtime.objects import undefined_symbols  # noqa: E402
from tests.aot.building import build_driver  # noqa: E402
from tests.host import kernels  # noqa: E402

VECTOR = TensorSpec("float32", ("n",), divisibility={"n": 4})
CACHES = (cuda.driver, cuda._captured_launches, cuda._stubs, cuda._callbacks)
pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(torch.cuda.is_available(), reason="has a driver of its own"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]


@pytest.fixture(scope="module")
def add():
    return cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """The stand-in in the driver's place."""
    library = ctypes.CDLL(str(build_driver(tmp_path)))
    opened = ctypes.CDLL

    def open_library(name, *mode, **options):
        return library if name == "libcuda.so.1" else opened(name, *mode, **options)

    monkeypatch.setattr(cuda.ctypes, "CDLL", open_library)
    monkeypatch.setattr(cuda, "runtime", lambda: library)
    for function in CACHES:
        function.cache_clear()
    yield library
    for function in CACHES:
        function.cache_clear()


def set_driver(driver, **values):
    for name, value in values.items():
        ctypes.c_int.in_dll(driver, name).value = value


def test_a_driver_before_cuda_12_is_refused_by_its_version(driver):
    set_driver(driver, cuda_version=11080)
    with refuses(cuda.CudaError):
        cuda.driver()
    set_driver(driver, cuda_version=12000)
    assert cuda.driver() is driver


RUNTIMES = {name for name, function in FUNCTIONS.items() if function.runtime}


@pytest.mark.parametrize(
    ("isa", "version"),
    [
        ("9.0", 12080),
        ("8.8", 12020),
    ],
)
def test_kernels_that_are_not_loaded_are_compared_with_the_driver(driver, add, monkeypatch, isa, version):
    set_driver(driver, cuda_version=version, fails_to_load=1)
    symbol = cuda._symbol  # the runtime's functions are torch's, which has none here
    monkeypatch.setattr(
        cuda, "_symbol", lambda name: cuda.address_of(driver.cuInit) if name in RUNTIMES else symbol(name)
    )
    program = replace(add.program, ptx=re.sub(r"\.version .*", f".version {isa}", add.program.ptx))
    with refuses(cuda.CudaError):
        cuda.CudaProgram(program, 0)


def test_every_function_that_compiled_code_calls_is_in_a_driver_for_cuda_12(driver, add):
    """The stand-in has those of CUDA 12.0 that exported libraries use, too."""
    needed = {name for name in undefined_symbols(add.program.object) if name.startswith(("_cu", "cu"))}
    assert "_cudaLaunchKernelEx" in needed
    assert all(cuda._symbol(name) for name in needed - RUNTIMES)


def test_a_launch_without_attributes_reaches_the_driver_in_its_order(driver):
    function = FUNCTIONS["_cudaLaunchKernel"]
    parameters = (ctypes.c_void_p * 1)()
    launch = function.prototype(cuda._symbol("_cudaLaunchKernel"))
    assert launch(0x77, 2, 3, 4, 5, 6, 7, ctypes.addressof(parameters), 1024, 0x57) == 0
    extents = (ctypes.c_uint32 * 7).in_dll(driver, "last")
    assert list(extents) == [2, 3, 4, 5, 6, 7, 1024]
    assert (ctypes.c_uint64 * 6).in_dll(driver, "last")[5] == 0x57


def test_a_function_that_nothing_serves_is_named(driver):
    for name in ("_cudaMemcpyAsync", "cuda_dialect_assert_success"):
        with refuses(cuda.CudaError):
            cuda._symbol(name)
