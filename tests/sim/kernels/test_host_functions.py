"""Functions that launch nothing, what host code prints, and functions that were loaded from object files."""

import pytest
import torch

import cutepy
from tests.messages import refuses

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")


@cute.jit
def greet(n: cutlass.Int32):
    cute.printf("hello, %d\n", n)


@pytest.mark.parametrize("options", ["--gpu-arch=sm_90a", "--gpu-arch=sm_90a --enable-tvm-ffi"])
def test_a_function_without_a_kernel_runs(capfd, options):
    before = cute.compile(greet, 1, options=options)
    with cutepy.simulate() as run:
        greet(2)
        cute.compile(greet, 3, options=options)(4)
        before(5)
    assert [line for line in capfd.readouterr().out.splitlines() if line] == [f"hello, {n}" for n in (2, 4, 5)]
    assert run.launches == []


@cute.jit
def show(a: cute.Tensor):
    cute.print_tensor(a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bfloat16])
def test_host_code_prints_tensors(capfd, dtype):
    with cutepy.simulate():
        show(torch.arange(3, 9).to(dtype).reshape(2, 3).t())
    rows = [line.partition("[")[2] for line in capfd.readouterr().out.splitlines() if "[" in line]
    numbers = [[float(x) for x in row.strip("[] )").rstrip(", ]").split(",")] for row in rows]
    assert numbers == [[3, 6], [4, 7], [5, 8]]


@cute.kernel
def increment(a: cute.Tensor):
    a[cute.arch.thread_idx()[0]] += 1.0


@cute.jit
def launch(a: cute.Tensor):
    increment(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.parametrize("packed", [False, True])
def test_a_loaded_object_says_that_it_has_no_ptx(tmp_path, packed):
    options = "--gpu-arch=sm_90a" + " --enable-tvm-ffi" * packed
    example = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (32,), assumed_align=16)
    path = str(tmp_path / "increment.o")
    compiled = cute.compile(launch, example, options=options)
    if packed:
        compiled.export_to_c(object_file_path=path, function_name="increment")
    else:
        compiled.export_to_c(str(tmp_path), "increment", "increment")
    a = torch.zeros(32)
    with cutepy.simulate():
        loaded = cute.runtime.load_module(path, enable_tvm_ffi=packed)["increment"]
        with refuses(RuntimeError):
            loaded(a if packed else cute.runtime.from_dlpack(a))
