"""CUDA graphs of the served device: kernels that were captured run at each replay, by torch's interface and CUDA's."""

from types import SimpleNamespace

import pytest
import torch

import cutepy
from cutepy.frontends.ptx.modules import load_ptx
from cutepy.frontends.torch_device import is_served, serve_cuda
from cutepy.frontends.torch_device.graphs import Graph

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")
driver = pytest.importorskip("cuda.bindings.driver")
runtime = pytest.importorskip("cuda.bindings.runtime")


@cute.kernel
def increment(a: cute.Tensor, by: cutlass.Float32):
    i = cute.arch.thread_idx()[0]
    a[i] = a[i] + by


@cute.jit
def launch(a: cute.Tensor, by: cutlass.Float32, stream: driver.CUstream):
    increment(a, by).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


def _by_torch(issue):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        issue(torch.cuda.current_stream().cuda_stream)
    return graph.replay


def _by_the_runtime(issue):
    _, stream = runtime.cudaStreamCreate()
    runtime.cudaStreamBeginCapture(stream, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed)
    issue(int(stream))
    _, graph = runtime.cudaStreamEndCapture(stream)
    _, executable = runtime.cudaGraphInstantiateWithFlags(graph, 0)
    return lambda: runtime.cudaGraphLaunch(executable, stream)


def _by_the_driver(issue):
    _, stream = driver.cuStreamCreate(0)
    driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    issue(int(stream))
    _, graph = driver.cuStreamEndCapture(stream)
    _, executable = driver.cuGraphInstantiate(graph, 0)
    return lambda: driver.cuGraphLaunch(executable, stream)


def test_a_module_may_be_captured_before_anything_ran():
    module = load_ptx(
        ".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x) {\n"
        ".reg .u32 %r; .reg .u64 %d; ld.param.u64 %d, [x]; ld.global.u32 %r, [%d]; add.u32 %r, %r, 1;\n"
        "st.global.u32 [%d], %r; ret; }"
    )
    with serve_cuda() as run:
        x = torch.zeros(1, dtype=torch.int32, device="cuda")
        kept = []
        replay = _by_torch(lambda stream: kept.append(module.launch("k", 1, 1, [x], stream=stream)))
        assert (kept, len(run.launches)) == ([None], 0)
        replay()
        replay()
        assert (x.item(), len(run.launches)) == (2, 2)


def test_the_device_is_served_within_other_runs():
    assert not is_served()
    with serve_cuda(), cutepy.simulate():
        assert is_served()
    assert not is_served()


@pytest.mark.parametrize("capture", [_by_torch, _by_the_driver, _by_the_runtime])
def test_captured_kernels_run_at_each_replay(capture):
    with serve_cuda() as run:
        a = torch.zeros(32, device="cuda")
        tensor = cute.runtime.from_dlpack(a)
        compiled = cute.compile(launch, tensor, 1.0, driver.CUstream(0))

        def issue(handle):
            for by in (2.0, 5.0):
                compiled(tensor, by, driver.CUstream(handle))

        replay = capture(issue)
        assert run.launches == []
        replay()
        replay()
        assert a.tolist() == [14.0] * 32
        assert len(run.launches) == 4


def test_callables_are_graphed_with_their_backward():
    torch.manual_seed(3)
    with serve_cuda():
        module = torch.nn.Linear(8, 4).cuda()
        graphed = torch.cuda.make_graphed_callables(module, (torch.randn(2, 8, device="cuda", requires_grad=True),))
        for _ in range(2):
            x = torch.randn(2, 8, device="cuda", requires_grad=True)
            y = torch.nn.functional.linear(x, module.weight.detach(), module.bias.detach())
            (expected,) = torch.autograd.grad(y.square().sum(), x)
            out = graphed(x)
            out.square().sum().backward()
            torch.testing.assert_close(out, y)
            torch.testing.assert_close(x.grad, expected)


def test_a_captured_stream_says_so():
    with serve_cuda():
        _, stream = driver.cuStreamCreate(0)
        status = driver.CUstreamCaptureStatus
        assert driver.cuStreamIsCapturing(stream)[1] == status.CU_STREAM_CAPTURE_STATUS_NONE
        driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        assert driver.cuStreamIsCapturing(stream)[1] == status.CU_STREAM_CAPTURE_STATUS_ACTIVE
        assert torch.cuda.ExternalStream(int(stream)).is_capturing()
        driver.cuStreamEndCapture(stream)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            assert torch.cuda.current_stream().is_capturing()


def test_a_graph_has_the_nodes_of_the_work_that_it_was_given():
    graph, empty = Graph(), Graph()
    assert (graph.nodes, empty.nodes) == (0, 0)
    for count in (0, 1, 3):
        graph.take(SimpleNamespace(nodes=count, streams=(), origin=0))
        assert graph.nodes == count
    graph.updated_by(empty)  # which has no work, so what it had stays
    assert graph.nodes == 3
