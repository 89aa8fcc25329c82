"""simulate(): plain DSL functions, on torch tensors and numpy arrays, compiled before, inside or not at all."""

from pathlib import Path

import numpy as np
import pytest
import torch

import cutepy
from cutepy.sim import MemoryAccessError
from cutepy.sim.ptx import parse_module
from tests.messages import refuses

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")


@cute.kernel
def scale_kernel(a: cute.Tensor, b: cute.Tensor, factor: cutlass.Float32):
    i = cute.arch.thread_idx()[0] + cute.arch.block_idx()[0] * cute.arch.block_dim()[0]
    if i < cute.size(a):
        b[i] = a[i] * factor + 1.0


@cute.jit
def scale(a: cute.Tensor, b: cute.Tensor, factor: cutlass.Float32):
    scale_kernel(a, b, factor).launch(grid=(cute.ceil_div(cute.size(a), 64), 1, 1), block=(64, 1, 1))


@cute.jit
def scale_twice(a: cute.Tensor, b: cute.Tensor):
    scale_kernel(a, b, cutlass.Float32(2.0)).launch(grid=(8, 1, 1), block=(64, 1, 1))
    scale_kernel(b, b, cutlass.Float32(3.0)).launch(grid=(8, 1, 1), block=(64, 1, 1))


@pytest.mark.parametrize("make", [torch.arange, np.arange], ids=["torch", "numpy"])
def test_a_plain_call(make):
    a, b = make(500) * 1.0, make(500) * 0.0
    a, b = (a.float(), b.float()) if make is torch.arange else (a.astype("f4"), b.astype("f4"))
    with cutepy.simulate() as run:
        scale(a, b, 2.0)
    np.testing.assert_array_equal(np.asarray(b), np.arange(500) * 2 + 1)
    assert run.launches[0].grid == (8, 1, 1)
    assert run.instructions["st"] == 16


def test_several_kernels_of_one_host_function_run_in_order():
    a, b = torch.arange(500).float(), torch.zeros(500)
    with cutepy.simulate() as run:
        scale_twice(a, b)
    assert torch.equal(b, (a * 2 + 1) * 3 + 1)
    assert len(run.launches) == 2


def test_compiled_inside_and_called_with_other_tensors():
    a, b = torch.arange(500).float(), torch.zeros(500)
    with cutepy.simulate():
        compiled = cute.compile(scale, cute.runtime.from_dlpack(a), cute.runtime.from_dlpack(b), 1.0)
        compiled(a + 5, b, 4.0)
    assert torch.equal(b, (a + 5) * 4 + 1)


def test_compiled_before_without_ptx_says_what_to_do():
    a = torch.zeros(500)
    with cutepy.simulate():
        tensor = cute.runtime.from_dlpack(a)
    compiled = cute.compile(scale, tensor, tensor, 1.0, options="--gpu-arch=sm_90a")
    with cutepy.simulate(), refuses(RuntimeError):
        compiled(tensor, tensor, 1.0)


def test_the_gmem_space_is_kept():
    a, b = torch.zeros(64), torch.zeros(64)
    with cutepy.simulate() as run:
        scale(a, b, 1.0)
    (function,) = parse_module(run.launches[0].ptx).functions.values()
    accesses = [i.parts[:2] for i in function.instructions if i.parts[0] in ("ld", "st") and i.parts[1] != "param"]
    assert {*accesses} == {("ld", "global"), ("st", "global")}


@cute.kernel
def beyond_kernel(a: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    a[i * 1000] = cutlass.Float32(1.0)  # the line that is named


@cute.jit
def beyond(a: cute.Tensor):
    beyond_kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_an_error_names_the_line_of_python():
    lines = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "the line that is named" in line)
    with cutepy.simulate(), pytest.raises(MemoryAccessError, match=rf"test_simulate\.py:{number}\b"):
        beyond(torch.zeros(100))


@cute.kernel
def print_kernel(a: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    if i < 2:
        cute.printf("%d is %f, 100%%\n", i, a[i])


@cute.jit
def print_two(a: cute.Tensor):
    print_kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_printf():
    with cutepy.simulate() as run:
        print_two(torch.tensor([1.5, -2.0]))
    assert run.printf.split() == "0 is 1.500000, 100% 1 is -2.000000, 100%".split()


def test_what_was_wrapped_is_restored():
    from cutlass.base_dsl import jit_executor

    before = jit_executor.JitCompiledFunction.run_compiled_program
    with cutepy.simulate():
        assert jit_executor.JitCompiledFunction.run_compiled_program is not before
    assert jit_executor.JitCompiledFunction.run_compiled_program is before
