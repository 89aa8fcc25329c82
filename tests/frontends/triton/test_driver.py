"""Triton's kernels in the simulator, against torch."""

import math
import subprocess
import sys

import pytest

from tests.messages import pins, refuses

pytest.importorskip("triton", reason="needs triton: make check installs it, or pip install 'cutepy[triton]'")
torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.dsl,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset"),
]


@pytest.fixture(scope="module")
def kernels():
    from tests.frontends.triton import kernels

    return kernels


def test_elements(run, kernels):
    x, y, out = torch.randn(1000), torch.randn(1000), torch.empty(1000)
    kernels.scaled_sum[(4,)](x, y, out, 1000, 2.5, BLOCK=256)
    torch.testing.assert_close(out, 2.5 * x + y)
    assert [(launch.kernel, launch.grid, launch.block) for launch in run.launches] == [
        ("scaled_sum", (4, 1, 1), (128, 1, 1))
    ]


def test_softmax_of_rows(run, kernels):
    x = torch.randn(9, 781)
    out = torch.empty_like(x)
    kernels.softmax[(9,)](x, out, 781, x.stride(0), BLOCK=1024, num_warps=8)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_layer_norm(run, kernels):
    x, weight, bias = torch.randn(5, 300).half(), torch.randn(300), torch.randn(300)
    out = torch.empty(5, 300)
    kernels.layer_norm[(5,)](x, weight, bias, out, 300, 1e-5, BLOCK=512)
    expected = torch.nn.functional.layer_norm(x.float(), (300,), weight, bias, 1e-5)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.deep
def test_a_lock_guards_sums(run, kernels):
    x = torch.randint(-8, 8, (8, 100)).float()
    locks, out = torch.zeros(1, dtype=torch.int32), torch.zeros(100)
    kernels.column_sums[(8,)](x, locks, out, 8, 100, BLOCK=128)
    assert torch.equal(out, x.sum(0))


def test_random_numbers(run, kernels):
    x, out = torch.ones(4096), torch.empty(4096)
    kernels.dropout[(4,)](x, out, 4096, 0.75, 123, BLOCK=1024)
    assert sorted(set(out.tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert 0.72 < (out > 0).float().mean() < 0.78


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_matmul_with_wgmma(run, kernels, dtype):
    m, n, k = 100, 72, 96
    a, b = (torch.randn(m, k) / 4).to(dtype), (torch.randn(k, n) / 4).to(dtype)
    c = torch.empty(m, n)
    kernels.matmul[(2, 2)](a, b, c, m, n, k, BM=64, BN=64, BK=32)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-2, rtol=1e-3)
    assert run.stats["wgmma"] > 0


def test_matmul_of_a_cluster(run, kernels):
    a, b, c = torch.randn(128, 64).half(), torch.randn(64, 128).half(), torch.empty(128, 128)
    kernels.matmul[(1, 1)](a, b, c, 128, 128, 64, BM=128, BN=128, BK=32, num_ctas=2)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-3, rtol=1e-3)
    assert (run.launches[0].grid, run.launches[0].cluster) == ((2, 1, 1), (2, 1, 1))


def test_autotuning_takes_the_first_that_fits_and_runs_it_once(run, kernels):
    a, b, c = torch.randn(128, 64).half(), torch.randn(64, 64).half(), torch.empty(128, 64)
    kernels.tuned_matmul[lambda chosen: (-(-128 // chosen["BM"]), -(-64 // chosen["BN"]))](a, b, c, 128, 64, 64)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-3, rtol=1e-3)
    assert [launch.grid for launch in run.launches] == [(2, 1, 1)]


def test_autotuning_compiles_nothing_after_what_fits(run, kernels):
    """For each call that tunes anew, and where the launch after it has no CTA."""
    tuner = kernels.tuned_matmul
    a, b, c = torch.randn(64, 64).half(), torch.randn(64, 64).half(), torch.empty(64, 64)
    for m, grid in ((1, (1, 1)), (2, (0, 1)), (3, (1, 1))):
        tuner[grid](a, b, c, m, 64, 32)
        assert list(tuner.configs_timings.values()) == [[math.inf] * 3, [1.0] * 3, [math.inf] * 3]


def test_the_profiler_is_off(run, kernels, tmp_path):
    proton = pytest.importorskip("triton.profiler")
    session = proton.start(str(tmp_path / "profile"), hook="triton")
    with proton.scope("addition"):
        kernels.tuned_matmul[(1, 1)](*(torch.zeros(64, 64).half() for _ in range(3)), 64, 64, 32)
    proton.deactivate(session)
    proton.finalize()
    assert len(run.launches) == 1


def test_descriptors_made_by_the_host(run, kernels):
    from triton.tools.tensor_descriptor import TensorDescriptor

    a, b, c = torch.randn(128, 96).half(), torch.randn(96, 128).half(), torch.empty(128, 128).half()
    maps = [TensorDescriptor.from_tensor(x, box) for x, box in ((a, [64, 32]), (b, [32, 64]), (c, [64, 64]))]
    kernels.tma_matmul[(2, 2)](*maps, 96, BM=64, BN=64, BK=32)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=2e-2, rtol=2e-3)
    assert run.stats["tma"] > 0


def test_descriptors_of_rank_3_have_strides_and_fills(run, kernels):
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.randn(6, 20, 24)[:, ::2], torch.zeros(6, 10, 32)
    source = TensorDescriptor(x, x.shape, x.stride(), [2, 8, 32], padding="nan")
    kernels.descriptors_of_rank_3[(3, 2)](source, TensorDescriptor.from_tensor(out, [2, 8, 32]), DEPTH=2, ROWS=8)
    assert torch.equal(out[..., :24], x + 1)
    assert out[..., 24:].isnan().all()


def test_descriptors_made_by_the_kernel(run, kernels):
    import triton

    x, out = torch.randn(70, 64), torch.zeros(70, 64)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    kernels.device_descriptors[(3, 2)](x, out, 70, 64, BM=32, BN=32)
    assert torch.equal(out, 2 * x)


def test_gluon(run, kernels):
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    if not hasattr(kernels.tma, "async_load"):
        pytest.skip("this Triton's Gluon has other names for tensor copies; 3.9 has these")
    a, b, c = torch.randn(64, 64).half(), torch.randn(64, 64).half(), torch.zeros(64, 64).half()
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    maps = [TensorDescriptor.from_tensor(x, [64, 64], layout) for x in (a, b, c)]
    kernels.gluon_matmul[(1,)](*maps, 64, 64, num_warps=4)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=2e-2, rtol=2e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(run, kernels, causal):
    q, k, v = (torch.randn(2, 128, 64).half() for _ in range(3))
    out = torch.empty_like(q)
    kernels.attention[(2, 2)](q, k, v, out, 128, 0.125, CAUSAL=causal, BM=64, BN=32, D=64)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=causal, scale=0.125
    )
    torch.testing.assert_close(out.float(), expected, atol=4e-3, rtol=4e-3)


def test_arguments_of_each_type(run, kernels):
    out, double = torch.full((9,), -1.0, dtype=torch.float64), torch.tensor([1 / 3], dtype=torch.float64)
    kernels.numbers[(1,)](out, (3, 2.5), True, -7, 1 << 40, 0.5, 1.5, double, None, CASE=11)
    assert out.tolist() == [3, 2.5, 1, -7, 1 << 40, 0.5, 1.5, 1 / 3, 11]


def test_a_benchmark_times_launches_on_tensors_of_the_host(run, kernels):
    import triton

    x = torch.ones(8)
    out = torch.empty(8)
    times = triton.testing.do_bench(
        lambda: kernels.scaled_sum[(1,)](x, x, out, 8, 1.0, BLOCK=16), warmup=1, rep=1, quantiles=[0.2, 0.8]
    )
    assert len(times) == 2
    assert out.tolist() == [2.0] * 8


def test_hooks_are_called_around_the_launch(run, kernels):
    from triton import knobs

    seen = []
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    try:
        knobs.runtime.launch_enter_hook = lambda data: seen.append((data.get()["name"], len(run.launches)))
        knobs.runtime.launch_exit_hook = lambda data: seen.append((data.get()["name"], len(run.launches)))
        x = torch.zeros(8)
        kernels.scaled_sum[(1,)](x, x, x, 8, 1.0, BLOCK=16)
    finally:
        knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook = hooks
    assert seen == [("scaled_sum", 0), ("scaled_sum", 1)]


def test_what_a_kernel_does_wrong_is_an_error(run, kernels):
    from cutepy.sim import MemoryAccessError

    x = torch.zeros(8)
    with refuses(MemoryAccessError):
        kernels.scaled_sum[(1,)](x, x, x, 64, 1.0, BLOCK=64)


def test_the_driver_and_backend_are_put_back(kernels):
    from triton.backends import backends
    from triton.runtime import driver

    import cutepy

    before = driver._active, dict(backends)
    for _ in range(2):
        with cutepy.simulate() as outer, cutepy.simulate() as run:
            x = torch.ones(8)
            kernels.scaled_sum[(1,)](x, x, x, 8, 1.0, BLOCK=16)
            assert (len(outer.launches), len(run.launches)) == (0, 1)
        assert (driver._active, dict(backends)) == before
        assert x.tolist() == [2.0] * 8


def test_a_script_that_imports_triton_itself_runs_on_the_served_device(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, triton, triton.language as tl\n"
        "DEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
        "@triton.jit\n"
        "def twice(x, B: tl.constexpr):\n"
        "    at = tl.arange(0, B)\n"
        "    tl.store(x + at, tl.load(x + at) * 2)\n"
        "x = torch.arange(16, device=DEVICE)\n"
        "twice[(1,)](x, B=16)\n"
        "print(DEVICE, x.tolist() == list(range(0, 32, 2)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "cutepy", "simulate", str(script)], capture_output=True, text=True, check=False
    )
    assert "cuda:0 True" in done.stdout, done.stdout + done.stderr
    pins(done.stderr)


def test_what_a_kernel_says_of_itself(run, kernels):
    """As on a GPU: texts are str, the binary is an ELF image, and registers and spills are the assembler's."""
    from cutepy.binaries.cubin import read_resources

    x = torch.ones(100)
    kernel = kernels.scaled_sum[(1,)](x, x, torch.empty(100), 100, 2.5, BLOCK=128)
    assert {name: type(text) for name, text in kernel.asm.items() if name not in ("source",)} == {
        "ttir": str,
        "ttgir": str,
        "llir": str,
        "ptx": str,
        "cubin": bytes,
    }
    assert ".visible .entry scaled_sum" in kernel.asm["ptx"]
    (resources,) = read_resources(kernel.asm["cubin"])
    assert (kernel.n_regs, kernel.n_spills) == (resources.registers, 0)
    assert 0 < kernel.n_regs < 255
    assert kernel.kernel == kernel.asm["cubin"]
    other = kernels.scaled_sum[(1,)](x, x, torch.empty(100), 100, 2.5, BLOCK=64)
    assert isinstance(kernel.function, int)
    assert 0 < kernel.function != other.function > 0


def test_spills_are_told(run, kernels):
    a, c = torch.randn(128, 128).half(), torch.empty(128, 128)
    kernel = kernels.matmul[(1, 1)](a, a, c, 128, 128, 128, BM=128, BN=128, BK=32, num_warps=1)
    torch.testing.assert_close(c, a.float() @ a.float(), atol=1e-2, rtol=1e-2)
    assert kernel.n_regs == 255
    assert kernel.n_spills > 0
