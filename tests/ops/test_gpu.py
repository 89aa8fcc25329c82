"""Operations on a Hopper GPU: values, autograd, torch.compile, CUDA graphs, streams, threads."""

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
# Inductor imports parts of torch that torch itself deprecates, and gives advice.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore:.*torch.jit:DeprecationWarning",
        "ignore:TensorFloat32:UserWarning",
        "ignore:The CUDA Graph is empty:UserWarning",
    ),
]

from cutepy.kernels.gemm.reference import ACTIVATION_FUNCTIONS, gemm_reference  # noqa: E402
from cutepy.nn import replace_linears  # noqa: E402
from cutepy.ops import gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402
from tests.ops import operations, scaled_add  # noqa: E402
from tests.ops.test_gemm import CASES  # noqa: E402
from tests.ops.test_routes import REPEATED  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261121)


def normal(*shape, dtype=BF16):
    return torch.randn(shape, device="cuda").to(dtype)


def assert_right(result, a, b, bias=None, activation=None):
    exact = gemm_reference(a, b, None, bias, activation)
    name = str(result.dtype).removeprefix("torch.")
    assert result.shape == exact.shape
    assert relative_error(result, exact) <= gemm_tolerance(max(a.shape[-1], 1), 8 * a.dtype.itemsize, name)


@pytest.mark.parametrize("case", [*CASES.values(), *REPEATED.values()], ids=[*CASES, *REPEATED])
def test_any_shape_and_strides(case):
    """The cases of the CPU, with their strides and offsets."""
    moved = []
    for tensor in case()[:2]:
        storage = tensor.untyped_storage().cuda()
        moved.append(
            torch.empty(0, dtype=tensor.dtype, device="cuda").set_(
                storage, tensor.storage_offset(), tensor.shape, tensor.stride()
            )
        )
    for _ in range(2):  # the second call takes the short way
        assert_right(gemm(*moved), *moved)


@pytest.mark.parametrize("m", [1, 2, 7, 64, 129])
def test_few_rows(m):
    a, b, bias = normal(m, 4096), normal(4096, 4096), normal(4096)
    for _ in range(2):
        assert_right(gemm(a, b, bias=bias), a, b, bias)


@pytest.mark.parametrize("activation", ACTIVATION_FUNCTIONS)
@pytest.mark.parametrize("shape", [(1024, 2048, 512), (300, 1000, 264), (129, 257, 65)])
def test_bias_and_activation(shape, activation):
    m, n, k = shape
    a, b, bias = normal(m, k), normal(n, k), normal(n, dtype=F32)
    assert_right(gemm(a, b, bias=bias, activation=activation, out_dtype=F32), a, b, bias, activation)
    assert_right(gemm(a, b, bias=bias.to(BF16), activation=activation), a, b, bias.to(BF16), activation)


def test_a_bias_of_many_tiles_is_exact():
    """Small integers: every sum is exact, so that a bias of the wrong column can't hide."""
    a, b = (torch.randint(-2, 3, shape, device="cuda").to(BF16) for shape in ((3000, 128), (5000, 128)))
    bias = torch.arange(5000, device="cuda").float()
    assert torch.equal(gemm(a, b, bias=bias, out_dtype=F32), gemm_reference(a, b, None, bias).float())


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("activation", ACTIVATION_FUNCTIONS)
def test_autograd_agrees_with_torch(dtype, activation):
    """Torch rounds as often as we do: neither may be further from float64 than twice the other, and a little."""
    a, b, bias = (
        t.requires_grad_()
        for t in (normal(3, 100, 256, dtype=dtype), normal(520, 256, dtype=dtype), normal(520, dtype=dtype))
    )

    def torchs(a, b, bias):
        return ACTIVATION_FUNCTIONS[activation](torch.nn.functional.linear(a, b, bias))

    def gradients(product, *inputs):
        inputs = [t.detach().requires_grad_() for t in inputs]
        result = product(*inputs)
        weights = torch.linspace(0.5, 1, result.numel(), device="cuda").view(result.shape).to(result.dtype)
        return torch.autograd.grad((result * weights).sum(), inputs)

    exact = gradients(torchs, *(t.double() for t in (a, b, bias)))
    theirs = gradients(torchs, a, b, bias)
    ours = gradients(lambda a, b, c: gemm(a, b, bias=c, activation=activation), a, b, bias)
    for mine, other, truth in zip(ours, theirs, exact, strict=True):
        assert relative_error(mine, truth) <= 2 * relative_error(other, truth) + 1e-4


BATCHES = {
    "plain": ((4, 100, 256), (4, 520, 256)),
    "broadcast": ((4, 1, 100, 256), (1, 6, 520, 256)),
    "a shared": ((100, 256), (4, 520, 256)),
    "b shared": ((4, 100, 256), (1, 520, 256)),
    "odd": ((3, 65, 129), (3, 71, 129)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_and_their_gradients_agree_with_torch(name):
    a, b = (normal(*shape).requires_grad_() for shape in BATCHES[name])

    def gradients(product, a, b):
        inputs = [t.detach().requires_grad_() for t in (a, b)]
        result = product(*inputs)
        weights = torch.linspace(0.5, 1, result.numel(), device="cuda").view(result.shape).to(result.dtype)
        return result.detach(), *torch.autograd.grad((result * weights).sum(), inputs)

    exact = gradients(lambda a, b: a @ b.mT, a.double(), b.double())
    theirs, ours = gradients(lambda a, b: a @ b.mT, a, b), gradients(gemm, a, b)
    for mine, other, truth in zip(ours, theirs, exact, strict=True):
        assert relative_error(mine, truth) <= 2 * relative_error(other, truth) + 1e-4


def test_heads_of_tokens_compiled_and_in_a_graph():
    q, k = normal(2, 130, 8, 64), normal(2, 200, 8, 64)

    def scores(q, k):
        return gemm(q.transpose(1, 2), k.transpose(1, 2))

    expected = scores(q, k)
    assert_right(expected, q.transpose(1, 2), k.transpose(1, 2))
    assert torch.equal(torch.compile(scores, fullgraph=True)(q, k), expected)
    assert torch.equal(torch.vmap(torch.vmap(gemm, (1, 1)))(q, k), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = scores(q, k)
    q.copy_(normal(2, 130, 8, 64))
    graph.replay()
    assert torch.equal(captured, scores(q, k))


OPCHECK = {
    "all": lambda: (normal(40, 16), normal(8, 16), normal(8), "relu", F32),
    "grad": lambda: (*(t.requires_grad_() for t in (normal(40, 16), normal(8, 16), normal(8))), "gelu", None),
    "batch": lambda: (normal(2, 4, 16).requires_grad_(), normal(3, 1, 8, 16).requires_grad_(), None, None, None),
    "odd": lambda: (normal(4, 15), normal(7, 15), None, None, None),
}


@pytest.mark.parametrize("name", OPCHECK)
def test_opcheck(name):
    a, b, bias, activation, out_dtype = OPCHECK[name]()
    given = (*operations.arguments(a, b, bias, activation), out_dtype)
    torch.library.opcheck(torch.ops.cutepy.gemm.default, given)


def test_opcheck_of_the_others():
    arguments = (*operations.arguments(normal(4, 16), normal(8, 16), normal(8), "relu"), [normal(4, 8)])
    torch.library.opcheck(torch.ops.cutepy.gemm_out.default, arguments)
    x, y = (torch.randn(1000, device="cuda", requires_grad=True) for _ in range(2))
    torch.library.opcheck(scaled_add.scaled_add.op, (x, y, 2.0))


def test_a_users_kernel():
    x, y = normal(3, 1000, dtype=F16), normal(3, 1000, dtype=F16)
    assert torch.allclose(scaled_add.scaled_add(x, y, 2.5), x + 2.5 * y, rtol=2**-9, atol=2**-9)


def mlp(x, up, down, bias):
    return gemm(gemm(x, up, bias=bias, activation="silu"), down)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiles_without_graph_breaks(backend):
    x, up, down, bias = normal(4, 128, 256), normal(512, 256), normal(256, 512), normal(512)
    compiled = torch.compile(mlp, backend=backend, fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x, up, down, bias), mlp(x, up, down, bias))
    inputs = [t.requires_grad_() for t in (x, up, down, bias)]
    expected = torch.autograd.grad(mlp(*inputs).float().square().mean(), inputs)
    found = torch.autograd.grad(compiled(*inputs).float().square().mean(), inputs)
    for ours, theirs in zip(found, expected, strict=True):
        # A compiler may keep what eager execution rounds, and so comes closer to the truth.
        assert relative_error(ours, theirs.double()) <= 2**-6


def test_cuda_graphs_replay_with_new_values():
    x, up, down, bias = normal(128, 256), normal(512, 256), normal(256, 512), normal(512)
    with torch.no_grad():
        mlp(x, up, down, bias)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = mlp(x, up, down, bias)
        for _ in range(3):
            x.copy_(normal(128, 256))
            graph.replay()
            assert torch.equal(captured, mlp(x, up, down, bias))


def test_compiled_into_cuda_graphs():
    x, up, down, bias = normal(128, 256), normal(512, 256), normal(256, 512), normal(512)
    compiled = torch.compile(mlp, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            x = normal(128, 256)
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(x, up, down, bias), mlp(x, up, down, bias))


def test_autocast():
    a, b, bias = (
        torch.randn(64, 128, device="cuda"),
        torch.randn(72, 128, device="cuda"),
        torch.randn(72, device="cuda"),
    )
    for dtype in (F16, BF16):
        with torch.autocast("cuda", dtype=dtype):
            found = gemm(a, b, bias=bias)
        assert torch.equal(found, gemm(a.to(dtype), b.to(dtype), bias=bias.to(dtype)))


def test_autocast_of_a_training_step():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
    x = torch.randn(32, 64, device="cuda")
    results = []
    for _ in range(2):
        model.zero_grad()
        with torch.autocast("cuda", dtype=BF16):
            loss = model(x).float().square().mean()
        loss.backward()
        results.append([p.grad.clone() for p in model.parameters()])
        replace_linears(model)
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert ours.dtype == F32
        assert relative_error(ours, theirs.double()) <= 2**-6


def test_several_streams():
    a, b = normal(512, 512), normal(512, 512)
    expected = gemm(a, b)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    late = torch.zeros_like(a)
    results = []
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(5_000_000)  # a launch on another stream would overtake this copy
            late.copy_(a)
            results.append(gemm(late, b))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


def test_several_threads():
    """Of kernels that none has compiled yet, too."""
    failures = []

    def work(index):
        try:
            torch.manual_seed(index)
            for step in range(30):
                n = 64 * (1 + (index + step) % 5)
                a, b = normal(n, 256, dtype=F16), normal(128 + n, 256, dtype=F16)
                with torch.cuda.stream(torch.cuda.Stream()):
                    torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                    assert_right(
                        gemm(a, b, activation="gelu" if step % 2 else None), a, b, None, "gelu" if step % 2 else None
                    )
                    torch.cuda.current_stream().synchronize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_saved_tensors_that_were_overwritten_are_noticed():
    a, b = normal(16, 16).requires_grad_(), normal(16, 16).requires_grad_()
    weight = b * 1
    result = gemm(a, weight)
    with torch.no_grad():
        gemm(normal(16, 16), normal(16, 16), out=weight.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_call_costs_no_more_than_torch_mm():
    from cutepy.suites.launch import launch_costs

    runs = [launch_costs(rounds=9, calls=300) for _ in range(3)]
    least = {way: min(run[way] for run in runs) for way in runs[0]}  # other work on the host only adds
    for arguments in ("(x, y)", "(x, y, out=z)"):
        assert least[f"cutepy.ops.gemm{arguments}"] <= least[f"torch.mm{arguments}"]


def test_c_and_either_order_of_the_result():
    a, b, c = normal(2, 130, 264), normal(257, 264), normal(2, 130, 257, dtype=F32)
    for out_major in ("row", "col"):
        result = gemm(a, b, c=c, activation="gelu", out_major=out_major, out_dtype=F32)
        exact = gemm_reference(a, b, c, None, "gelu")
        assert relative_error(result, exact) <= gemm_tolerance(264, 16, "float32")
        assert (result if out_major == "row" else result.mT).is_contiguous()
    expected = gemm(a, b, c=c, out_dtype=F32)
    assert torch.equal(gemm(a, b, c=c, out=c), expected)
