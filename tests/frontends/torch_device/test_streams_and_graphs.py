"""Current streams and captures of the served device: every way to launch a kernel takes the same stream.

Each way is tried on each kind of stream, eagerly and by capture and replay, in the device's own run and within
`cutepy.simulate`; forks and joins of a capture; and what CUDA refuses while a stream is captured.
"""

import itertools
import threading
from contextlib import nullcontext, suppress
from functools import cache

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")
driver = pytest.importorskip("cuda.bindings.driver")
runtime = pytest.importorskip("cuda.bindings.runtime")

import cutepy  # noqa: E402
from cutepy.frontends import load_ptx, serve_cuda, stream_state  # noqa: E402
from cutepy.frontends.stream_state import CaptureError, Captures  # noqa: E402
from cutepy.frontends.torch_device.storage import allocations  # noqa: E402
from cutepy.sim import HazardError, Run  # noqa: E402

pytestmark = pytest.mark.dsl


@cute.kernel
def plus_one(a: cute.Tensor, b: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    b[i] = a[i] + 1


@cute.jit
def add_one(a: cute.Tensor, b: cute.Tensor, stream: driver.CUstream):
    plus_one(a, b).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


PTX = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry plus_one(.param .u64 p0, .param .u64 p1)
{
.reg .b32 %r<4>; .reg .f32 %f<2>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4]; add.f32 %f1, %f1, 0f3F800000; st.global.f32 [%rd5], %f1;
ret;
}
"""


@cache
def _compiled():
    vector = cutepy.TensorSpec("float32", (32,))
    return cutepy.compile(add_one, vector, vector)


@cache
def _packed():
    """A function that the DSL compiles for TVM-FFI, with the environment's stream."""
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    pytest.importorskip("tvm_ffi")
    fakes = [make_fake_compact_tensor(cutlass.Float32, (32,)) for _ in range(2)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    with cutepy.simulate():
        return cute.compile(add_one, *fakes, stream, options="--enable-tvm-ffi")


def _plain():
    return lambda a, b: add_one(a, b, driver.CUstream(torch.cuda.current_stream().cuda_stream))


def _ptx():
    module = load_ptx(PTX)
    return lambda a, b: module.launch("plus_one", 1, 32, [a, b], stream=torch.cuda.current_stream())


def _operation():
    """A product with the unit matrix, and a bias of 1."""
    unit, bias = (make(32, device="cuda", dtype=torch.bfloat16) for make in (torch.eye, torch.ones))
    torch.cuda.synchronize()
    return lambda a, b: cutepy.ops.gemm(a, unit, bias=bias, out=b)


class Way:
    """A way to launch what adds 1, and tensors for it."""

    def __init__(self, name):
        self._make = WAYS[name]
        self._kind = {"size": (64, 32), "dtype": torch.bfloat16} if name == "operation" else {"size": (32,)}

    def __call__(self):
        return self._make()

    def tensors(self, count, value=0.0):
        return [torch.full(fill_value=value, device="cuda", **self._kind) for _ in range(count)]


def holds(tensor):
    """Give the number that all elements are."""
    (value,) = set(tensor.flatten().tolist())
    return value


WAYS = {"compile": _compiled, "tvm-ffi": _packed, "jit": _plain, "ptx": _ptx, "operation": _operation}
STREAMS = {
    "default": lambda: torch.cuda.default_stream(),
    "own": lambda: torch.cuda.Stream(),
    "external": lambda: torch.cuda.ExternalStream(int(driver.cuStreamCreate(1)[1])),
    "external, blocking": lambda: torch.cuda.ExternalStream(int(driver.cuStreamCreate(0)[1])),
    "per thread": lambda: torch.cuda.ExternalStream(2),
    "legacy": lambda: torch.cuda.ExternalStream(1),
}
WAIT_FOR_DEFAULT = "default", "external, blocking", "per thread", "legacy"
CAPTURED = "own", "external", "external, blocking", "per thread"


@pytest.fixture(params=WAYS)
def way(request):
    return Way(request.param)


def streams_of(run):
    return [launch.stream for launch in run.launches]


def test_launches_go_to_the_current_stream(way):
    with serve_cuda() as outer:
        launch = way()
        x, y = way.tensors(2)
        for (name, make), nested in itertools.product(STREAMS.items(), (False, True)):
            outer.restart()
            stream = make()
            with cutepy.simulate() if nested else nullcontext(outer) as run, torch.cuda.stream(stream):
                launch(x, y)
            assert holds(y) == 1
            assert streams_of(run) == [0 if name == "legacy" else stream.cuda_stream], (name, nested)
            assert len(outer.launches) == (not nested)
            y.zero_()


def kinds_of(script):
    with serve_cuda(sanitize=True) as run:
        script()
        found = [hazard.kind for hazard in run.hazards]
        run.restart()
    return found


@pytest.mark.parametrize("nested", [False, True], ids=["served", "simulate"])
def test_the_sanitizer_takes_a_launch_to_be_in_its_stream(way, nested):
    """One that nothing orders after what wrote its input on the default stream, and one after it on its own."""
    found = {}
    with serve_cuda(sanitize=not nested) as outer:
        launch = way()
        for name, make in STREAMS.items():
            for ordered in (True, False):
                outer.restart()
                x, y = way.tensors(2)
                torch.cuda.synchronize()
                with suppress(HazardError), cutepy.simulate(sanitize=True) if nested else nullcontext(outer) as run:
                    current = make()
                    with torch.cuda.stream(current if ordered else torch.cuda.default_stream()):
                        x.fill_(1)
                    with torch.cuda.stream(current):
                        launch(x, y)
                        (y + 1).sum()
                    torch.cuda.synchronize()
                found[name, ordered] = {hazard.kind for hazard in run.hazards}
        outer.restart()
    races = {(name, False) for name in STREAMS if name not in WAIT_FOR_DEFAULT}
    assert found == {key: {"unordered-read"} if key in races else set() for key in found}


def captured(graph, stream, issue):
    with torch.cuda.graph(graph, stream=stream):
        issue()


@pytest.mark.parametrize("nested", [False, True], ids=["served", "simulate"])
def test_a_capture_does_nothing_and_each_replay_does_it(way, nested):
    with serve_cuda(sanitize=not nested) as outer:
        launch = way()
        with cutepy.simulate(sanitize=True) if nested else nullcontext(outer) as run:
            for name in CAPTURED:
                current = STREAMS[name]()
                x, y, z = way.tensors(3)
                launch(x, y)  # once before, as on a GPU, where that loads the kernels
                y.zero_()
                graph, launches = torch.cuda.CUDAGraph(), len(run.launches)
                with torch.cuda.graph(graph, stream=current):
                    launch(x, y)
                    launch(y, z)
                torch.cuda.synchronize()
                assert (holds(y), holds(z), len(run.launches)) == (0, 0, launches), name
                for start in (0, 5):
                    x.fill_(start)
                    torch.cuda.synchronize()
                    with torch.cuda.stream(current):
                        graph.replay()
                    torch.cuda.synchronize()
                    assert (holds(y), holds(z)) == (start + 1, start + 2), name
            assert [hazard.kind for hazard in run.hazards] == []
        outer.restart()


@pytest.mark.parametrize("stream", ["default", "legacy"])
def test_the_default_stream_is_not_captured(stream):
    with serve_cuda(), pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        captured(torch.cuda.CUDAGraph(), STREAMS[stream](), lambda: None)


def test_a_captured_launch_may_be_replayed_in_another_run(way):
    with serve_cuda() as outer:
        launch, graph = way(), torch.cuda.CUDAGraph()
        x, y = way.tensors(2)
        captured(graph, None, lambda: launch(x, y))
        outer.restart()
        with cutepy.simulate() as inner:
            graph.replay()
        assert holds(y) == 1
        assert (len(outer.launches), len(inner.launches)) == (0, 1)
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            graph.replay()
            assert streams_of(outer) == [torch.cuda.current_stream().cuda_stream]


def test_a_graph_keeps_the_memory_between_its_launches(way):
    with serve_cuda():
        launch, graph = way(), torch.cuda.CUDAGraph()
        x, z = way.tensors(2)

        def issue():
            between = torch.empty_like(x)
            launch(x, between)
            launch(between, z)

        captured(graph, None, issue)
        allocations.release_freed()
        others = [torch.full((32,), 7.0, device="cuda") for _ in range(64)]
        graph.replay()
        assert holds(z) == 2
        assert all(other.tolist() == [7.0] * 32 for other in others)


def test_callables_are_graphed_with_compiled_functions():
    with serve_cuda() as run:
        launch = _compiled()

        class PlusOne(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = torch.empty_like(x)
                launch(x, y)
                return y

            @staticmethod
            def backward(ctx, gradient):
                out = torch.empty_like(gradient)
                launch(gradient, out)
                return out

        sample = torch.zeros(32, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(lambda x: PlusOne.apply(x) * 2, (sample,))
        for value in (3.0, 4.0):
            x = torch.full((32,), value, device="cuda", requires_grad=True)
            run.restart()
            y = graphed(x)
            y.sum().backward()
            assert y.tolist() == [2 * (value + 1)] * 32
            assert x.grad.tolist() == [3.0] * 32
            assert len(run.launches) == 2


def forked(way, order):
    """Capture a fork and a join around two branches; `order` says what the events order."""
    launch = way()
    main, side, inner = (torch.cuda.Stream() for _ in range(3))
    x, y, z, out = way.tensors(4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=main):
        launch(x, y)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            launch(y if order != "branches meet" else x, z)
            inner.wait_stream(side)
            z.add_(0)
            with torch.cuda.stream(inner):
                launch(y, out)
            side.wait_stream(inner)
            out.add_(1)
        if order == "branches meet":
            launch(x, z)
        else:
            launch(x, torch.empty_like(x))
        main.wait_stream(side)
        launch(out, x)
    return graph, (x, y, z, out)


def test_branches_of_a_capture(way):
    with serve_cuda(sanitize=True) as run:
        for order, kinds in (("forks and joins", set()), ("branches meet", {"unordered-write"})):
            graph, (x, y, z, out) = forked(way, order)
            run.restart()
            for n in (1, 2):
                runtime.cudaGraphLaunch(graph, 0)
                if not kinds:
                    first = (n - 1) * 4 + 1
                    assert [holds(t) for t in (y, z, out, x)] == [first, first + 1, first + 2, first + 3]
            assert {hazard.kind for hazard in run.hazards} >= kinds
            assert kinds or not run.hazards
        run.restart()


def test_a_wait_for_an_older_event_takes_nothing_back():
    """Of a newer one and an older one, in this order."""
    with serve_cuda():
        x, main, side = torch.zeros(32, device="cuda"), torch.cuda.Stream(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=main):
            side.wait_stream(main)
            older, newer = torch.cuda.Event(), torch.cuda.Event()
            with torch.cuda.stream(side):
                x.add_(1)
                older.record()
                x.add_(1)
                newer.record()
            main.wait_event(newer)
            main.wait_event(older)
        graph.replay()
        assert holds(x) == 2


def test_a_replay_takes_no_memory_that_was_freed():
    """The graph has its own: what another stream may still use is not written to."""

    def script():
        launch, graph = _compiled(), torch.cuda.CUDAGraph()
        x, y = torch.zeros(32, device="cuda"), torch.zeros(32, device="cuda")
        kept = []
        captured(graph, None, lambda: kept.append(torch.nn.functional.layer_norm(y, (32,))))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            launch(x, torch.empty_like(x))
        allocations.release_freed()  # what else was freed may fit as well
        del x
        graph.replay()

    assert kinds_of(script) == []


def test_launches_of_one_graph_are_in_order_in_any_streams():
    def script():
        launch, graph = _compiled(), torch.cuda.CUDAGraph()
        x = torch.zeros(32, device="cuda")
        captured(graph, None, lambda: launch(x, x))
        for _ in range(2):
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.replay()

    assert kinds_of(script) == []


def test_work_around_a_replay_is_in_order_with_it_or_not():
    def script(waits):
        launch, graph = _compiled(), torch.cuda.CUDAGraph()
        x, y = torch.zeros(32, device="cuda"), torch.zeros(32, device="cuda")
        captured(graph, None, lambda: launch(x, y))
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            graph.replay()
            side = torch.cuda.current_stream()
        if waits:
            torch.cuda.current_stream().wait_stream(side)
        y.sum()

    assert kinds_of(lambda: script(True)) == []
    assert kinds_of(lambda: script(False)) == ["unordered-read"]


def test_a_graph_is_launched_within_a_capture():
    with serve_cuda():
        launch, inner, outer = _compiled(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        x = torch.zeros(32, device="cuda")
        captured(inner, None, lambda: launch(x, x))

        def issue():
            inner.replay()
            inner.replay()

        captured(outer, None, issue)
        assert x[0].item() == 0
        outer.replay()
        assert x[0].item() == 2


OPERATORS = {
    "zero_": (lambda x, out: out.zero_(), 0),
    "fill_": (lambda x, out: out.fill_(2), 2),
    "add_": (lambda x, out: out.add_(x), 10),
    "out": (lambda x, out: torch.add(x, 1, out=out), 4),
    "copy_": (lambda x, out: out.copy_(x), 3),
    "index": (lambda x, out: out.__setitem__(slice(None), x * 2), 6),
    "foreach": (lambda x, out: torch._foreach_add_([out], [x]), 10),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_is_captured_writes_nothing_before_the_replay(name):
    operator, expected = OPERATORS[name]
    with serve_cuda():
        x, out = torch.full((32,), 3.0, device="cuda"), torch.full((32,), 7.0, device="cuda")
        graph = torch.cuda.CUDAGraph()
        captured(graph, None, lambda: operator(x, out))
        assert out.tolist() == [7.0] * 32
        graph.replay()
        assert out.tolist() == [float(expected)] * 32


def test_random_numbers_are_drawn_at_the_replay_alone():
    with serve_cuda():
        torch.manual_seed(5)
        expected = torch.rand(8, device="cuda").tolist()
        torch.manual_seed(5)
        graph, made = torch.cuda.CUDAGraph(), []
        captured(graph, None, lambda: made.append(torch.rand(8, device="cuda")))
        graph.replay()
        assert made[0].tolist() == expected


@pytest.mark.parametrize("name", ["driver", "runtime"])
def test_copies_and_fills_of_the_bindings_are_captured(name):
    with serve_cuda():
        if name == "driver":
            fill, copy = driver.cuMemsetD8Async, driver.cuMemcpyDtoDAsync
        else:
            kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
            fill = runtime.cudaMemsetAsync
            copy = lambda to, start, size, stream: runtime.cudaMemcpyAsync(to, start, size, kind, stream)  # noqa: E731
        x, y = torch.zeros(32, dtype=torch.uint8, device="cuda"), torch.zeros(32, dtype=torch.uint8, device="cuda")
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

        def issue():
            assert int(fill(x.data_ptr(), 3, 32, stream.cuda_stream)[0]) == 0
            assert int(copy(y.data_ptr(), x.data_ptr(), 32, stream.cuda_stream)[0]) == 0

        captured(graph, stream, issue)
        assert (x.sum().item(), y.sum().item()) == (0, 0)
        graph.replay()
        assert (x.sum().item(), y.sum().item()) == (96, 96)


REFUSED = {
    "synchronize the stream": (900, lambda s, other, e: s.synchronize()),
    "query the stream": (900, lambda s, other, e: s.query()),
    "synchronize the device": (900, lambda s, other, e: torch.cuda.synchronize()),
    "read a number": (900, lambda s, other, e: torch.ones(2, device="cuda").sum().item()),
    "copy to the host": (900, lambda s, other, e: torch.ones(2, device="cuda").cpu()),
    "wait for what is not captured": (905, lambda s, other, e: s.wait_stream(other)),
    "begin again": (401, lambda s, other, e: torch.cuda.CUDAGraph().capture_begin()),
    "synchronize an event": (907, lambda s, other, e: (e.record(), e.synchronize())),
    "join the default stream": (906, lambda s, other, e: (e.record(), torch.cuda.default_stream().wait_event(e))),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cuda_refuses_while_a_stream_is_captured(what):
    code, act = REFUSED[what]
    with serve_cuda():
        stream, other, event = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
        with pytest.raises(CaptureError) as refused, torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            act(stream, other, event)
        assert refused.value.code == code
        assert not stream.is_capturing()
        torch.cuda.synchronize()


def test_an_event_of_a_capture_is_recorded_again_once_it_is_over():
    with serve_cuda():
        event, stream = torch.cuda.Event(), torch.cuda.Stream()
        captured(torch.cuda.CUDAGraph(), stream, lambda: event.record())
        for act in (event.synchronize, event.query, lambda: torch.cuda.current_stream().wait_event(event)):
            with pytest.raises(CaptureError) as refused:
                act()
            assert refused.value.code == 907
        event.record(stream)
        torch.cuda.current_stream().wait_event(event)
        event.synchronize()
        assert event.query()


@pytest.mark.parametrize("name", ["driver", "runtime"])
def test_a_graph_is_updated_by_another_capture(name):
    """As docs/compile.md does for other tensors; a capture of other launches is refused."""
    with serve_cuda():
        api, prefix = (driver, "cu") if name == "driver" else (runtime, "cuda")
        launch, stream = _compiled(), torch.cuda.Stream()
        x, y = torch.zeros(32, device="cuda"), torch.full((32,), 5.0, device="cuda")
        begin, end, update, start = (
            getattr(api, prefix + call)
            for call in ("StreamBeginCapture", "StreamEndCapture", "GraphExecUpdate", "GraphLaunch")
        )
        mode = getattr(api, "CUstreamCaptureMode" if name == "driver" else "cudaStreamCaptureMode")(0)

        def graph_of(*tensors):
            begin(stream.cuda_stream, mode)
            with torch.cuda.stream(stream):
                for tensor in tensors:
                    launch(tensor, tensor)
            return end(stream.cuda_stream)[1]

        first = graph_of(x)
        instantiate = driver.cuGraphInstantiate if name == "driver" else runtime.cudaGraphInstantiate
        _, executable = instantiate(first, 0)
        assert int(update(executable, graph_of(x, y))[0]) == 910
        assert int(update(executable, graph_of(y))[0]) == 0
        start(executable, stream.cuda_stream)
        start(first, stream.cuda_stream)
        assert (holds(x), holds(y)) == (1, 6)


def test_an_event_that_is_pending_in_another_stream_is_not_over():
    with serve_cuda():
        event, one, other = torch.cuda.Event(), torch.cuda.Stream(), torch.cuda.Stream()
        event.record(one)
        event.record(other)
        one.synchronize()
        assert [event.query(), event.query()] == [False, True]


def test_restarting_a_run_ends_its_captures():
    with serve_cuda() as run:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda.CUDAGraph().capture_begin()
        run.restart()
        torch.cuda.synchronize()
        assert not stream.is_capturing()


def test_an_event_that_is_recorded_again_times_the_last():
    with serve_cuda():
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for event in (start, end, start):
            event.record()
        assert start.elapsed_time(end) <= 0


def test_a_branch_that_is_not_joined_is_refused():
    with serve_cuda():
        launch, x, side = _compiled(), torch.zeros(32, device="cuda"), torch.cuda.Stream()
        launch(x, x)

        def issue():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                launch(x, x)

        with pytest.raises(CaptureError):
            captured(torch.cuda.CUDAGraph(), None, issue)
        assert not side.is_capturing()


def test_work_of_the_default_stream_and_the_capture_of_one_that_waits_for_it():
    with serve_cuda():
        x = torch.zeros(32, device="cuda")
        graph, default = torch.cuda.CUDAGraph(), torch.cuda.default_stream()

        def issue():
            with torch.cuda.stream(default):
                x.add_(1)

        with pytest.raises(CaptureError) as refused:
            captured(graph, STREAMS["external, blocking"](), issue)
        assert refused.value.code == 906
        captured(graph, torch.cuda.Stream(), issue)  # a stream that does not wait: the work is done, and not captured
        assert x[0].item() == 1
        graph.replay()
        assert x[0].item() == 1


@pytest.mark.parametrize("name", ["driver", "runtime"])
def test_the_bindings_give_the_codes_of_captures(name):
    with serve_cuda():
        if name == "driver":
            begin, end, wait = driver.cuStreamBeginCapture, driver.cuStreamEndCapture, driver.cuStreamSynchronize
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        else:
            begin, end, wait = (
                runtime.cudaStreamBeginCapture,
                runtime.cudaStreamEndCapture,
                runtime.cudaStreamSynchronize,
            )
            mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
        stream = torch.cuda.Stream().cuda_stream
        tried = [begin(0, mode), end(stream), begin(stream, mode), wait(stream), end(stream)]
    assert [int(code) for code, *_ in tried] == [900, 401, 0, 900, 0]


def test_each_thread_has_its_own_current_stream(way):
    with serve_cuda() as run:
        launch, found = way(), {}
        x, y = way.tensors(2)
        launch(x, y)
        run.restart()

        def work():
            found["before"] = torch.cuda.current_stream().cuda_stream
            launch(x, y)
            with torch.cuda.stream(torch.cuda.ExternalStream(2)):
                launch(x, y)

        with torch.cuda.stream(torch.cuda.Stream()) as _:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            launch(x, y)
            mine = torch.cuda.current_stream().cuda_stream
        assert found == {"before": 0}
        default, per_thread, own = streams_of(run)
        assert (default, own) == (0, mine)
        assert per_thread not in (0, 2, mine)


def test_backward_passes_run_in_the_stream_of_their_caller():
    with serve_cuda() as run:
        launch = _compiled()

        class PlusOne(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                out = torch.empty_like(gradient)
                launch(gradient, out)
                return out

        x = torch.zeros(32, device="cuda", requires_grad=True)
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            PlusOne.apply(x).square().sum().backward()
            assert streams_of(run) == [torch.cuda.current_stream().cuda_stream]
        assert holds(x.grad) == 1


def test_a_product_with_a_workspace_is_captured():
    """Streamed along K, tiles are added up in memory, which each capture has for itself."""
    from cutepy.kernels.gemm import GemmConfig, GemmSignature
    from cutepy.kernels.gemm.compilation import compile_gemm
    from cutepy.kernels.gemm.workspaces import with_workspace

    with serve_cuda():
        a, b, out = (torch.ones(shape, device="cuda").half() for shape in ((128, 560), (64, 560), (128, 64)))
        half = GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16")
        config = GemmConfig(signature=half, tile_m=64, tile_n=32, tile_k=16, stream_k=True)
        product = with_workspace(compile_gemm(config), config, out.device, 3)
        product(a, b, None, out, 3, None, None)
        out.zero_()
        graph = torch.cuda.CUDAGraph()
        captured(graph, None, lambda: product(a, b, None, out, 3, None, None))
        assert holds(out) == 0
        for _ in range(2):
            graph.replay()
        assert holds(out) == 560


def test_nothing_is_left_of_a_capture_once_the_device_is_gone():
    with serve_cuda():
        torch.cuda.set_stream(torch.cuda.Stream())
        torch.cuda.CUDAGraph().capture_begin()
    with serve_cuda() as run:
        assert torch.cuda.current_stream().cuda_stream == 0
        torch.cuda.synchronize()
        assert isinstance(run, Run)


def test_a_capture_that_has_not_begun_does_not_end():
    with refuses(CaptureError):
        Captures().end(7)


def test_a_stream_is_used_until_its_context_ends():
    before = stream_state.current()
    for error in (KeyError, ValueError):
        with suppress(error), stream_state.using(11):
            assert stream_state.current() == 11
            raise error
        assert stream_state.current() == before
    with stream_state.using(9):
        with stream_state.using(11):
            pass
        assert stream_state.current() == 9


def test_captures_have_numbers_of_their_own_and_none_is_0():
    """The number 0 is that of no capture."""
    captures = Captures()
    numbers = []
    for stream in (7, 8, 7):
        captures.begin(stream)
        numbers.append(captures.of(stream).number)
        captures.end(stream)
        assert captures.of(stream) is None
    assert 0 not in numbers
    assert len({*numbers}) == 3
