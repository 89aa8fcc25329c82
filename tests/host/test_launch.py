"""Compiled functions on a GPU: streams, graphs, threads, devices, arrays, errors, and what a call costs."""

import threading

import numpy as np
import pytest
import torch

import cutepy
from cutepy.host.arguments import ArgumentError
from cutepy.host.specs import TensorSpec
from tests.host import kernels

pytestmark = [pytest.mark.dsl, pytest.mark.gpu]

VECTOR = TensorSpec("float32", ("n",), divisibility={"n": 4})


@pytest.fixture(scope="module")
def add():
    return cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)


def vectors(n=1024, device="cuda"):
    return [torch.randn(n, device=device) for _ in range(3)]


def test_launches(add):
    for n in (4, 1000, 1 << 20):
        a, b, c = vectors(n)
        add(a, b, c, 0.5)
        torch.testing.assert_close(c, a + 0.5 * b)


def test_launches_on_the_current_stream(add):
    a, b, c = vectors(1 << 22)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        a.zero_()
        torch.cuda._sleep(10_000_000)
        a.fill_(1.0)
        add(a, b, c, 0.0)
        done = c.clone()
    stream.synchronize()
    assert (done == 1.0).all()


def test_graphs_replay_with_new_contents_and_can_be_captured_anew(add):
    a, b, c = vectors()
    graph = torch.cuda.CUDAGraph()
    add(a, b, c, 1.0)
    with torch.cuda.graph(graph):
        add(a, b, c, 1.0)
    a.fill_(2.0)
    b.fill_(3.0)
    graph.replay()
    assert (c == 5.0).all()
    first, d = graph, torch.zeros_like(c)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second):
        add(b, b, d, 1.0)
    c.zero_()
    second.replay()
    assert (d == 6.0).all()
    assert (c == 0.0).all(), "the pointers of a capture are its own"
    first.replay()
    assert (c == 5.0).all()


def test_nothing_is_allocated(add):
    a, b, c = vectors()
    add(a, b, c, 1.0)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(100):
        add(a, b, c, 1.0)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_threads(add):
    """New threads have no CUDA context; each gets one, and its own stream."""
    results, errors = {}, []

    def work(index):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                a, b, c = vectors()
                for _ in range(200):
                    add(a, b, c, float(index))
                torch.cuda.current_stream().synchronize()
                results[index] = bool(
                    torch.equal(c, torch.add(a, b, alpha=index)) or (c - a - index * b).abs().max() < 1e-5
                )
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert results == dict.fromkeys(range(8), True)


def test_a_first_call_in_a_thread_without_torch_calls():
    add = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)
    a, b, c = vectors()
    torch.cuda.synchronize()
    errors = []

    def work():
        try:
            add(a, b, c, 1.0)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    torch.cuda.synchronize()
    torch.testing.assert_close(c, a + b)


def test_host_arrays_are_copied(add):
    a, b, c = (np.random.default_rng(0).standard_normal(64, np.float32) for _ in range(3))
    add(a, b, c, 2.0)
    np.testing.assert_allclose(c, a + 2 * b, rtol=1e-6)


def test_dlpack_objects_are_taken(add):
    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor
            self.shape, self.dtype = tensor.shape, tensor.dtype

        def __dlpack__(self, **keywords):
            return self.tensor.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    a, b, c = vectors()
    add(Foreign(a), b, Foreign(c), 1.0)
    torch.testing.assert_close(c, a + b)


def test_wrong_arguments_are_explained(add):
    a, b, c = vectors()
    with pytest.raises(ArgumentError, match=r"argument c: dim 0 is 512, must equal n = 1024 \(argument a, dim 0\)"):
        add(a, b, c[:512], 1.0)
    with pytest.raises(ArgumentError, match=r"argument b: must be on cuda:0 as argument a is, got cpu"):
        add(a, b.cpu(), c, 1.0)
    with pytest.raises(ArgumentError, match=r"argument a: must be on a GPU, got cpu"):
        add(a.cpu(), b.cpu(), c.cpu(), 1.0)
    add(a, b, c, 1.0)
    torch.testing.assert_close(c, a + b)


@pytest.mark.parametrize("recording", [False, True])
def test_tensors_that_require_grad_are_taken(recording):
    add = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)
    a, b, c = vectors()
    parameter = torch.nn.Parameter(a)
    with torch.set_grad_enabled(recording):
        add(parameter, b.requires_grad_(), c, 1.0)  # the first call has a road of its own
        torch.testing.assert_close(c, (parameter + b).detach())
        c.zero_()
        add(parameter, b, c, 1.0)
    torch.testing.assert_close(c, (parameter + b).detach())
    assert not c.requires_grad


def test_a_call_costs_less_than_torch_mm():
    from cutepy.suites.launch import launch_costs

    costs = launch_costs(rounds=5, calls=1000)
    slower = max(1.0, costs["torch.mm(x, y, out=z)"] / 8)  # than a host on which that takes 7 to 9 us
    assert costs["cutepy, 3 tensors"] <= 5.0 * slower
    assert costs["cutepy, 8 tensors"] <= 8.0 * slower
    assert costs["cutepy, 3 tensors"] < costs["torch.mm(x, y, out=z)"]


@pytest.mark.multigpu
def test_each_device_gets_its_launches(add):
    for device in (1, 0, 1):
        a, b, c = vectors(1 << 16, f"cuda:{device}")
        add(a, b, c, 2.0)
        torch.testing.assert_close(c, a + 2 * b)
        assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        a, b, c = vectors(1 << 16, "cuda:0")
        add(a, b, c, 2.0)
        torch.testing.assert_close(c, a + 2 * b)
    a, b, c = vectors(64, "cuda:1")
    with pytest.raises(ArgumentError, match="argument b: must be on cuda:1 as argument a is, got cuda:0"):
        add(a, b.to("cuda:0"), c, 1.0)


@pytest.mark.multigpu
def test_large_shared_memory_on_a_second_device():
    """The limit of shared memory is raised on each device before the first launch there counts."""
    from cutepy.kernels.gemm import GemmSignature, select_config
    from cutepy.kernels.gemm.standard import StandardGemm

    config = select_config(GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16"), 512, 512, 512)

    def matrix(rows, columns):
        lead = "ld" + rows + columns
        return TensorSpec("float16", (rows, columns), strides=(lead, 1), divisibility={lead: 8})

    gemm = cutepy.compile(
        StandardGemm(config), matrix("m", "k"), matrix("n", "k"), None, matrix("m", "n"), 132, cache=False
    )
    for device in (0, 1):
        a, b = (torch.randn(512, 512, device=f"cuda:{device}", dtype=torch.float16) for _ in range(2))
        d = torch.empty_like(a)
        gemm(a, b, None, d, 132)
        torch.testing.assert_close(d, a @ b.T, rtol=1e-2, atol=1e-1)
