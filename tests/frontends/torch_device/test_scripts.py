"""`cutepy simulate`: scripts for a GPU run unmodified, see their arguments, and end with their exit code."""

import re
import sys
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cuda.bindings import driver, runtime
from cutlass.base_dsl.common import DSLCudaRuntimeError
from cutlass.cute.runtime import from_dlpack
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.frontends.torch_device import serve_cuda
from cutepy.sim import LaunchError, MemoryAccessError
from tests.messages import pins, refuses

pytestmark = [pytest.mark.integration, pytest.mark.dsl]

SCRIPT = """
import argparse
import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass import testing
from cutlass.cute.runtime import from_dlpack

import beside


@cute.kernel
def add_pointed(table: cute.Tensor, out: cute.Tensor, n: cutlass.Int32):
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < n:
        for k in range(2):
            x = cute.make_tensor(cute.make_ptr(cutlass.Float32, table[k], cute.AddressSpace.gmem), cute.make_layout(n))
            out[i] = out[i] + x[i]


@cute.jit
def launch(table: cute.Tensor, out: cute.Tensor, n: cutlass.Int32, stream: cuda.CUstream):
    add_pointed(table, out, n).launch(grid=[cute.ceil_div(n, 128), 1, 1], block=[128, 1, 1], stream=stream)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--code", type=int, default=0)
    options = parser.parse_args()
    assert torch.cuda.is_available()
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    parts = [torch.randn(options.n).cuda() for _ in range(2)]
    out = torch.zeros(options.n, device="cuda")
    table = torch.tensor([p.data_ptr() for p in parts], device="cuda")
    compiled = cute.compile(launch, from_dlpack(table), from_dlpack(out), options.n, stream)
    compiled(from_dlpack(table), from_dlpack(out), options.n, stream)
    torch.cuda.synchronize()
    torch.testing.assert_close(out.cpu(), (parts[0] + parts[1]).cpu())
    arguments = testing.JitArguments(from_dlpack(table), from_dlpack(out), options.n, stream)
    assert testing.benchmark(compiled, kernel_arguments=arguments, iterations=2, warmup_iterations=1) > 0
    print("passed", options.n, beside.NAME)
    raise SystemExit(options.code)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    yield path
    sys.modules.pop("beside", None)


def test_a_script_runs_with_its_arguments(script):
    before = sys.argv, sys.path[:]
    result = CliRunner().invoke(app, ["simulate", str(script), "--n", "300", "--code", "3"])
    assert result.exit_code == 3, result.output
    assert "passed 300 beside" in result.output
    pins(result.output)
    assert (sys.argv, sys.path) == before


def test_inspect_prints_counts_and_lines(script):
    result = CliRunner().invoke(app, ["simulate", "--inspect", str(script), "--n", "100"])
    assert result.exit_code == 0, result.output
    assert "passed 100 beside" in result.output
    assert "  l2_store_bytes " in result.output
    pins(result.output)


def test_help_after_the_script_is_the_scripts(script):
    result = CliRunner().invoke(app, ["simulate", str(script), "--help"])
    assert result.exit_code == 0
    assert "--code CODE" in result.output


def test_a_script_that_is_absent_is_said(tmp_path):
    result = CliRunner().invoke(app, ["simulate", str(tmp_path / "none.py")])
    assert result.exit_code == 2
    pins(result.output)


def test_a_policy_that_names_what_the_script_has_not_is_said(script):
    result = CliRunner().invoke(app, ["simulate", "--policy", "hold:9999", str(script), "--n", "100"])
    assert result.exit_code == 2
    assert "passed 100 beside" in result.output
    pins(result.stderr)


def test_what_the_script_raises_is_shown_as_python_shows_it(script):
    script.write_text("def fails():\n    raise KeyError('mine')\nfails()")
    result = CliRunner().invoke(app, ["simulate", str(script)])
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f'Traceback (most recent call last):\n  File "{script}", line 3, in <module>\n    fails()\n  File "{script}", '
    )
    assert "KeyError: 'mine'" in result.stderr
    assert "runpy" not in result.stderr


OUT_OF_BOUNDS = """
import cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def kernel(a: cute.Tensor):
    a[100000] = 1.0

@cute.jit
def launch(a: cute.Tensor):
    kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))

launch(from_dlpack(torch.zeros(64, device="cuda")))
"""


def test_a_kernels_error_is_shown_with_the_scripts_frames_only(script):
    script.write_text(OUT_OF_BOUNDS)
    result = CliRunner().invoke(app, ["simulate", str(script)])
    assert result.exit_code == 1
    files = re.findall(r'File "([^"]*)"', result.stderr)
    assert files == [str(script)]
    assert f"at {script}:7\n" in result.stderr


def test_dlpack_of_the_device_is_global_memory():
    with serve_cuda():
        assert from_dlpack(torch.zeros(16, device="cuda")).memspace == cute.AddressSpace.gmem


def test_the_device_ends_with_the_context():
    before = torch.cuda.is_available, torch.cuda.Stream, driver.cuInit, torch.compile
    with serve_cuda():
        left = torch.ones(3, device="cuda")
        assert torch.cuda.is_available is not before[0]
    assert (torch.cuda.is_available, torch.cuda.Stream, driver.cuInit, torch.compile) == before
    with pytest.raises(NotImplementedError, match="CUDA"):
        left + 1


class Options(NamedTuple):
    scale: cutlass.Int32
    bias: cute.Tensor | None
    absent: cute.Tensor | None


@cute.kernel
def scaled(a: cute.Tensor, options: Options):
    i = cute.arch.thread_idx()[0]
    a[i] = a[i] * options.scale.to(cutlass.Float32) + options.bias[i]


@cute.jit
def scale(a: cute.Tensor, options: Options, stream: driver.CUstream, last: cute.Tensor | None):
    scaled(a, options).launch(grid=[1, 1, 1], block=[32, 1, 1], stream=stream)


def test_calls_in_the_way_of_tvm_ffi():
    """The stream is left out; tuples hold Python's numbers and torch's tensors."""
    with serve_cuda():
        a, bias = torch.ones(32, device="cuda"), torch.arange(32.0, device="cuda")
        stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
        options = Options(cutlass.Int32(1), from_dlpack(bias).mark_layout_dynamic(), None)
        example = from_dlpack(a).mark_layout_dynamic()
        compiled = cute.compile(scale, example, options, stream, None, options="--enable-tvm-ffi")
        compiled(a, Options(3, bias, None), None)
        assert a.tolist() == [3.0 + n for n in range(32)]
        with pytest.raises(TypeError, match="options"):
            compiled(a, Options(3, None, None), None)


@cute.kernel
def past_the_end(a: cute.Tensor, offset: cute.Int32):
    a[cute.arch.thread_idx()[0] + offset] = cute.Float32(1.0)


@cute.jit
def store(a: cute.Tensor, offset: cute.Int32):
    past_the_end(a, offset).launch(grid=[1, 1, 1], block=[32, 1, 1])


def test_freed_memory_stays_reachable_until_the_cache_is_emptied():
    with serve_cuda() as run:
        kept, freed = (torch.zeros(32, device="cuda") for _ in range(2))
        offset = (freed.data_ptr() - kept.data_ptr()) // 4
        argument = from_dlpack(kept).mark_layout_dynamic()
        del freed
        store(argument, offset)
        torch.cuda.empty_cache()
        with pytest.raises(MemoryAccessError):
            store(argument, offset)
        assert len(run.launches) == 2


@cute.jit
def store_together(a: cute.Tensor):
    past_the_end(a, 0).launch(grid=[10000, 1, 1], block=[1024, 1, 1], cooperative=True)


def test_a_refused_launch_is_the_dsls_error_too():
    with serve_cuda(), refuses(DSLCudaRuntimeError) as caught:
        store_together(from_dlpack(torch.zeros(32, device="cuda")).mark_layout_dynamic())
    assert caught.value.error_code == runtime.cudaError_t.cudaErrorCooperativeLaunchTooLarge
    assert isinstance(caught.value, LaunchError)
