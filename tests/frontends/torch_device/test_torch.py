"""Torch's `cuda` device, served: tensors are on it, operators compute what the CPU's do, and it all ends."""

import copy
import io
import pickle
import subprocess
import sys
import threading

import pytest
import torch

from cutepy.frontends.torch_device import NotServedError, serve_cuda
from tests.messages import refuses

pytestmark = pytest.mark.dsl

generator = torch.Generator().manual_seed(7)
A = torch.randn(6, 8, generator=generator)
B = torch.randn(8, 4, generator=generator)


@pytest.fixture(scope="module", autouse=True)
def run():
    with serve_cuda() as run:
        yield run


WAYS_TO_THE_DEVICE = {
    "cuda": lambda t: t.cuda(),
    "to string": lambda t: t.to("cuda"),
    "to index": lambda t: t.to("cuda:0"),
    "to device": lambda t: t.to(torch.device("cuda")),
    "to dtype": lambda t: t.to("cuda", torch.float64).float(),
    "tensor": lambda t: torch.tensor(t.tolist(), device="cuda"),
    "as_tensor": lambda t: torch.as_tensor(t, device="cuda"),
    "empty": lambda t: torch.empty(t.shape, device="cuda").copy_(t),
    "empty_like": lambda t: torch.empty_like(t, device="cuda").copy_(t),
    "zeros": lambda t: torch.zeros(t.shape, device="cuda") + t.cuda(),
    "module": lambda t: torch.nn.ParameterList([t]).cuda()[0].detach(),
    "default": lambda t: _by_default_device(t),
}


def _by_default_device(tensor):
    with torch.device("cuda"):
        return torch.tensor(tensor.tolist())


@pytest.mark.parametrize("way", WAYS_TO_THE_DEVICE)
def test_tensors_go_to_the_device_and_back(way):
    x = WAYS_TO_THE_DEVICE[way](A)
    assert (x.device, x.is_cuda, x.get_device()) == (torch.device("cuda", 0), True, 0)
    assert x.__dlpack_device__() == (2, 0)
    assert x.data_ptr() != A.data_ptr()
    assert x.cpu().device.type == "cpu"
    assert torch.equal(x.cpu(), A)


OPERATORS = {
    "matmul": lambda a, b: a @ b,
    "einsum": lambda a, b: torch.einsum("mk,kn->nm", a, b),
    "reduction": lambda a, b: (a.sum(0), a.mean(), a.amax(1)),
    "tuple": lambda a, b: (*torch.topk(a, 2), *a.split(3)),
    "mask": lambda a, b: (a[a > 0], torch.where(a > 0, a, 0.0), a.masked_fill(a > 0, 1.0), torch.where(a > 0)[0]),
    "index": lambda a, b: (a[torch.tensor([0, 2])], a[:, 1::2], a[2], a[..., None]),
    "out": lambda a, b: torch.mul(a, 2, out=torch.empty_like(a)),
    "out resized": lambda a, b: torch.mul(a, 2, out=torch.empty(0, device=a.device)),
    "in place": lambda a, b: a.clone().add_(1).mul_(a),
    "view in place": lambda a, b: _with_row_doubled(a),
    "types": lambda a, b: (a.half(), a.to(torch.float8_e4m3fn).float(), a.bool(), a.to(torch.bfloat16)),
    "narrow types": lambda a, b: a.to(torch.float8_e5m2).view(torch.uint8),
    "norms": lambda a, b: (torch.layer_norm(a, (8,)), torch.rms_norm(a, (8,)), torch.softmax(a, -1)),
    "attention": lambda a, b: torch.nn.functional.scaled_dot_product_attention(a, a, a, is_causal=True),
    "cat": lambda a, b: torch.cat([a, a.flip(0)]),
    "layout": lambda a, b: (a.t().contiguous(), a.reshape(2, 24), a.expand(2, 6, 8), a.unfold(1, 2, 2)),
    "shapes": lambda a, b: (a.unique(), a.nonzero(), a[:0], torch.arange(5, device=a.device)),
    "scalar": lambda a, b: a * torch.tensor(2.0),
    "resize": lambda a, b: a.clone().resize_(3, 4),
}  # fmt: skip


def _with_row_doubled(a):
    a = a.clone()
    a[1].mul_(2)
    return a


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compute_what_the_cpu_does(name):
    def results(device):
        found = OPERATORS[name](A.to(device), B.to(device))
        return found if isinstance(found, tuple) else (found,)

    for served, expected in zip(results("cuda"), results("cpu"), strict=True):
        assert served.is_cuda
        assert (served.dtype, served.shape, served.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert torch.equal(served.cpu(), expected)


def test_views_share_memory():
    a = A.cuda()
    view = a[2:, 1]
    assert view._base is not None
    assert (view.storage_offset(), view.data_ptr()) == (17, a.data_ptr() + 4 * 17)
    view.zero_()
    assert a[2:, 1].abs().sum().item() == 0


def test_layer_norm_of_16_bits_is_computed_in_32():
    a = torch.randn(64, 1024, generator=generator).half()
    weight, bias = torch.randn(1024).half(), torch.randn(1024).half()
    got = torch.layer_norm(a.cuda(), (1024,), weight.cuda(), bias.cuda())
    exact = torch.layer_norm(a.double(), (1024,), weight.double(), bias.double())
    assert torch.equal(got.cpu(), torch.layer_norm(a.float(), (1024,), weight.float(), bias.float()).half())
    torch.testing.assert_close(got.cpu().double(), exact, atol=1e-3, rtol=1e-3)


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        A.cuda() + A
    with pytest.raises(RuntimeError, match="same device"):
        A.cuda() @ B
    with pytest.raises(TypeError, match="numpy"):
        A.cuda().numpy()


def test_other_threads_find_the_device():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(3, device="cuda").sum()))
    thread.start()
    thread.join()
    assert found[0].is_cuda
    assert found[0].item() == 3


def test_custom_operators_run_their_kernel_for_cuda():
    with torch.library._scoped_library("served_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2 if x.is_cuda else x, "CUDA")
        assert torch.equal(torch.ops.served_test.twice(A.cuda()).cpu(), A * 2)


def test_torch_describes_an_h200():
    assert torch.cuda.is_available()
    assert (torch.cuda.device_count(), torch.cuda.current_device()) == (1, 0)
    assert torch.cuda.get_device_name() == "NVIDIA H200"
    assert torch.cuda.get_device_capability() == (9, 0)
    properties = torch.cuda.get_device_properties(0)
    assert (properties.multi_processor_count, properties.shared_memory_per_block_optin) == (132, 232448)
    with refuses(RuntimeError):
        torch.cuda.set_device(1)


def test_memory_is_counted():
    before = torch.cuda.memory_allocated()
    a = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
    assert torch.cuda.memory_allocated() - before == 1 << 20
    del a
    assert torch.cuda.memory_allocated() == before


def test_streams_and_events():
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.current_stream().cuda_stream == 0
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream().cuda_stream == stream.cuda_stream != 0
        start.record()
    end.record()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.query()


def test_who_polls_an_event_or_a_stream_waits():
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    assert event.query()
    event.record(stream)
    assert [event.query(), event.query(), event.query()] == [False, True, True]
    for wait in (event.synchronize, stream.synchronize, torch.cuda.synchronize):
        event.record(stream)
        wait()
        assert event.query()
    assert stream.query()


@pytest.mark.parametrize("name", ["memory_snapshot", "list_gpu_processes"])
def test_what_is_not_served_raises_by_name(name):
    with refuses(NotServedError):
        _entered(getattr(torch.cuda, name)())


def _entered(context):
    with context:
        pass


@pytest.mark.parametrize("name", ["memory.memory_snapshot", "tunable.enable", "nccl.unique_id"])
def test_what_modules_of_torch_cuda_do_not_serve_raises_by_name(name):
    part, function = name.split(".")
    with refuses(NotServedError):
        getattr(getattr(torch.cuda, part), function)()


def test_modules_of_torch_cuda_serve_what_it_does():
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated()
    torch.cuda.random.manual_seed(5)
    state = torch.cuda.random.get_rng_state()
    assert torch.equal(state, torch.cuda.get_rng_state_all()[0])


def test_ranges_for_a_profiler_do_nothing():
    torch.cuda.nvtx.range_push("outer")
    with torch.cuda.nvtx.range("inner {}", 3), torch.cuda.profiler.profile():
        torch.cuda.nvtx.mark("here")
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("across"))
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()


def test_generators_of_the_device_are_the_cpus():
    made = torch.Generator(device="cuda").manual_seed(3)
    assert made.device == torch.device("cuda", 0)
    assert torch.Generator().device == torch.device("cpu")
    expected = torch.randn(4, generator=torch.Generator().manual_seed(3))
    values = torch.randn(4, device="cuda", generator=made)
    assert values.is_cuda
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(torch.empty(4, device="cuda").normal_(generator=made.manual_seed(3)).cpu(), expected)
    assert isinstance(made, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert not isinstance(3, torch.Generator)
    with refuses(RuntimeError):
        torch.Generator("cuda:1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, pin_memory=True),
        lambda: torch.full((3,), 0.0, pin_memory=True),
        lambda: torch.tensor([0.0] * 3, pin_memory=True),
        lambda: torch.zeros_like(torch.ones(3), pin_memory=True),
        lambda: torch.ones(2).new_zeros(3, pin_memory=True),
        lambda: torch.zeros(3).pin_memory(),
    ],
)
def test_memory_that_is_to_be_pinned_is_the_hosts(make):
    made = make()
    assert made.device.type == "cpu"
    assert torch.equal(made.cuda(non_blocking=True).cpu(), torch.zeros(3))


def test_the_default_device_holds_for_all_factories():
    with torch.device("cuda"):
        assert all(t.is_cuda for t in (torch.zeros(2), torch.arange(2), torch.randn(2), torch.full((2,), 3)))


def test_products_with_a_type_of_their_own_for_the_result():
    a, b, c = A.half(), B.half(), torch.randn(6, 4, generator=generator).half()
    exact = a.float() @ b.float()
    got = torch.mm(a.cuda(), b.cuda(), out_dtype=torch.float32)
    assert got.is_cuda
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.cpu(), exact)
    added = torch.addmm(c.cuda(), a.cuda(), b.cuda(), out_dtype=torch.float32, beta=2, alpha=0.5)
    torch.testing.assert_close(added.cpu(), 2 * c.float() + 0.5 * exact)
    batched = torch.bmm(a.cuda()[None], b.cuda()[None], out_dtype=torch.float32)
    torch.testing.assert_close(batched.cpu(), exact[None])
    out = torch.empty(6, 4, device="cuda")
    assert torch.mm(a.cuda(), b.cuda(), out_dtype=torch.float32, out=out) is out
    torch.testing.assert_close(out.cpu(), exact)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(5, device="cuda"),
        lambda: torch.randn(3, device="cuda"),
        lambda: torch.ones(7, device="cuda", dtype=torch.uint8) + 1,
        lambda: A.cuda().t().contiguous().t() * 2,
        lambda: A.cuda().half(),
        lambda: torch.topk(A.cuda(), 2)[1],
    ],
)
def test_results_are_aligned_as_cuda_aligns_allocations(make):
    kept = [make() for _ in range(4)]
    assert [t.data_ptr() % 512 for t in kept] == [0] * 4


def test_graphs_compute_at_each_replay():
    x, total = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = torch.nn.functional.layer_norm(x * 2, (4,)) + x
        total += y
        kept = y.clone()
    assert not torch.cuda.is_current_stream_capturing()
    assert total.tolist() == [0] * 4
    for n in (1, 2):
        x.fill_(n)
        graph.replay()
        assert kept.tolist() == [n] * 4
    assert total.tolist() == [3] * 4


# Torch's engine makes a thread for each device at the first backward() of a process: it must be served by then.
BACKWARD = """
import threading
import torch
from cutepy.frontends.torch_device import serve_cuda

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, dy):
        found.append((threading.current_thread() is threading.main_thread(), dy.device.type))
        return dy * 3

def gradients(device):
    x, w = (t.to(device).requires_grad_() for t in (X, W))
    y = torch.nn.functional.layer_norm(Scaled.apply(x) @ w, (3,)).softmax(-1)
    loss = (y * y + x.sum()).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    (again,) = torch.autograd.grad((x * x).sum(), x)
    return [t.cpu() for t in (x.grad, w.grad, again)]

found = []
X, W = torch.randn(4, 5), torch.randn(5, 3)
with serve_cuda():
    for served, expected in zip(gradients("cuda"), gradients("cpu"), strict=True):
        torch.testing.assert_close(served, expected)
assert found[0] == (False, "cuda") and found[-1] == (True, "cpu"), found
assert torch.accelerator.current_accelerator() is None
"""


@pytest.mark.integration
def test_backward_of_tensors_on_the_device():
    subprocess.run([sys.executable, "-c", BACKWARD], check=True, timeout=100)


BACKWARD_BEFORE = """
import torch
from cutepy.frontends.torch_device import NotServedError, serve_cuda

torch.ones(2, requires_grad=True).sum().backward()
with serve_cuda():
    try:
        torch.ones(2, device="cuda", requires_grad=True).sum().backward()
    except NotServedError as error:
        assert "serve the device first" in str(error)
    else:
        raise AssertionError("backward() was served")
"""


@pytest.mark.integration
def test_backward_says_that_the_device_must_be_served_first():
    subprocess.run([sys.executable, "-c", BACKWARD_BEFORE], check=True, timeout=100)


def test_builds_for_cuda_are_refused(monkeypatch):
    monkeypatch.setattr("cutepy.frontends.torch_device._serving", threading.Lock())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with refuses(RuntimeError), serve_cuda():
        pass


def test_it_is_served_once(run):
    names = ("is_available", "Stream", "synchronize")
    served = [getattr(torch.cuda, name) for name in names]
    with refuses(RuntimeError), serve_cuda():
        pass
    assert [getattr(torch.cuda, name) for name in names] == served


def _saved_and_loaded(tensors, **named):
    file = io.BytesIO()
    torch.save(tensors, file)
    file.seek(0)
    return torch.load(file, **named)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda tensors: pickle.loads(pickle.dumps(tensors)),
    "save and load": _saved_and_loaded,
    "load to another": lambda tensors: _saved_and_loaded([t.cpu() for t in tensors], map_location="cuda"),
    "storages": lambda tensors: [
        torch.empty(0, device="cuda").set_(t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride())
        for t in tensors
    ],
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_with_their_storages_stay_on_the_device(way):
    x = A.cuda()
    for old, new in zip([x, x[1:, ::2]], COPIES[way]([x, x[1:, ::2]]), strict=True):
        assert new.is_cuda
        assert new.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        assert torch.equal(old, new)


def test_what_was_saved_on_the_device_loads_on_the_host():
    loaded = _saved_and_loaded(A.cuda(), map_location="cpu")
    assert not loaded.is_cuda
    assert torch.equal(loaded, A)


def test_the_device_is_the_accelerator():
    assert torch.accelerator.current_accelerator().type == "cuda"
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream() == torch.cuda.current_stream()
    assert torch.accelerator.get_memory_info() == torch.cuda.mem_get_info()


def _types(value):
    return type(value).__name__


QUERIES = {
    "get_device_name": "str",
    "get_device_capability": "tuple",
    "get_device_properties": "Properties",
    "get_gencode_flags": "str",
    "get_arch_list": "list",
    "get_sync_debug_mode": "int",
    "get_allocator_backend": "str",
    "get_per_process_memory_fraction": "float",
    "clock_rate": "int",
    "mem_get_info": "tuple",
    "device_memory_used": "int",
    "memory_allocated": "int",
    "memory_reserved": "int",
    "max_memory_allocated": "int",
    "max_memory_reserved": "int",
    "memory_stats": "OrderedDict",
    "memory_stats_as_nested_dict": "dict",
    "memory_summary": "str",
    "reset_peak_memory_stats": "NoneType",
}


@pytest.mark.parametrize("name", QUERIES)
def test_queries_are_answered_in_the_types_of_a_gpu(name):
    query = getattr(torch.cuda, name)
    assert _types(query()) == QUERIES[name]
    if name not in ("get_arch_list", "get_gencode_flags", "get_sync_debug_mode", "get_allocator_backend"):
        assert _types(query(device=0)) == _types(query(torch.device("cuda"))) == QUERIES[name]
    if name not in ("get_arch_list", "get_gencode_flags", "get_sync_debug_mode", "get_allocator_backend"):
        with refuses((torch.AcceleratorError, AssertionError)):
            query(1)


@pytest.mark.parametrize("module", ["cuda", "cuda.memory", "accelerator", "accelerator.memory"])
def test_whatever_is_asked_is_answered_or_refused_by_name(module):
    """Functions that take no arguments: none ends the process, or says something of another kind."""
    owner = torch
    for part in module.split("."):
        owner = getattr(owner, part, None)
    if owner is None:
        pytest.skip(f"this torch has no torch.{module}")
    for name in owner.__all__:
        function = getattr(owner, name)
        if isinstance(function, type) or not callable(function) or name in ("seed", "seed_all"):
            continue
        try:
            function()
        except NotServedError as error:
            assert name in str(error)
        except TypeError as error:
            assert "argument" in str(error)


def test_the_peak_of_memory_is_counted():
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    for _ in range(3):
        a = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
        del a
    b = torch.empty(1 << 10, device="cuda", dtype=torch.uint8)
    assert torch.cuda.max_memory_allocated() == before + (1 << 20)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] == before + (1 << 20)
    assert stats["allocated_bytes.all.current"] == torch.accelerator.memory_allocated() == before + (1 << 10)
    del b
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before


def test_events_without_times_have_none():
    timed, other = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(other)
    timed.record()
    other.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(other)


def test_profilers_of_the_runtime_do_nothing_and_the_rest_is_refused():
    runtime = torch.cuda.cudart()
    assert runtime.cudaProfilerStart() == runtime.cudaProfilerStop() == 0
    assert runtime.cudaMemGetInfo(0) == torch.cuda.mem_get_info()
    with refuses(NotServedError):
        runtime.cudaHostRegister(0, 1, 0)
