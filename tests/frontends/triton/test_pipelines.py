"""Gluon's kernels that move tiles themselves, against torch."""

import pytest

pytest.importorskip("triton", minversion="3.9", reason="needs triton 3.9: the names of Gluon's copies are its")
torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.dsl,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset"),
]


@pytest.fixture(scope="module")
def kernels():
    from tests.frontends.triton import pipelines

    return pipelines


def described(tensor, box):
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, box, gl.NVMMASharedLayout.get_default_for(box, gl.float16))


@pytest.mark.parametrize("policy", [None, "late"])
def test_tiles_streamed_by_cp_async(kernels, policy):
    import cutepy

    a, b, out = torch.randn(2048), torch.randn(2048), torch.zeros(2048)
    with cutepy.simulate(policy=policy):
        kernels.streamed_sum[(1,)](a, b, out, 2048, 256, 4)
    assert torch.equal(out, a + b)


@pytest.mark.parametrize("policy", [None, "late", "random:1"])
def test_specialised_warps_and_a_ring(kernels, policy):
    import cutepy

    a, b, c = torch.randn(64, 320).half(), torch.randn(320, 64).half(), torch.zeros(64, 64).half()
    maps = [described(x, [64, 64]) for x in (a, b, c)]
    with cutepy.simulate(policy=policy) as run:
        kernels.specialised_matmul[(1,)](*maps, 320, 2, num_warps=4)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=3e-2, rtol=2e-3)
    assert run.stats["tma"] == 11
    assert run.launches[0].block[0] > 128  # the warp that fetches is beside the four that multiply


def test_maps_of_the_kernel_and_adding_by_tma(run, kernels):
    import triton

    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    x, out = torch.randn(50, 64), torch.ones(50, 64)
    kernels.reduced_by_tma[(2, 2)](x, out, 50, 64, 32)
    torch.testing.assert_close(out, x + 1)


def test_one_copy_for_a_cluster(run, kernels):
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    x = torch.randn(64, 64).half()
    out = torch.zeros_like(x)
    shared = gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[0, 0]])
    tiled = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], cga_layout=[[0, 0]])
    kernels.multicast[(1,)](TensorDescriptor.from_tensor(x, [64, 64], shared), out, tiled, num_ctas=2)
    assert torch.equal(out, x)
    assert run.stats["tma"] == 1


def test_products_of_warps(run, kernels):
    a, b, c = torch.randn(64, 32).half(), torch.randn(32, 64).half(), torch.zeros(64, 64)
    kernels.product_of_warps[(1,)](a, b, c, 32)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-3, rtol=1e-3)
